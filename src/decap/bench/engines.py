"""Speed of the two CPU engines: C MuJoCo against MuJoCo Warp's CPU backend.

Both run mjlab's stock G1 walking task on flat ground, whole environment steps with
mjlab's own managers, from the same seed under the same random actions. Only the
ray-cast foot heights are left out, which would measure Warp's ray kernel on both.
"""

from __future__ import annotations

import contextlib
import io
import json
import statistics
import time
from collections.abc import Sequence
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
      "measured": "environment steps per second, stock mjlab G1 flat, random actions",
      "steps": steps,
      "machine": describe_machine(),
      "results": [asdict(s) for s in speeds],
      "ratios": {str(n): ratio for n, ratio in speed_ratios(speeds).items()},
    }
    Path(json_path).write_text(json.dumps(report, indent=2) + "\n")
  return speeds


def speed_ratios(speeds: Sequence[EngineSpeed]) -> dict[int, float]:
  """How many times faster native is than Warp, by number of environments."""
  by_key = {(s.engine, s.num_envs): s.env_steps_per_s for s in speeds}
  return {
    n: rate / by_key["warp", n]
    for (engine, n), rate in by_key.items()
    if engine == "native"
  }


def _check(num_envs: Sequence[int], steps: int, json_path: str | Path | None) -> None:
  if not num_envs or min(num_envs) < 1:
    raise UserError(f"numbers of environments must be positive, not {list(num_envs)}")
  if steps < 1:
    raise UserError(f"the number of steps must be positive, not {steps}")
  if json_path is None:
    return
  try:
    # Opened before the long work starts, and without harm to what is there.
    with Path(json_path).open("a"):
      pass
  except OSError as error:
    raise UserError(f"cannot write {json_path}: {error.strerror}") from error


class _Runner:
  """An environment on one engine, and the times of its turns."""

  def __init__(self, engine: Literal["native", "warp"], num_envs: int) -> None:
    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()), simulation_backend(engine):
      self.env = ManagerBasedRlEnv(_walking_task(num_envs), "cpu")
    self.env.reset()
    self._actions = torch.Generator().manual_seed(0)
    self.run(1)
    self.start_s = time.perf_counter() - start
    self.run(WARM_UP_STEPS)

  def run(self, steps: int) -> float:
    """Seconds per step."""
    shape = (self.env.num_envs, self.env.action_manager.total_action_dim)
    start = time.perf_counter()
    for _ in range(steps):
      self.env.step(torch.randn(shape, generator=self._actions))
    return (time.perf_counter() - start) / steps


def _race(num_envs: int, steps: int) -> list[EngineSpeed]:
  runners = {engine: _Runner(engine, num_envs) for engine in _ENGINES}
  seconds: dict[str, list[float]] = {engine: [] for engine in _ENGINES}
  for _ in range(ROUNDS):
    for engine, runner in runners.items():
      seconds[engine].append(runner.run(max(1, steps // ROUNDS)))
  for runner in runners.values():
    runner.env.close()
  return [
    EngineSpeed(
      engine, num_envs, num_envs / statistics.median(seconds[engine]), runner.start_s
    )
    for engine, runner in runners.items()
  ]


def _walking_task(num_envs: int) -> ManagerBasedRlEnvCfg:
  cfg = unitree_g1_flat_env_cfg()
  cfg.seed = 1
  cfg.scene.num_envs = num_envs
  cfg.scene.sensors = tuple(
    s for s in cfg.scene.sensors if s.name != "foot_height_scan"
  )
  del cfg.observations["critic"].terms["foot_height"]
  for name in ("foot_clearance", "foot_swing_height"):
    del cfg.rewards[name]
  return cfg


def _table(speeds: Sequence[EngineSpeed]) -> Table:
  table = Table(title="Environment steps per second, stock G1 flat, random actions")
  for name in ("environments", "native", "warp (CPU)", "ratio", "start", "warp start"):
    table.add_column(name, justify="right")
  found = {(s.engine, s.num_envs): s for s in speeds}
  for count, ratio in speed_ratios(speeds).items():
    native, warp = found["native", count], found["warp", count]
    table.add_row(
      str(count),
      f"{native.env_steps_per_s:.0f}",
      f"{warp.env_steps_per_s:.0f}",
      f"{ratio:.1f}",
      f"{native.start_s:.1f} s",
      f"{warp.start_s:.1f} s",
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
