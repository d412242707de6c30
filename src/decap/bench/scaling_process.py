"""One process of `decap bench scaling`; torchrun starts as many as are measured.

``scaling_process TASK NUM_ENVS DEVICE SECONDS FILE``: the first process writes FILE.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import distributed as dist

from decap import collective
from decap.bench.machine import physical_cores
from decap.bench.training import WARM_UP, configure_torch, quiet
from decap.envs.constrained_env import ConstrainedEnv
from decap.rl.display import Stopwatch
from decap.rl.runner import Runner
from decap.runs import RunSpec, build_configs

MIN_TURNS = 4
REDUCTIONS = ("maximum", "total", "mean", "average")
GPU_ITERATIONS = 8
"""Of a turn on a GPU, which records its graphs anew."""

Turn = tuple[float, float]
"""Seconds and processor seconds per iteration."""


def main(task: str, num_envs: int, device: str, seconds: float, file: str) -> None:
  """All ways in turns, and the medians."""
  device = _own_part(device)
  dist.init_process_group("gloo" if device == "cpu" else "nccl")
  first, world = dist.get_rank() == 0, dist.get_world_size()
  together = _runner(task, num_envs // world, device)
  with collective.paused():
    alone = _runner(task, num_envs, device)
    alone_share = _share_of_reductions(alone) if first and device == "cpu" else None
  with collective.counted() as sizes:
    # Eagerly, also on a GPU: a replay calls nothing that could be counted.
    _iterate(together)
  share = _share_of_reductions(together) if device == "cpu" else None
  runners = {"alone": alone, "together": together}
  if world > 1:
    with collective.paused():
      runners |= {"apart": alone, "halves": _runner(task, num_envs // world, device)}
  turns = _take_turns(runners, seconds)
  if first:
    result = _result(turns, sizes, together, device, world)
    Path(file).write_text(
      json.dumps({**result, "share": share, "alone_share": alone_share})
    )
  # Recorded graphs hold on to NCCL, and go first.
  del together, alone, runners
  gc.collect()
  dist.destroy_process_group()


def _take_turns(runners: dict[str, Runner], seconds: float) -> dict[str, list[Turn]]:
  """Measure each way again and again until the time is up.

  Only the first process trains ``alone``. In a turn ``apart`` every process does, at the
  same time and knowing nothing of the others: what the machine can give at most. In
  ``halves`` each has its share of the environments but reduces nothing.
  """
  turns: dict[str, list[Turn]] = {name: [] for name in runners}
  end = time.monotonic() + seconds
  go_on = True
  while go_on:
    # In this order and in the other: what drifts is in all.
    for name in (*runners, *reversed(runners)):
      dist.barrier()
      turn = (0.0, 0.0)
      with contextlib.nullcontext() if name == "together" else collective.paused():
        if name != "alone" or dist.get_rank() == 0:
          turn = _turn(runners[name])
      # That of the slowest process, for which the others would wait.
      slowest = collective.maximum(torch.tensor(turn, device=_device(runners)))
      turns[name].append((float(slowest[0]), float(slowest[1])))
    enough = len(turns["together"]) >= MIN_TURNS and time.monotonic() >= end
    more = torch.tensor(float(not enough), device=_device(runners))
    go_on = bool(collective.maximum(more))
  return turns


def _device(runners: dict[str, Runner]) -> str:
  return runners["together"].device


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


def _runner(task: str, num_envs: int, device: str) -> Runner:
  env_cfg, agent_cfg = build_configs(RunSpec(task, "decap", num_envs=num_envs))
  env_cfg.num_threads = 1
  with quiet():
    runner = Runner(ConstrainedEnv(env_cfg, device), agent_cfg)
  runner.spread_episodes()
  return runner


def _iterate(runner: Runner) -> None:
  with quiet():
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

  reductions: dict[str, Any] = {
    name: timed(getattr(collective, name)) for name in REDUCTIONS
  }
  with mock.patch.multiple(collective, **reductions):
    start = time.process_time()
    for _ in range(MIN_TURNS):
      _iterate(runner)
    return spent / (time.process_time() - start)


def _turn(runner: Runner) -> Turn:
  count = GPU_ITERATIONS if runner.graphs else 1
  with runner.graphs.stream() if runner.graphs else contextlib.nullcontext():
    for _ in range(WARM_UP if runner.graphs else 0):
      _iterate(runner)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
      _iterate(runner)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
  return wall / count, cpu / count


def _result(
  turns: dict[str, list[Turn]],
  sizes: list[int],
  together: Runner,
  device: str,
  world: int,
) -> dict[str, Any]:
  # The first turns of each fill caches.
  times = {
    name: [statistics.median(values) for values in zip(*found[1:], strict=True)]
    for name, found in turns.items()
  }
  on_gpu = device != "cpu"
  return {
    "device": device,
    "turns": len(turns["together"]),
    "steps": together.env.num_envs * world * together.cfg.num_steps_per_env,
    **{f"{name}_s": wall for name, (wall, _) in times.items()},
    **{f"{name}_cpu_s": None if on_gpu else cpu for name, (_, cpu) in times.items()},
    "turns_s": {name: [wall for wall, _ in found] for name, found in turns.items()},
    "reductions": {str(size): n for size, n in sorted(Counter(sizes).items())},
  }


if __name__ == "__main__":
  main(sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4]), sys.argv[5])
