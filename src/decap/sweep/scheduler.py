"""Works through the jobs of a sweep until all are done or something ends it."""

from __future__ import annotations

import abc
import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from decap.lock import one_writer
from decap.rl.interrupts import on_interrupt
from decap.sweep.display import Display
from decap.sweep.job import Job
from decap.sweep.plan import Plan
from decap.sweep.process import INTERRUPTED, Process


class Scheduler(abc.ABC):
  """What sweeps have in common, wherever their jobs run; no failure stops the others.

  Subclasses start jobs and notice their ends; a job is done when the disk says so.
  """

  poll_s = 0.5

  def __init__(self, plan: Plan, root: Path, display: Display):
    self.jobs = [Job(run, root) for run in plan.runs]
    self.stopped = False
    """Whether it was interrupted."""
    self._plan = plan
    self._root = root
    self._display = display
    for job in self.jobs:
      self._settle(job)

  def work(self) -> None:
    """Start, watch and interrupt jobs until nothing is left to do."""

    def stop(*_: Any) -> None:
      self.stopped = True
      self._display.message(self.on_signal)

    with on_interrupt(stop):
      while self.step():
        time.sleep(self.poll_s)

  @property
  def on_signal(self) -> str:
    """What Ctrl-C does, said when it is pressed."""
    return "Stopping: runs save at their next iteration boundary."

  @abc.abstractmethod
  def step(self) -> bool:
    """Look at all jobs once; returns whether some are still at work."""

  # For subclasses.

  def _settle(self, job: Job) -> None:
    """Mark a job as done if nothing is left of it."""
    if job.next_stage(self._plan)[0] == "done":
      job.state = "done"

  def _fail(self, job: Job, note: str) -> None:
    job.state, job.note = "failed", note
    self._display.message(f"{job.run.name} failed ({note})")


class LocalScheduler(Scheduler):
  """Keeps `plan.jobs` processes at work on this machine."""

  def __init__(
    self, plan: Plan, root: Path, env: Mapping[str, str], lock: int, display: Display
  ):
    super().__init__(plan, root, display)
    assert plan.jobs is not None
    self._env = env
    self._lock = lock
    self._slots = _slots(plan.jobs, plan.device)
    self._processes: dict[str, Process] = {}

  def step(self) -> bool:
    for job in self.jobs:
      if process := self._processes.get(job.run.name):
        self._watch(job, process)
      if job.state == "waiting" and self._slots and not self.stopped:
        self._start(job)
    self._display.update(self.jobs)
    return bool(self._processes)

  # Private methods.

  def _watch(self, job: Job, process: Process) -> None:
    code, was = process.poll(), job.state
    if code is None:
      if self.stopped:
        process.interrupt()
      return
    del self._processes[job.run.name]
    self._slots.append(process.cpus)
    job.state = "waiting"
    if code == 0 and job.next_stage(self._plan)[0] != was:
      self._settle(job)
    elif process.told or code == INTERRUPTED:
      job.state = "stopped"
    else:
      how = f"killed by signal {-code}" if code < 0 else job.last_line()
      self._fail(job, f"{was}: {how}")

  def _start(self, job: Job) -> None:
    state, arguments = job.next_stage(self._plan)
    cpus = self._slots.pop()
    try:
      self._processes[job.run.name] = Process(
        arguments, job.log_file, self._env, cpus, self._lock
      )
      job.state = state
    except OSError as error:  # A full disk, say, or too many processes.
      self._slots.append(cpus)
      self._fail(job, f"it cannot be started: {error.strerror}")


def locked(root: Path) -> contextlib.AbstractContextManager[int]:
  """Keep other sweeps out of a folder; runs inherit the lock and outlast us with it."""
  root.mkdir(parents=True, exist_ok=True)
  taken = f"Another sweep, or a run that one left behind, is at work in {root}."
  return one_writer(root, taken)


def _slots(count: int, device: str) -> list[frozenset[int]]:
  """Cores of each job: on a CPU they divide them, beside a GPU they share them."""
  if device != "cpu" or not hasattr(os, "sched_getaffinity"):
    return [frozenset() for _ in range(count)]
  cpus = sorted(os.sched_getaffinity(0))
  return [frozenset(cpus[i::count] or {cpus[i % len(cpus)]}) for i in range(count)]
