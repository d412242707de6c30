"""Speed of G1 walking without a GPU: C MuJoCo against MuJoCo Warp's CPU backend.

One task from the same seed under the same random actions: as stock mjlab runs
it on Warp, the alternative; stock mjlab on C MuJoCo, which changes the engine alone; and
as ``decap train`` runs it, whose step also asks less of the engine. Whole environment
steps are timed, and apart from them the time inside the engine.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from mjlab.envs import ManagerBasedRlEnv

from benchmarks.machine import quiet_libraries
from benchmarks.report import Row, Settings
from benchmarks.stock import stock_twin
from decap.envs.constrained_env import ConstrainedEnv
from decap.runs import build_configs
from decap.sim import simulation_backend

TURNS, WARM_UP_STEPS = 4, 5


def measure(case: str, settings: Settings) -> Row:
  """Of some turns the median; Warp compiles for about a minute the first time."""
  start = time.perf_counter()
  env = _environment(case, settings)
  env.reset()
  shape = (env.num_envs, env.action_manager.total_action_dim)
  actions = torch.Generator().manual_seed(0)
  inside: list[float] = []
  for name in ("step_many" if case == "decap" else "step", "forward"):
    setattr(env.sim, name, _timed(getattr(env.sim, name), inside))

  def turn(steps: int) -> tuple[float, float]:
    """Seconds per step: all, and of them physics."""
    inside.clear()
    start = time.perf_counter()
    for _ in range(steps):
      env.step(torch.randn(shape, generator=actions))
    return (time.perf_counter() - start) / steps, sum(inside) / steps

  turn(1)
  start_s = time.perf_counter() - start
  steps = math.ceil(settings.seconds / TURNS / turn(WARM_UP_STEPS)[0])
  turns = [turn(steps) for _ in range(TURNS)]
  env.close()
  whole_s, physics_s = map(statistics.median, zip(*turns, strict=True))
  return {
    "env_steps_per_s": settings.num_envs / whole_s,
    "physics_per_s": settings.num_envs / physics_s,
    "start_s": start_s,
  }


def _environment(case: str, settings: Settings) -> ManagerBasedRlEnv:
  cfg, _ = build_configs(settings.spec())
  with quiet_libraries():
    if case == "decap":
      return ConstrainedEnv(cfg, "cpu")
    with simulation_backend(case):  # ty: ignore[invalid-argument-type]
      return ManagerBasedRlEnv(stock_twin(cfg), "cpu")


def _timed(method: Callable[..., None], times: list[float]) -> Callable[..., None]:
  def call(*args: Any) -> None:
    start = time.perf_counter()
    method(*args)
    times.append(time.perf_counter() - start)

  return call
