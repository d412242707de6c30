"""Speed of the two CPU engines: C MuJoCo against MuJoCo Warp's CPU backend.

Both run mjlab's stock G1 walking task on flat ground, whole environment steps with
mjlab's own managers, from the same seed under the same random actions. Only the
ray-cast foot heights are left out, which would measure Warp's ray kernel on both. The
time inside the engine is counted apart: four substeps and the closing forward pass.
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
from typing import Literal

import torch
import warp as wp
from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from mjlab.tasks.velocity.config.g1.env_cfgs import unitree_g1_flat_env_cfg
from rich.console import Console
from rich.table import Table

from decap.bench.machine import describe_machine
from decap.errors import UserError
from decap.files import check_writable, write_text
from decap.sim import simulation_backend

ROUNDS = 4
WARM_UP_STEPS = 5
_ENGINES: tuple[Literal["native", "warp"], ...] = ("native", "warp")


@dataclass
class EngineSpeed:
  """One measurement."""

  engine: str
  num_envs: int
  env_steps_per_s: float
  """Whole environment steps, mjlab's managers included."""
  physics_per_s: float
  """Control steps of physics alone."""
  start_s: float
  """Building the environment and its first step: what is compiled is compiled here."""


def bench_engines(
  num_envs: Sequence[int] = (64, 256),
  steps: int = 20,
  json_path: str | Path | None = None,
) -> list[EngineSpeed]:
  """Measures both engines at each number of environments and prints a table.

  The engines take turns, some steps each, so that a machine that is busy with other
  work slows both down; of their turns the median counts.
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
      "measured": "steps per second on the CPU, stock mjlab G1 flat, random actions",
      "steps": steps,
      "machine": describe_machine(),
      "results": [asdict(s) for s in speeds],
      "ratios": {str(n): ratio for n, ratio in speed_ratios(speeds).items()},
    }
    write_text(json_path, json.dumps(report, indent=2) + "\n")
  return speeds


def speed_ratios(speeds: Sequence[EngineSpeed]) -> dict[int, dict[str, float]]:
  """How many times faster native is than Warp, by number of environments."""
  found = {(s.engine, s.num_envs): s for s in speeds}
  ratios = {}
  for engine, count in found:
    if engine == "native":
      native, warp = found["native", count], found["warp", count]
      ratios[count] = {
        "environment": native.env_steps_per_s / warp.env_steps_per_s,
        "physics": native.physics_per_s / warp.physics_per_s,
      }
  return ratios


def without_ray_casts(cfg: ManagerBasedRlEnvCfg, num_envs: int) -> ManagerBasedRlEnvCfg:
  """A stock walking task whose foot heights are left out; changes the config."""
  cfg.seed = 1
  cfg.scene.num_envs = num_envs
  cfg.scene.sensors = tuple(
    s for s in cfg.scene.sensors if s.name != "foot_height_scan"
  )
  del cfg.observations["critic"].terms["foot_height"]
  for name in ("foot_clearance", "foot_swing_height"):
    del cfg.rewards[name]
  return cfg


def _check(num_envs: Sequence[int], steps: int, json_path: str | Path | None) -> None:
  if not num_envs or min(num_envs) < 1:
    raise UserError(f"numbers of environments must be positive, not {list(num_envs)}")
  if steps < 1:
    raise UserError(f"the number of steps must be positive, not {steps}")
  if json_path is not None:
    check_writable(Path(json_path).parent)


class _Runner:
  """An environment on one engine, and the times of its turns."""

  def __init__(self, engine: Literal["native", "warp"], num_envs: int) -> None:
    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()), simulation_backend(engine):
      cfg = without_ray_casts(unitree_g1_flat_env_cfg(), num_envs)
      self.env = ManagerBasedRlEnv(cfg, "cpu")
    self.env.reset()
    self._physics_s = 0.0
    self._actions = torch.Generator().manual_seed(0)
    self.run(1)
    self.start_s = time.perf_counter() - start
    sim = self.env.sim
    sim.step = self._timed(sim.step)  # type: ignore[method-assign]
    sim.forward = self._timed(sim.forward)  # type: ignore[method-assign]
    self.run(WARM_UP_STEPS)

  def run(self, steps: int) -> tuple[float, float]:
    """Seconds per step: all, and of them physics."""
    shape = (self.env.num_envs, self.env.action_manager.total_action_dim)
    self._physics_s = 0.0
    start = time.perf_counter()
    for _ in range(steps):
      self.env.step(torch.randn(shape, generator=self._actions))
    return (time.perf_counter() - start) / steps, self._physics_s / steps

  def _timed(self, method: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
      start = time.perf_counter()
      method()
      self._physics_s += time.perf_counter() - start

    return call


def _race(num_envs: int, steps: int) -> list[EngineSpeed]:
  runners = {engine: _Runner(engine, num_envs) for engine in _ENGINES}
  turns: dict[str, list[tuple[float, float]]] = {engine: [] for engine in _ENGINES}
  for _ in range(ROUNDS):
    for engine, runner in runners.items():
      turns[engine].append(runner.run(max(1, steps // ROUNDS)))
  speeds = []
  for engine, runner in runners.items():
    runner.env.close()
    whole, physics = (
      num_envs / statistics.median(s) for s in zip(*turns[engine], strict=True)
    )
    speeds.append(EngineSpeed(engine, num_envs, whole, physics, runner.start_s))
  return speeds


def _table(speeds: Sequence[EngineSpeed]) -> Table:
  table = Table(title="Steps per second on the CPU: stock G1 flat, random actions")
  table.add_column("envs", justify="right")
  for measure in ("env", "physics"):
    for name in ("native", "warp", "ratio"):
      table.add_column(f"{measure}\n{name}", justify="right")
  found = {(s.engine, s.num_envs): s for s in speeds}
  for count, ratio in speed_ratios(speeds).items():
    native, warp = found["native", count], found["warp", count]
    table.add_row(
      str(count),
      f"{native.env_steps_per_s:.0f}",
      f"{warp.env_steps_per_s:.0f}",
      f"{ratio['environment']:.1f}",
      f"{native.physics_per_s:.0f}",
      f"{warp.physics_per_s:.0f}",
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
