"""What each method costs: its training speed beside that of plain PPO.

All train the same task from the same seed, one after the other, captured where there
is a GPU: ``python benchmarks/methods.py --json results/bench/methods.json``.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from decap.bench.machine import release_memory
from decap.bench.report import write_report
from decap.bench.training import configure_torch, plain_ppo, quiet
from decap.envs.constrained_env import ConstrainedEnv
from decap.methods import METHODS, get_method
from decap.options.machine import check_device
from decap.rl.runner import Runner
from decap.runs import RunSpec, build_configs

METHODS_BENCHMARK = SimpleNamespace(
  name="methods", measured="environment steps per second of training, by method"
)
PLAIN_PPO = "plain PPO"
WARM_UP = 10
"""Iterations that are not timed: recording, and the machine's clocks."""


@dataclass(frozen=True)
class MethodSpeed:
  """One method's training."""

  method: str
  steps_per_s: float
  """Environment steps per second of whole iterations, the median."""
  relative: float
  """The same over plain PPO's."""
  captured: bool
  iterations: int
  finite: bool
  """Whether everything that it logged in the end was a number."""


def bench_methods(
  num_envs: int,
  device: str,
  *,
  task: str = "g1-flat",
  methods: Sequence[str] = tuple(METHODS),
  iterations: int = 60,
  json_path: Path | None = None,
) -> list[MethodSpeed]:
  """Trains every method for some iterations; a line each."""
  configure_torch(device)
  speeds: list[MethodSpeed] = []
  for name in (PLAIN_PPO, *methods):
    spec = RunSpec(task, "decap", num_envs=num_envs)
    speed = _measure(name, spec, device, iterations)
    base = speeds[0].steps_per_s if speeds else speed.steps_per_s
    speed = dataclasses.replace(speed, relative=speed.steps_per_s / base)
    speeds.append(speed)
    how = "captured" if speed.captured else "eager"
    print(
      f"{name:<20}{speed.steps_per_s:>10,.0f} steps/s, {speed.relative:.1%} of plain "
      f"PPO ({how}, {speed.iterations} iterations)",
      flush=True,
    )
    if json_path is not None:
      settings = {"task": task, "num_envs": num_envs}
      rows = [dataclasses.asdict(s) for s in speeds]
      write_report(json_path, METHODS_BENCHMARK, settings, rows)
  return speeds


def _measure(name: str, spec: RunSpec, device: str, iterations: int) -> MethodSpeed:
  release_memory(device)
  method = get_method(spec.method if name == PLAIN_PPO else name)
  if name == PLAIN_PPO:
    env_cfg, agent_cfg = plain_ppo(spec)
  else:
    env_cfg, agent_cfg = build_configs(dataclasses.replace(spec, method=name))
  agent_cfg.iterations = iterations
  rates: list[float] = []
  last: dict[str, float] = {}

  def on_iteration(_: int, log: dict[str, float]) -> None:
    rates.append(log["Perf/total_fps"])
    last.update(log)

  with quiet():
    env = ConstrainedEnv(env_cfg, device)
    runner = Runner(
      env,
      agent_cfg,
      costs=method.costs,
      schedule=method.schedule(env) if method.schedule else None,
      on_iteration=on_iteration,
    )
    runner.learn()
    env.close()
  return MethodSpeed(
    method=name,
    steps_per_s=statistics.median(rates[min(WARM_UP, iterations - 1) :]),
    relative=1.0,
    captured=runner.graphs is not None,
    iterations=len(rates),
    finite=all(math.isfinite(value) for value in last.values()),
  )


if __name__ == "__main__":
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--task", default="g1-flat")
  parser.add_argument("--num-envs", type=int)
  parser.add_argument("--device", default="auto")
  parser.add_argument("--iterations", type=int, default=60)
  parser.add_argument("--json", type=Path)
  options = parser.parse_args()
  where = check_device(options.device)
  bench_methods(
    options.num_envs or (64 if where == "cpu" else 2048),
    where,
    task=options.task,
    iterations=options.iterations,
    json_path=options.json,
  )
