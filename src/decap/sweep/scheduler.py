"""Works through the jobs of a sweep until all are done or something ends it."""

from __future__ import annotations

import abc
import contextlib
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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


class Slot(NamedTuple):
  """Room for one process."""

  device: str
  cpus: frozenset[int] = frozenset()
  """Cores that it may use; empty is all."""


class LocalScheduler(Scheduler):
  """Keeps `plan.jobs` processes at work on each of this machine's devices."""

  def __init__(
    self, plan: Plan, root: Path, env: Mapping[str, str], lock: int, display: Display
  ):
    super().__init__(plan, root, display)
    assert plan.jobs is not None
    self._env = env
    self._lock = lock
    self._free = _slots(plan.jobs, plan.devices)
    self._places: dict[str, Slot] = {}
    """Of runs at work, and where others were last."""
    self._processes: dict[str, Process] = {}
    self._failures: Counter[str] = Counter()
    """Of each device, since something last went well there."""

  def step(self) -> bool:
    for job in self.jobs:
      if process := self._processes.get(job.run.name):
        self._watch(job, process)
      if job.state == "waiting" and not self.stopped and (slot := self._slot(job)):
        self._start(job, slot)
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
    slot = self._places[job.run.name]
    self._free.append(slot)
    job.state = "waiting"
    if code == 0 and job.next_stage(self._plan)[0] != was:
      self._failures[slot.device] = 0
      self._settle(job)
    elif process.told or code == INTERRUPTED:
      job.state = "stopped"
    else:
      how = f"killed by signal {-code}" if code < 0 else job.last_line()
      self._fail(job, f"{was}: {how}")
      known = self._broken()
      self._failures[slot.device] += 1
      for device in self._broken() - known:
        count = self._failures[device]
        self._display.message(f"{device} gets no more runs: {count} failed in a row.")

  def _broken(self) -> set[str]:
    """Devices on which every run would fail while others are busy with theirs.

    Under MPS one run's error ends all on its device, so that it takes one more to tell.
    """
    assert self._plan.jobs is not None
    broken = {d for d, count in self._failures.items() if count > self._plan.jobs}
    return broken if len(broken) < len(self._plan.devices) else set()

  def _slot(self, job: Job) -> Slot | None:
    """Where a run goes on: in its own slot, or on the device with the fewest runs."""
    broken, own = self._broken(), self._places.get(job.run.name)
    free = Counter(slot.device for slot in self._free)
    usable = [slot for slot in self._free if slot.device not in broken]
    return max(usable, key=lambda s: (s == own, free[s.device]), default=None)

  def _start(self, job: Job, slot: Slot) -> None:
    state, arguments = job.next_stage(self._plan, slot.device)
    try:
      self._processes[job.run.name] = Process(
        arguments, job.log_file, self._env, slot.cpus, self._lock
      )
    except OSError as error:  # A full disk, say, or too many processes.
      self._fail(job, f"it cannot be started: {error.strerror}")
      return
    self._free.remove(slot)
    self._places[job.run.name], job.state = slot, state


def locked(root: Path) -> contextlib.AbstractContextManager[int]:
  """Keep other sweeps out of a folder; runs inherit the lock and outlast us with it."""
  root.mkdir(parents=True, exist_ok=True)
  taken = f"Another sweep, or a run that one left behind, is at work in {root}."
  return one_writer(root, taken)


def _slots(count: int, devices: Sequence[str]) -> list[Slot]:
  """So many on each device: on a CPU they divide its cores, beside GPUs they share."""
  if tuple(devices) != ("cpu",) or not hasattr(os, "sched_getaffinity"):
    return [Slot(device) for device in devices for _ in range(count)]
  cpus = sorted(os.sched_getaffinity(0))
  shares = (cpus[i::count] or {cpus[i % len(cpus)]} for i in range(count))
  return [Slot("cpu", frozenset(share)) for share in shares]
