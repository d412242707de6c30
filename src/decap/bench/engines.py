"""Speed of G1 walking without a GPU: C MuJoCo against MuJoCo Warp's CPU backend.

One task, g1-flat, from the same seed under the same random actions: as stock mjlab runs
it on Warp, the alternative; stock mjlab on C MuJoCo, which changes the engine alone; and
as ``decap train`` runs it, whose step also asks less of the engine. Whole environment
steps are timed, and apart from them the time inside the engine.
"""

from __future__ import annotations

import contextlib
import io
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import warp as wp
from mjlab.envs import ManagerBasedRlEnv
from rich.console import Console
from rich.table import Table

from decap.bench.machine import describe_machine
from decap.envs.constrained_env import ConstrainedEnv
from decap.envs.stock import stock_twin
from decap.errors import UserError
from decap.files import check_writable, write_text
from decap.runs import RunSpec, build_configs
from decap.sim import simulation_backend

TASK = "g1-flat"
ROUNDS = 4
WARM_UP_STEPS = 5
CASES = {
  "decap": "decap, C MuJoCo",
  "native": "mjlab, C MuJoCo",
  "warp": "mjlab, MuJoCo Warp",
}


@dataclass
class EngineSpeed:
  """One measurement."""

  case: str
  """One of CASES."""
  num_envs: int
  env_steps_per_s: float
  """Whole environment steps, managers included."""
  physics_per_s: float
  """Control steps of physics alone: four substeps and the closing forward pass."""
  start_s: float
  """Building the environment and its first step: what is compiled is compiled here."""


def bench_engines(
  num_envs: Sequence[int] = (64, 256),
  steps: int = 20,
  json_path: str | Path | None = None,
) -> list[EngineSpeed]:
  """Measures all cases at each number of environments and prints a table.

  They take turns, some steps each, so that a machine that is busy with other work slows
  all of them down; of their turns the median counts.
  """
  _check(num_envs, steps, json_path)
  console = Console()
  speeds: list[EngineSpeed] = []
  with _quiet_warp(), _one_torch_thread():
    for count in num_envs:
      with console.status(
        f"{count} environments; Warp compiles for about a minute the first time"
      ):
        speeds += _race(count, steps)
  console.print(_table(speeds))
  if json_path is not None:
    report = {
      "benchmark": "engines",
      "measured": f"steps per second on the CPU, {TASK}, random actions",
      "steps": steps,
      "machine": describe_machine(),
      "results": [asdict(s) for s in speeds],
      "ratios": {str(n): ratio for n, ratio in speed_ratios(speeds).items()},
    }
    write_text(json_path, json.dumps(report, indent=2) + "\n")
  return speeds


def speed_ratios(
  speeds: Sequence[EngineSpeed],
) -> dict[int, dict[str, dict[str, float]]]:
  """How many times faster than Warp, by number of environments and case."""
  warp = {s.num_envs: s for s in speeds if s.case == "warp"}
  ratios: dict[int, dict[str, dict[str, float]]] = {count: {} for count in warp}
  for speed in speeds:
    slow = warp[speed.num_envs]
    ratios[speed.num_envs][speed.case] = {
      "environment": speed.env_steps_per_s / slow.env_steps_per_s,
      "physics": speed.physics_per_s / slow.physics_per_s,
    }
  return ratios


def _check(num_envs: Sequence[int], steps: int, json_path: str | Path | None) -> None:
  if not num_envs or min(num_envs) < 1:
    raise UserError(f"numbers of environments must be positive, not {list(num_envs)}")
  if steps < 1:
    raise UserError(f"the number of steps must be positive, not {steps}")
  if json_path is not None:
    check_writable(Path(json_path).parent)


class _Runner:
  """An environment of one case, and the times of its turns."""

  def __init__(self, case: str, num_envs: int) -> None:
    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
      self.env = _environment(case, num_envs)
    self.env.reset()
    self._physics_s = 0.0
    self._actions = torch.Generator().manual_seed(0)
    self.run(1)
    self.start_s = time.perf_counter() - start
    for name in ("step_many" if case == "decap" else "step", "forward"):
      setattr(self.env.sim, name, self._timed(getattr(self.env.sim, name)))
    self.run(WARM_UP_STEPS)

  def run(self, steps: int) -> tuple[float, float]:
    """Seconds per step: all, and of them physics."""
    shape = (self.env.num_envs, self.env.action_manager.total_action_dim)
    self._physics_s = 0.0
    start = time.perf_counter()
    for _ in range(steps):
      self.env.step(torch.randn(shape, generator=self._actions))
    return (time.perf_counter() - start) / steps, self._physics_s / steps

  def _timed(self, method: Callable[..., None]) -> Callable[..., None]:
    def call(*args: Any) -> None:
      start = time.perf_counter()
      method(*args)
      self._physics_s += time.perf_counter() - start

    return call


def _environment(case: str, num_envs: int) -> ManagerBasedRlEnv:
  cfg, _ = build_configs(RunSpec(TASK, "decap", num_envs=num_envs))
  if case == "decap":
    return ConstrainedEnv(cfg, "cpu")
  with simulation_backend("native" if case == "native" else "warp"):
    return ManagerBasedRlEnv(stock_twin(cfg), "cpu")


def _race(num_envs: int, steps: int) -> list[EngineSpeed]:
  runners = {case: _Runner(case, num_envs) for case in CASES}
  turns: dict[str, list[tuple[float, float]]] = {case: [] for case in CASES}
  for _ in range(ROUNDS):
    for case, runner in runners.items():
      turns[case].append(runner.run(max(1, steps // ROUNDS)))
  speeds = []
  for case, runner in runners.items():
    runner.env.close()
    whole, physics = (
      num_envs / statistics.median(s) for s in zip(*turns[case], strict=True)
    )
    speeds.append(EngineSpeed(case, num_envs, whole, physics, runner.start_s))
  return speeds


def _table(speeds: Sequence[EngineSpeed]) -> Table:
  table = Table(title=f"Control steps per second on the CPU: {TASK}, random actions")
  table.add_column("envs", justify="right")
  table.add_column("environment, engine")
  for measure in ("whole step", "physics"):
    table.add_column(measure, justify="right")
    table.add_column("ratio", justify="right")
  ratios = speed_ratios(speeds)
  for speed in speeds:
    ratio = ratios[speed.num_envs][speed.case]
    table.add_row(
      str(speed.num_envs),
      CASES[speed.case],
      f"{speed.env_steps_per_s:.0f}",
      f"{ratio['environment']:.1f}",
      f"{speed.physics_per_s:.0f}",
      f"{ratio['physics']:.1f}",
    )
  return table


@contextlib.contextmanager
def _quiet_warp():
  level, wp.config.log_level = wp.config.log_level, wp.LOG_WARNING
  try:
    yield
  finally:
    wp.config.log_level = level


@contextlib.contextmanager
def _one_torch_thread():
  """Physics has the cores; torch's small operations gain nothing from a second one."""
  threads = torch.get_num_threads()
  torch.set_num_threads(1)
  try:
    yield
  finally:
    torch.set_num_threads(threads)
