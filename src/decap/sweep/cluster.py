"""The runs of a sweep as jobs of a SLURM cluster, through submitit.

A job trains a run and evaluates it. It looks at the disk to see what is left, so that a
job that starts again, for whatever reason, goes on where the last checkpoint is.

What SLURM knows of jobs is asked for by its own commands. Not by sacct, as submitit does:
clusters without an accounting database have none.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decap.errors import UserError
from decap.files import write_text
from decap.sweep.display import Display
from decap.sweep.job import Job
from decap.sweep.plan import Plan
from decap.sweep.process import INTERRUPTED, Process
from decap.sweep.scheduler import Scheduler
from decap.sweep.sections import seconds

JOBS_FILE = "cluster.json"
"""In the sweep's folder: run → its last job, so that a later sweep finds it."""

LOGS = "logs/slurm"

ANSWER_S = 60.0
"""Time that a command of SLURM has; a controller may be busy."""

RESTARTS = 3
"""How often a run is started again without having come further."""


WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"}
WAITING |= {"SPECIAL_EXIT", "RESV_DEL_HOLD", "SUSPENDED"}
WORKING = {"RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED"}
ENDED_BY_CLUSTER = {"PREEMPTED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "DEADLINE"}
"""A run that ends like this can go on; one that fails by itself fails again."""


class Interruption(RuntimeError):
  """Something from outside ended a run; it can go on."""


@dataclass
class Work:
  """What one job does; submitit pickles it, and calls it on a node."""

  job: Job
  plan: Plan

  def __call__(self) -> None:
    """Train and evaluate, each in a process of its own."""
    while (stage := self.job.next_stage(self.plan))[0] != "done":
      state, arguments = stage
      self._process = Process(arguments, self.job.log_file, os.environ, tied=True)
      while (code := self._process.poll()) is None:
        time.sleep(0.2)
      if code < 0 or code == INTERRUPTED:
        raise Interruption(f"{state} ended with code {code}")
      if code or self.job.next_stage(self.plan)[0] == state:
        raise RuntimeError(f"{state}: {self.job.last_line()}")

  def checkpoint(self) -> Any:
    """Called before the job's end, by time or by others: save, then queue again."""
    from submitit.helpers import DelayedSubmission

    process: Process | None = getattr(self, "_process", None)
    # SLURM may say it twice; the second time waits as well.
    if process:
      process.interrupt()
      end = time.monotonic() + seconds(self.plan.resources.grace)
      while process.poll() is None and time.monotonic() < end:
        time.sleep(0.2)
    return DelayedSubmission(Work(self.job, self.plan))


class ClusterScheduler(Scheduler):
  """Submits what is left, and watches; ending it leaves the jobs alone."""

  poll_s = 10.0
  """Between two questions; many ask the same controller."""

  def __init__(self, plan: Plan, root: Path, display: Display):
    import submitit

    super().__init__(plan, root.resolve(), display)
    self._ids = _read_jobs(self._root)
    self._ended: dict[str, list[int]] = {}
    """Run → how far it had come each time that the cluster ended it."""
    # However often time is up: the run decides when it is done.
    self._executor = submitit.SlurmExecutor(self._root / LOGS, max_num_timeout=10**6)
    parameters = plan.resources.submitit(plan.devices[0], plan.jobs or 1)
    self._executor.update_parameters(**parameters)

  @property
  def on_signal(self) -> str:
    ids = sorted({identity.split("_")[0] for identity in self._ids.values()})
    return (
      "Looked away: jobs go on, and the same command looks again. "
      f"This ends them: scancel {' '.join(ids)}"
    )

  def step(self) -> bool:
    if self.stopped:
      return False
    states = slurm_states()
    if states is not None:
      for job in self.jobs:
        identity = self._ids.get(job.run.name)
        if identity and job.state not in ("done", "failed", "stopped"):
          self._look(job, identity, states.get(identity, ""))
      waiting = [job for job in self.jobs if job.state == "waiting"]
      self._submit([job for job in waiting if job.run.name not in self._ids])
    self._display.update(self.jobs)
    return any(job.state in ("waiting", "training", "evaluating") for job in self.jobs)

  # Private methods.

  def _look(self, job: Job, identity: str, state: str) -> None:
    """Take over what SLURM, and then the disk, says of a job."""
    if state in WORKING:
      stage = job.next_stage(self._plan)[0]
      job.state = "evaluating" if stage == "done" else stage
      return
    job.state = "waiting"
    if state in WAITING:
      return
    self._settle(job)
    if job.state == "done":
      return
    del self._ids[job.run.name]
    self._remember()  # A later sweep starts anew what is told to have failed here.
    started, error = _remains(self._root, identity)
    if state == "CANCELLED":
      job.state, job.note = "stopped", f"job {identity} was cancelled"
    elif state in ENDED_BY_CLUSTER or "Interruption" in error:
      self._restart(job, identity, state)
    elif state and not started and not error:
      _slurm("scancel", "--quiet", *self._ids.values())
      raise UserError(
        f"Job {identity} ended and left nothing in {self._root / LOGS}: the nodes of "
        "the cluster do not see this folder; --output must be on a disk that they share."
      )
    elif error:
      self._fail(job, f"job {identity}: {error.splitlines()[-1]}")
    else:
      self._restart(job, identity, state)

  def _restart(self, job: Job, identity: str, state: str) -> None:
    """Leave the job to be submitted again, unless this leads nowhere."""
    ends = self._ended.setdefault(job.run.name, [])
    ends.append(job.done_iterations())
    how = f"job {identity} was ended ({state.lower() or 'killed'})"
    if (tries := ends.count(ends[-1])) > RESTARTS:
      self._fail(job, f"{how} {tries} times without coming further")
    else:
      self._display.message(
        f"{job.run.name}: {how}; going on from iteration {ends[-1]}."
      )

  def _submit(self, jobs: Sequence[Job]) -> None:
    if not jobs:
      return
    from submitit.core.utils import FailedJobError

    try:
      with self._executor.batch():
        submitted = [self._executor.submit(Work(job, self._plan)) for job in jobs]
      ids = [handle.job_id for handle in submitted]
    except FailedJobError as error:
      reason = [line for line in str(error).splitlines() if "error" in line.lower()]
      raise UserError(
        f"SLURM refuses the jobs: {(reason or [str(error)])[-1]}"
      ) from None
    self._ids.update(zip((job.run.name for job in jobs), ids, strict=True))
    self._remember()
    what = f"jobs {ids[0]} to {ids[-1]}" if len(ids) > 1 else f"job {ids[0]}"
    self._display.message(f"Submitted {what}.")

  def _remember(self) -> None:
    text = json.dumps({"jobs": self._ids}, indent=2)
    write_text(self._root / JOBS_FILE, text + "\n")


def refuse_if_at_work(root: Path) -> None:
  """This machine must not train what a cluster is at work on."""
  ids = set(_read_jobs(root).values())
  if not ids:
    return
  try:
    states = slurm_states() or {}
  except OSError:  # No SLURM here: nobody to ask.
    return
  active = [i for i in ids if states.get(i) in WAITING | WORKING]
  if active:
    raise UserError(
      f"A cluster is at work in {root} (job {min(active)}); use --cluster slurm to look "
      "at it, or scancel to end it."
    )


def _remains(root: Path, identity: str) -> tuple[bool, str]:
  """Whether a job began, and the traceback that it left if it could do that."""
  from submitit.core.utils import JobPaths, pickle_load

  paths = JobPaths(root / LOGS, identity, 0)
  try:
    kind, value = pickle_load(paths.result_pickle)
  except (OSError, EOFError):
    return paths.stdout.exists(), ""
  return True, str(value).strip() if kind == "error" else "it ended early"


def _read_jobs(root: Path) -> dict[str, str]:
  try:
    return dict(json.loads((root / JOBS_FILE).read_text())["jobs"])
  except (OSError, ValueError, KeyError, TypeError):
    return {}


def check_slurm() -> None:
  """Refuse to go on without a SLURM that answers."""
  if shutil.which("sbatch") is None:
    raise UserError(
      "--cluster slurm needs SLURM's commands, and there is no 'sbatch' here; start it "
      "on a login node, or leave the option out to train on this machine."
    )
  done = _slurm("sinfo", "--noheader")
  if done.returncode:
    said = (done.stderr.strip() or "it ended with an error.").splitlines()
    raise UserError(f"SLURM does not answer: {said[0]}")


def slurm_states() -> dict[str, str] | None:
  """State of every job of this user that SLURM remembers; None if it cannot be asked.

  Finished ones are remembered for some minutes. Array jobs are named ``12_3``.
  """
  user = pwd.getpwuid(os.getuid()).pw_name
  which = ("--user", user, "--states", "all", "--array", "--noheader")
  done = _slurm("squeue", *which, "--format", "%i %T")
  if done.returncode:
    return None
  pairs = (line.split() for line in done.stdout.splitlines())
  return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _slurm(*command: str) -> subprocess.CompletedProcess[str]:
  """What a command says; one that hangs has failed."""
  try:
    return subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S)
  except subprocess.TimeoutExpired:
    return subprocess.CompletedProcess(command, 1, "", "it takes too long.")
