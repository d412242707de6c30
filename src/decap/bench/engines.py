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
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from mjlab.envs import ManagerBasedRlEnv

from decap.bench.report import Benchmark, Row, Settings
from decap.bench.training import configure_torch, quiet
from decap.envs.constrained_env import ConstrainedEnv
from decap.envs.substitutes import stock_twin
from decap.runs import build_configs
from decap.sim import simulation_backend
from decap.sim.backend import hush_warp

TURNS = 4
WARM_UP_STEPS = 5
CASES = {
  "decap": "decap, C MuJoCo",
  "native": "mjlab, C MuJoCo",
  "warp": "mjlab, MuJoCo Warp",
}


def measure(settings: Settings) -> Iterator[Row]:
  """All cases in turns, so that a machine that is busy slows all of them down.

  Of the turns the median counts. Warp compiles for about a minute the first time.
  """
  hush_warp()
  configure_torch("cpu")
  runners = {case: _Runner(case, settings) for case in settings.cases}
  turns: dict[str, list[tuple[float, float]]] = {case: [] for case in runners}
  for _ in range(TURNS):
    for case, runner in runners.items():
      steps = math.ceil(settings.seconds / TURNS / runner.step_s)
      turns[case].append(runner.run(max(1, steps)))
  for case, runner in runners.items():
    runner.env.close()
    whole, physics = (
      settings.num_envs / statistics.median(s) for s in zip(*turns[case], strict=True)
    )
    yield {
      "case": case,
      "num_envs": settings.num_envs,
      "env_steps_per_s": whole,
      "physics_per_s": physics,
      "start_s": runner.start_s,
    }


def with_ratios(rows: Sequence[Row]) -> list[Row]:
  """The rows and, where Warp was measured too, how many times faster they are."""
  warp = {row["num_envs"]: row for row in rows if row["case"] == "warp"}
  out = []
  for row in rows:
    slow = warp.get(row["num_envs"])
    ratios = {
      f"{name}_ratio": row[key] / slow[key]
      for name, key in (("env", "env_steps_per_s"), ("physics", "physics_per_s"))
      if slow
    }
    out.append({**row, **ratios})
  return out


def summary(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
  """Ratios over Warp of what `decap train` runs, by number of environments."""
  return {
    str(row["num_envs"]): {n: row[f"{n}_ratio"] for n in ("env", "physics")}
    for row in with_ratios(rows)
    if row["case"] == "decap" and "env_ratio" in row
  }


def notes(rows: Sequence[Row]) -> list[str]:
  return [
    f"{count} environments: decap is {r['env']:.1f} × mjlab on MuJoCo Warp, its physics "
    f"alone {r['physics']:.1f} ×"
    for count, r in summary(rows).items()
  ]


class _Runner:
  """An environment of one case, and the times of its turns."""

  def __init__(self, case: str, settings: Settings) -> None:
    start = time.perf_counter()
    with quiet():
      self.env = _environment(case, settings)
    self.env.reset()
    self._physics_s = 0.0
    self._actions = torch.Generator().manual_seed(0)
    self.run(1)
    self.start_s = time.perf_counter() - start
    for name in ("step_many" if case == "decap" else "step", "forward"):
      setattr(self.env.sim, name, self._timed(getattr(self.env.sim, name)))
    self.step_s, _ = self.run(WARM_UP_STEPS)

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


def _environment(case: str, settings: Settings) -> ManagerBasedRlEnv:
  cfg, _ = build_configs(settings.spec)
  if case == "decap":
    return ConstrainedEnv(cfg, "cpu")
  with simulation_backend(case):
    return ManagerBasedRlEnv(stock_twin(cfg), "cpu")


BENCHMARK = Benchmark(
  name="engines",
  measured="control steps per second on the CPU, random actions",
  cases=CASES,
  columns=(
    ("env_steps_per_s", "whole step, 1/s", "{:,.0f}"),
    ("env_ratio", "× Warp", "{:.1f}"),
    ("physics_per_s", "physics, 1/s", "{:,.0f}"),
    ("physics_ratio", "× Warp", "{:.1f}"),
    ("start_s", "start, s", "{:.1f}"),
  ),
  measure=measure,
  num_envs={"cpu": (64, 256)},
  default_cases=lambda device, num_envs: tuple(CASES),
  summary=summary,
  notes=notes,
  complete=with_ratios,
)
