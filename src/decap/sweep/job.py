"""One run of a sweep: what of it is on the disk, and which command comes next.

The disk is all that counts: a sweep that was ended, on this machine or on a cluster, goes
on from what it finds.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from decap.errors import UserError
from decap.evaluation.protocol import file_names
from decap.rl import checkpoint_files
from decap.rl.display import Status
from decap.rl.status import read_status
from decap.runs import RUN_FILE, RunSpec, exported, load_spec
from decap.sweep.plan import Plan, PlannedRun
from decap.sweep.sections import tokens
from decap.tasks import folder_name, is_own

State = Literal["waiting", "training", "evaluating", "done", "failed", "stopped"]


@dataclass
class Job:
  """A planned run, and where it stands."""

  run: PlannedRun
  root: Path
  """The sweep's folder."""
  state: State = "waiting"
  note: str = ""
  """Why it failed or stopped."""

  @property
  def log_file(self) -> Path:
    return self.root / "logs" / f"{self.run.name}.log"

  def folder(self) -> Path | None:
    """The run's folder: the one with its description that has come furthest."""
    wanted = _identity(self.run.spec)
    files = (self.root / folder_name(self.run.spec.task)).glob(f"*/{RUN_FILE}")
    found = [f.parents[1] for f in files if _described(f.parents[1]) == wanted]
    return max(found, key=lambda f: (_latest_iteration(f), f), default=None)

  def done_iterations(self) -> int:
    """Iterations that are safe in a checkpoint."""
    folder = self.folder()
    return _latest_iteration(folder) if folder else 0

  def trained(self) -> bool:
    """Whether the run has come to its end, and to the bundle of it."""
    folder = self.folder()
    come = min(_latest_iteration(folder), exported(folder) or 0) if folder else 0
    return come >= self.run.iterations

  def evaluated(self, plan: Plan) -> bool:
    """Whether the newest checkpoint has metrics of the plan's protocol, or a larger,
    against the limits that it names."""
    folder, task = self.folder(), self.run.spec.task
    if folder is None or not (found := checkpoint_files.list_checkpoints(folder)):
      return False
    metrics = folder / file_names(plan.evaluation_label(task))[0]
    try:
      data = json.loads(metrics.read_text())
      newer = metrics.stat().st_mtime >= found[-1][1].stat().st_mtime
      alike = plan.protocol(task).is_within(data["protocol"])
      return newer and alike and _counts(plan.counted, data)
    except (OSError, ValueError, KeyError, TypeError):
      return False  # What cannot be read is measured again.

  def next_stage(self, plan: Plan, device: str = "") -> tuple[State, list[str]]:
    """What is left of the run: the state that it is in then, and arguments of `decap`.

    `device` is one of the plan's; none is its first.
    """
    device = device or plan.devices[0]
    if not self.trained():
      return "training", train_command(self, plan, device)
    if plan.evaluate is False or self.evaluated(plan):
      return "done", []
    command = ["evaluate", str(self.folder()), "--device", device]
    # A folder does not make anyone import its task.
    own = self.run.spec.task if is_own(self.run.spec.task) else None
    options = {**plan.evaluate, "task": plan.evaluate.get("task") or own}
    return "evaluating", [*command, *tokens(options)]

  def progress(self) -> Status | None:
    """Where the run says that it stands."""
    return read_status(self.folder())

  def last_line(self) -> str:
    """The last that it printed: why it failed, where it did."""
    try:
      lines = self.log_file.read_text(errors="replace").strip().splitlines()
    except OSError:
      return ""
    return lines[-1].strip() if lines else ""


def train_command(job: Job, plan: Plan, device: str) -> list[str]:
  """Arguments of `decap` that start a run or continue it."""
  spec, folder = job.run.spec, job.folder()
  options = {
    "device": device,
    "backend": plan.backend,
    "iterations": spec.iterations,
    "gpus": plan.gpus if plan.gpus > 1 else None,
  }
  if folder is not None and _latest_iteration(folder):
    options["resume"], overrides = folder, ()
    options["task"] = spec.task if is_own(spec.task) else None
    # The file may have become shorter since.
    options["iterations"] = max(job.run.iterations, _latest_iteration(folder))
  else:
    names = ("task", "method", "seed", "num_envs")
    options |= {name.replace("_", "-"): getattr(spec, name) for name in names}
    options |= {"log-root": job.root, "run-name": job.run.label or None}
    options |= {"blind": spec.blind, "limits": job.run.limits_file}
    options["init-from"], overrides = spec.init_from, spec.overrides
  return ["train", *tokens(options), *overrides]


def _counts(limits: dict[str, Any], metrics: dict[str, Any]) -> bool:
  """Whether metrics are against these limits; those that are not named are the task's."""
  there = metrics["layout"]["limits"] if limits else {}
  return all(
    there[name] == ({**there[name], **limit} if isinstance(limit, dict) else limit)
    for name, limit in limits.items()
  )


def _latest_iteration(folder: Path) -> int:
  checkpoints = checkpoint_files.list_checkpoints(folder)
  return checkpoints[-1][0] if checkpoints else 0


def _identity(spec: RunSpec) -> RunSpec:
  """What makes it this run: neither its length nor where the weights lay it began with,
  whose checksum is part of it."""
  return dataclasses.replace(spec, iterations=None, init_from=None)


@functools.lru_cache(maxsize=4096)
def _described(folder: Path) -> RunSpec | None:
  """Which run a folder holds, if any."""
  try:
    return _identity(load_spec(folder))
  except UserError:
    return None
