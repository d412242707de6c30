"""Threads of C MuJoCo, one to a core."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import mjbatch
import mujoco

_THREADS = Path("/proc/self/task")


def start_batch(model: mujoco.MjModel, num_envs: int, threads: int) -> mjbatch.Batch:
  """A batch whose threads keep to one core each, where they take all cores.

  Left alone, two often wake up on the same core and share it for milliseconds: one call
  in five then takes twice as long. There are no more threads than environments.
  """
  before = _thread_ids()
  batch = mjbatch.Batch(model, num_envs, threads)
  started = sorted(_thread_ids() - before)
  if len(started) == threads == available_cpus():
    for thread, core in zip(started, sorted(os.sched_getaffinity(0)), strict=True):
      with suppress(OSError):
        os.sched_setaffinity(thread, {core})
  return batch


def available_cpus() -> int:
  """Cores that this process may use."""
  if hasattr(os, "sched_getaffinity"):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def _thread_ids() -> set[int]:
  """This process's threads, on Linux."""
  return {int(path.name) for path in _THREADS.glob("*")}
