"""What each method costs: its training speed beside that of plain PPO.

All train the same task from the same seed, one after the other, captured where there
is a GPU.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from decap.bench.cases import configure_torch, plain_ppo, quiet
from decap.bench.gpu import release_memory
from decap.bench.machine import describe_machine
from decap.bench.throughput import make_console
from decap.envs.constrained_env import ConstrainedEnv
from decap.files import write_text
from decap.methods import METHODS, get_method
from decap.rl.runner import Runner
from decap.runs import RunSpec, build_configs

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
  """Trains every method for some iterations and prints a table."""
  configure_torch(device)
  console = make_console()
  speeds: list[MethodSpeed] = []
  for name in (PLAIN_PPO, *methods):
    with console.status(f"{name}, {num_envs} environments"):
      speed = _measure(
        name, RunSpec(task, "decap", num_envs=num_envs), device, iterations
      )
    base = speeds[0].steps_per_s if speeds else speed.steps_per_s
    speed = dataclasses.replace(speed, relative=speed.steps_per_s / base)
    speeds.append(speed)
    console.print(f"{name:<20}{speed.steps_per_s:>10,.0f} steps/s", highlight=False)
    if json_path is not None:
      report = {
        "benchmark": "methods",
        "measured": "environment steps per second of training, by method",
        "task": task,
        "num_envs": num_envs,
        "machine": describe_machine(),
        "results": [dataclasses.asdict(s) for s in speeds],
      }
      write_text(json_path, json.dumps(report, indent=2) + "\n")
  console.print(_table(speeds, task, num_envs))
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


def _table(speeds: Sequence[MethodSpeed], task: str, num_envs: int) -> Table:
  view = Table(title=f"{task}, {num_envs} environments: training by method")
  view.add_column("method")
  for name in ("steps/s", "of plain PPO", "captured", "iterations"):
    view.add_column(name, justify="right")
  for speed in speeds:
    view.add_row(
      speed.method,
      f"{speed.steps_per_s:,.0f}",
      f"{speed.relative:.1%}",
      "yes" if speed.captured else "no",
      str(speed.iterations),
    )
  return view
