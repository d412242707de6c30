"""One run of a sweep: its processes, its log file, and where it stands."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from decap.errors import UserError
from decap.rl import checkpoint_files
from decap.runs import RUN_FILE, load_spec
from decap.sweep.plan import Plan, PlannedRun

State = Literal["waiting", "training", "evaluating", "done", "failed", "stopped"]

GRACE_S = 120.0
"""Time that an interrupted process has to save before it is told again."""

_PROGRESS = re.compile(r"\s*(\d+)/(\d+)  (.*)")
_TAIL_BYTES = 8192


@dataclass(frozen=True)
class RunProgress:
  """The last line that a run printed about an iteration."""

  iteration: int
  total: int
  details: tuple[str, ...]
  """Its other parts, such as ``"reward 3.1"`` or ``"episode 200 steps"``."""

  @property
  def steps_per_s(self) -> float | None:
    for part in self.details:
      if part.endswith(" steps/s"):
        return float(part.split()[0])
    return None

  def find(self, name: str) -> str:
    """Text after a name, or nothing."""
    for part in self.details:
      if part.startswith(name + " "):
        return part[len(name) + 1 :]
    return ""


def parse_progress(text: str) -> RunProgress | None:
  """The last line of `decap train` about an iteration in some of its output."""
  for line in reversed(text.splitlines()):
    if match := _PROGRESS.fullmatch(line):
      details = tuple(re.split(r" {2,}", match[3].strip()))
      return RunProgress(int(match[1]), int(match[2]), details)
  return None


@dataclass
class Job:
  """A planned run and the process that is at work on it."""

  run: PlannedRun
  root: Path
  """The sweep's folder."""
  state: State = "waiting"
  note: str = ""
  """Why it failed or stopped."""
  cpus: set[int] = field(default_factory=set)
  """Cores that its processes may use; empty is all."""
  _process: subprocess.Popen | None = None
  _started: float = 0.0
  _interrupted: float | None = None
  _told: int = 0

  # Properties.

  @property
  def log_file(self) -> Path:
    return self.root / "logs" / f"{self.run.name}.log"

  @property
  def running(self) -> bool:
    return self._process is not None

  @property
  def interrupted(self) -> bool:
    """Whether its present, or last, process was asked to end."""
    return self._interrupted is not None

  @property
  def seconds(self) -> float:
    """Since its present process started."""
    return time.monotonic() - self._started if self.running else 0.0

  # Methods.

  def folder(self) -> Path | None:
    """The run's folder: the one with its description that has come furthest."""
    wanted = dataclasses.replace(self.run.spec, iterations=None)
    found: list[tuple[int, Path]] = []
    for params in (self.root / self.run.spec.task).glob(f"*/{RUN_FILE}"):
      folder = params.parent.parent
      try:
        spec = load_spec(folder)
      except UserError:
        continue
      if dataclasses.replace(spec, iterations=None) == wanted:
        found.append((_latest_iteration(folder), folder))
    return max(found, default=(0, None))[1]

  def done_iterations(self) -> int:
    """Iterations that are safe in a checkpoint."""
    folder = self.folder()
    return _latest_iteration(folder) if folder else 0

  def trained(self) -> bool:
    return self.done_iterations() >= self.run.iterations

  def evaluated(self, label: str = "") -> bool:
    """Whether the newest checkpoint has metrics of that label."""
    folder = self.folder()
    if folder is None:
      return False
    try:
      checkpoint = checkpoint_files.resolve(folder)
    except UserError:
      return False
    metrics = folder / f"metrics{'-' if label else ''}{label}.json"
    return metrics.exists() and metrics.stat().st_mtime >= checkpoint.stat().st_mtime

  def start_training(self, plan: Plan, env: Mapping[str, str], lock: int) -> None:
    """Start the run, or go on where its last checkpoint is."""
    self._start(train_command(self, plan), env, lock)
    self.state = "training"

  def start_evaluation(self, plan: Plan, env: Mapping[str, str], lock: int) -> None:
    folder = self.folder()
    assert folder is not None and plan.evaluate is not None
    command = ["evaluate", str(folder), "--device", plan.device, *plan.evaluate]
    self._start(command, env, lock)
    self.state = "evaluating"

  def poll(self) -> int | None:
    """Exit code of the process if it has just ended, and forget it then."""
    assert self._process is not None
    code = self._process.poll()
    if code is not None:
      self._process = None
    return code

  def interrupt(self) -> None:
    """Ask the process to save and end; insist when it takes too long."""
    assert self._process is not None
    now = time.monotonic()
    if self._interrupted is None:
      self._interrupted, self._told = now, 1
      self._process.send_signal(signal.SIGINT)
    elif self._told == 1 and now - self._interrupted > GRACE_S:
      self._told = 2
      self._process.send_signal(signal.SIGINT)
    elif now - self._interrupted > 2 * GRACE_S:
      self._process.kill()

  def progress(self) -> RunProgress | None:
    """Where its log says that it stands."""
    return parse_progress(self._tail())

  def last_line(self) -> str:
    lines = [line for line in self._tail().splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""

  # Private methods.

  def _start(self, arguments: list[str], env: Mapping[str, str], lock: int) -> None:
    self.log_file.parent.mkdir(parents=True, exist_ok=True)
    with self.log_file.open("a") as log:
      print(f"$ decap {' '.join(arguments)}", file=log, flush=True)
      self._process = subprocess.Popen(
        [sys.executable, "-m", "decap.cli", *arguments],
        stdout=log,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env={**env, "PYTHONUNBUFFERED": "1"},
        # Ctrl-C is for the sweep, which then interrupts its runs once.
        start_new_session=True,
        # The lock lasts as long as anybody works in the sweep's folder.
        pass_fds=(lock,),
      )
    if self.cpus and hasattr(os, "sched_setaffinity"):
      with contextlib.suppress(ProcessLookupError):
        os.sched_setaffinity(self._process.pid, self.cpus)
    self._started = time.monotonic()
    self._interrupted = None

  def _tail(self) -> str:
    try:
      with self.log_file.open("rb") as log:
        log.seek(0, os.SEEK_END)
        log.seek(max(0, log.tell() - _TAIL_BYTES))
        return log.read().decode(errors="replace")
    except OSError:
      return ""


def train_command(job: Job, plan: Plan) -> list[str]:
  """Arguments of `decap` that start a run or continue it."""
  spec, folder = job.run.spec, job.folder()
  command = ["train", "--device", plan.device, "--backend", plan.backend]
  command += ["--iterations", str(spec.iterations)]
  if folder is not None and _latest_iteration(folder):
    return [*command, "--resume", str(folder)]
  command += ["--task", spec.task, "--method", spec.method, "--seed", str(spec.seed)]
  command += ["--num-envs", str(spec.num_envs), "--log-root", str(job.root)]
  if job.run.label:
    command += ["--run-name", job.run.label]
  if spec.blind:
    command += ["--blind"]
  if job.run.limits_file:
    command += ["--limits", str(job.run.limits_file)]
  return [*command, *spec.overrides]


def _latest_iteration(folder: Path) -> int:
  checkpoints = checkpoint_files.list_checkpoints(folder)
  return checkpoints[-1][0] if checkpoints else 0
