"""Runs the jobs of a sweep, several at a time, until all are done or time is up."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from decap.errors import UserError
from decap.sweep.job import Job
from decap.sweep.plan import Plan

POLL_S = 0.5

INTERRUPTED = 130
"""Exit code of a process that saved and ended after Ctrl-C."""


class Display(Protocol):
  """Shows the state of all jobs."""

  def update(self, jobs: list[Job]) -> None: ...

  def message(self, text: str) -> None: ...


class Scheduler:
  """Keeps `plan.jobs` processes at work; no failure stops the others."""

  def __init__(
    self, plan: Plan, root: Path, env: Mapping[str, str], lock: int, display: Display
  ):
    assert plan.jobs is not None
    self.jobs = [Job(run, root) for run in plan.runs]
    self.stopped = ""
    """Why the sweep ended early, if it did."""
    self._plan = plan
    self._env = env
    self._lock = lock
    self._display = display
    self._slots = _slots(plan.jobs, plan.device)
    self._started = time.monotonic()
    for job in self.jobs:
      self._settle(job)

  def work(self) -> None:
    """Start, watch and interrupt processes until nothing is left to do."""
    with self._stops_on_signals():
      while True:
        self._poll()
        self._check_time()
        if not self.stopped:
          self._fill_slots()
        self._display.update(self.jobs)
        if not any(job.running for job in self.jobs):
          return
        time.sleep(POLL_S)

  # Private methods.

  def _settle(self, job: Job) -> None:
    """Mark a job as done if nothing is left of it."""
    if job.trained() and (self._plan.evaluate is None or self._evaluated(job)):
      job.state = "done"

  def _evaluated(self, job: Job) -> bool:
    return job.evaluated(self._plan.evaluation_label(job.run.spec.task))

  def _poll(self) -> None:
    for job in self.jobs:
      if not job.running:
        continue
      code = job.poll()
      if code is None:
        continue
      self._slots.append(job.cpus)
      was, job.state = job.state, "waiting"
      if code == 0 and (job.trained() if was == "training" else self._evaluated(job)):
        self._settle(job)
      elif job.interrupted or code == INTERRUPTED:
        job.state = "stopped"
      else:
        self._fail(job, f"{was}: {job.last_line()}")

  def _fail(self, job: Job, note: str) -> None:
    job.state, job.note = "failed", note
    self._display.message(f"{job.run.name} failed ({note})")

  def _check_time(self) -> None:
    total, single = self._plan.time_limit_s, self._plan.run_time_limit_s
    if total and not self.stopped and time.monotonic() - self._started > total:
      self.stopped = "the time limit was reached"
    for job in self.jobs:
      if not job.running:
        continue
      late = single and job.state == "training" and job.seconds > single
      if late:
        job.note = "its time limit was reached"
      if late or self.stopped:
        job.interrupt()

  def _fill_slots(self) -> None:
    for job in self.jobs:
      if not self._slots:
        return
      if job.state != "waiting" or job.running:
        continue
      job.cpus = self._slots.pop()
      start = job.start_evaluation if job.trained() else job.start_training
      try:
        start(self._plan, self._env, self._lock)
      except OSError as error:  # A full disk, say, or too many processes.
        self._slots.append(job.cpus)
        self._fail(job, f"it cannot be started: {error.strerror}")

  @contextlib.contextmanager
  def _stops_on_signals(self) -> Iterator[None]:
    def stop(number: int, frame: Any) -> None:
      self.stopped = "it was interrupted"
      self._display.message("Stopping: runs save at their next iteration boundary.")

    numbers = (signal.SIGINT, signal.SIGTERM)
    old = {number: signal.signal(number, stop) for number in numbers}
    try:
      yield
    finally:
      for number, handler in old.items():
        signal.signal(number, handler)


@contextlib.contextmanager
def locked(root: Path) -> Iterator[int]:
  """Keep other sweeps out of a folder; runs inherit the lock and outlast us with it."""
  root.mkdir(parents=True, exist_ok=True)
  with (root / ".lock").open("w") as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
      raise UserError(
        f"Another sweep, or a run that one left behind, is at work in {root}."
      ) from None
    yield file.fileno()


def _slots(count: int, device: str) -> list[set[int]]:
  """Cores of each job: on a CPU they divide them, beside a GPU they share them."""
  if device != "cpu" or not hasattr(os, "sched_getaffinity"):
    return [set() for _ in range(count)]
  cpus = sorted(os.sched_getaffinity(0))
  if count >= len(cpus):
    return [{cpus[i % len(cpus)]} for i in range(count)]
  return [set(cpus[i::count]) for i in range(count)]
