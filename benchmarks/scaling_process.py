"""One process of the benchmark of scaling; torchrun starts as many as are measured.

``scaling_process SETTINGS FILE``: the first process writes FILE.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import distributed as dist

from benchmarks.loops import WARM_UP
from benchmarks.machine import configure_torch, physical_cores, quiet_libraries
from benchmarks.report import Settings
from decap import collective
from decap.envs.constrained_env import ConstrainedEnv
from decap.rl.display import Stopwatch
from decap.rl.runner import Runner
from decap.runs import build_configs

MIN_TURNS = 4
GPU_ITERATIONS = 8
"""Of a turn on a GPU, which records its graphs anew."""

Turn = tuple[float, float]
"""Seconds and processor seconds per iteration."""


def alone() -> contextlib.AbstractContextManager[Any]:
  """Within it a process knows of no group."""
  return mock.patch.object(collective, "active", lambda: False)


@contextlib.contextmanager
def counted() -> Iterator[list[int]]:
  """Bytes of every reduction within it, one entry each."""
  sizes: list[int] = []
  reduce = dist.all_reduce

  def call(values: torch.Tensor, *args: Any) -> Any:
    sizes.append(values.numel() * values.element_size())
    return reduce(values, *args)

  with mock.patch.object(dist, "all_reduce", call):
    yield sizes


def main(settings: Settings, file: Path) -> None:
  """All ways in turns, and the medians.

  Only the first process trains ``alone``. In a turn ``apart`` every process does, at the
  same time and knowing nothing of the others: what the machine can give at most. In
  ``halves`` each has its share of the environments but reduces nothing.
  """
  settings = dataclasses.replace(settings, device=_own_part(settings.device))
  on_cpu = settings.device == "cpu"
  dist.init_process_group("gloo" if on_cpu else "nccl")
  first, world = dist.get_rank() == 0, dist.get_world_size()
  half = dataclasses.replace(settings, num_envs=settings.num_envs // world)
  together = _runner(half)
  with counted() as sizes:
    # Eagerly, also on a GPU: a replay calls nothing that could be counted.
    _iterate(together)
  share = _share_of_reductions(together) if on_cpu else None
  with alone():
    runners = {"alone": _runner(settings), "together": together}
    alone_share = _share_of_reductions(runners["alone"]) if on_cpu and first else None
    if world > 1:
      runners |= {"apart": runners["alone"], "halves": _runner(half)}
  turns = _take_turns(runners, settings.seconds)
  # The first turns of each fill caches.
  medians = {
    name: [statistics.median(values) for values in zip(*found[1:], strict=True)]
    for name, found in turns.items()
  }
  result = {
    "device": settings.device,
    "turns": len(turns["together"]),
    "steps": settings.num_envs * together.cfg.num_steps_per_env,
    **{f"{name}_s": wall for name, (wall, _) in medians.items()},
    **{f"{n}_cpu_s": cpu if on_cpu else None for n, (_, cpu) in medians.items()},
    "turns_s": {name: [wall for wall, _ in found] for name, found in turns.items()},
    "reductions": {str(size): n for size, n in sorted(Counter(sizes).items())},
    "share": share,
    "alone_share": alone_share,
  }
  if first:
    file.write_text(json.dumps(result))
  # Recorded graphs hold on to NCCL, and go first.
  del together, runners
  gc.collect()
  dist.destroy_process_group()


def _take_turns(runners: dict[str, Runner], seconds: float) -> dict[str, list[Turn]]:
  """Measure each way again and again until the time is up."""
  turns: dict[str, list[Turn]] = {name: [] for name in runners}
  start, spent_s = time.monotonic(), 0.0
  while len(turns["together"]) < MIN_TURNS or spent_s < seconds:
    # In this order and in the other: what drifts is in all.
    for name in (*runners, *reversed(runners)):
      dist.barrier()
      turn = (0.0, 0.0)
      with contextlib.nullcontext() if name == "together" else alone():
        if name != "alone" or dist.get_rank() == 0:
          turn = _turn(runners[name])
      # That of the slowest process, for which the others would wait. All agree on it,
      # and on the time that was spent.
      times = torch.tensor((*turn, time.monotonic() - start))
      wall, cpu, spent_s = collective.maximum(times.to(runners[name].device)).tolist()
      turns[name].append((wall, cpu))
  return turns


def _own_part(device: str) -> str:
  """This process's device: a GPU, or one core of a CPU."""
  local = int(os.environ["LOCAL_RANK"])
  configure_torch(device)
  if device != "cpu":
    torch.cuda.set_device(local)
    return f"cuda:{local}"
  cores = physical_cores()
  os.sched_setaffinity(0, {cores[local % len(cores)]})
  return device


def _runner(settings: Settings) -> Runner:
  env_cfg, agent_cfg = build_configs(settings.spec())
  env_cfg.num_threads = 1
  with quiet_libraries():
    runner = Runner(ConstrainedEnv(env_cfg, settings.device), agent_cfg)
  runner.spread_episodes()
  return runner


def _iterate(runner: Runner, count: int = 1) -> None:
  for _ in range(count):
    runner.iterate(Stopwatch(runner.device))


def _share_of_reductions(runner: Runner) -> float:
  """Part of an iteration's processor time that is spent in reductions.

  Both are counted at the same time, so that this is true on a busy machine, too.
  """
  spent, inside = 0.0, False

  def timed(reduction: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
      nonlocal spent, inside
      if inside:  # A mean is a sum.
        return reduction(*arguments)
      inside, start = True, time.process_time()
      result = reduction(*arguments)
      inside = False
      spent += time.process_time() - start
      return result

    return call

  names = ("maximum", "total", "mean", "average")
  reductions = {name: timed(getattr(collective, name)) for name in names}
  with mock.patch.dict(vars(collective), reductions):
    start = time.process_time()
    _iterate(runner, MIN_TURNS)
    return spent / (time.process_time() - start)


def _turn(runner: Runner) -> Turn:
  count = GPU_ITERATIONS if runner.graphs else 1
  with runner.graphs.stream() if runner.graphs else contextlib.nullcontext():
    _iterate(runner, WARM_UP if runner.graphs else 0)
    wall, cpu = time.perf_counter(), time.process_time()
    _iterate(runner, count)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
  return wall / count, cpu / count


if __name__ == "__main__":
  main(Settings(**json.loads(sys.argv[1])), Path(sys.argv[2]))
