"""``decap sweep``: train, evaluate and compare a list of runs from one file."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional

from decap.cli import processes
from decap.errors import UserError
from decap.files import check_writable
from decap.options import machine
from decap.options.args import Args
from decap.options.types import Count, Flag, OutputFolder, shown
from decap.rl.display import make_console, make_display
from decap.runs import build_configs
from decap.sweep import cluster, display
from decap.sweep.job import Job
from decap.sweep.mps import shared_gpu
from decap.sweep.plan import Plan, read_plan
from decap.sweep.scheduler import LocalScheduler, Scheduler, locked
from decap.tasks import folder_name, is_own

FAILED, UNFINISHED = 1, 3
"""Exit codes: some run failed; Ctrl-C came with runs left to do."""

GPU_JOBS = 2
"""Runs at a time on each GPU unless the file says otherwise."""

LEAST_JOBS = 8
"""As many runs at a time may be asked for on any device, and one per core on larger
machines."""


@dataclass(kw_only=True)
class SweepArgs(Args):
  """The file says what; options say how, and win over the file. Start it again to go on:
  finished runs are skipped, interrupted ones continue. Exit code 1: a run failed; 3: it
  ended with runs left to do."""

  file: Positional[Annotated[str, shown("FILE")]]
  """YAML file with the runs; see docs/sweep.md."""
  jobs: Count = None
  """Runs at a time: on each GPU (default: 2), the CPU (1) or the cluster (all)."""
  cluster: Annotated[Literal["slurm"] | None, shown("slurm")] = None
  """Every run as a job of this cluster."""
  device: Annotated[str | None, shown("NAME[,NAME ...]")] = None
  """auto (all GPUs), cpu, cuda (the first), or GPUs such as cuda:0,cuda:2."""
  output: OutputFolder = None
  """The sweep's folder (default: runs/<FILE's name>)."""
  no_evaluate: Flag = False
  """Train only."""
  dry_run: Flag = False
  """Check all configs, print plan and time."""

  def run(self) -> int:
    """Check the plan, work through it, then compare what was evaluated."""
    plan = _plan(self)
    root = Path(self.output or Path("runs") / Path(self.file).stem)
    check_writable(root)
    machine.check_renderer()
    _check_measurable(plan)
    if self.dry_run:
      return _dry_run(plan, root)
    boards = make_display(display.PlainBoard, display.LiveBoard)
    with locked(root) as lock, boards as view, contextlib.ExitStack() as gpu:
      if plan.slurm:  # The lock is about who looks.
        scheduler: Scheduler = cluster.ClusterScheduler(plan, root, view)
      else:
        cluster.refuse_if_at_work(root)
        env = dict(os.environ)
        if not plan.on_cpu and plan.jobs != 1:
          variables, note = gpu.enter_context(shared_gpu(plan.devices[0]))
          env |= variables
          view.message(note)
        scheduler = LocalScheduler(plan, root, env, lock, view)
      for line in display.plan_lines(plan, scheduler.jobs):
        view.message(line)
      scheduler.work()
    return _conclude(plan, root, scheduler)


def _plan(options: SweepArgs) -> Plan:
  """What the file says, then what the command line does; checked for its place."""
  plan = read_plan(options.file)
  if options.device is not None:
    plan.devices = (options.device,)
  if options.no_evaluate:
    plan.evaluate = False
  plan.slurm = options.cluster is not None
  plan.settle(*(_there if plan.slurm else _here)(plan, options.jobs))
  device = plan.devices[0]
  machine.check_backend(plan.backend, device)
  for run in plan.runs:
    if not plan.slurm:
      machine.check_num_envs(run.spec.num_envs, device)
    try:
      processes.check_share(run.spec.num_envs, plan.gpus)
    except UserError as error:
      raise UserError(f"{run.name}: {error}") from error
  # Nodes have memory of their own.
  if plan.evaluate is not False and not (plan.slurm and plan.on_cpu):
    plan.evaluation.settle(device)
  return plan


def _here(plan: Plan, given: int | None) -> tuple[tuple[str, ...], int]:
  """Devices of this machine, and how many runs at a time on each."""
  devices = machine.check_devices(",".join(plan.devices))
  jobs = given or plan.jobs or (1 if devices == ("cpu",) else GPU_JOBS)
  most = max(LEAST_JOBS, os.cpu_count() or 1)
  if jobs > most:
    raise UserError(
      f"{jobs} runs at a time are too many for this machine: {most} at most."
    )
  return devices, jobs


def _there(plan: Plan, given: int | None) -> tuple[tuple[str, ...], int]:
  """Kind of device that jobs of a cluster ask for, and how many of them at a time."""
  machine.check_installed("submitit", "--cluster slurm")
  cluster.check_slurm()
  asked, runs = ",".join(plan.devices), len(plan.runs)
  if asked not in ("auto", "cpu", "cuda"):
    raise UserError(
      f"On a cluster the device is auto, cpu or cuda, not '{asked}': every run has its "
      "own."
    )
  device = "cpu" if asked == "cpu" else "cuda"
  return (device,), min(given or plan.resources.parallel or runs, runs)


def _check_measurable(plan: Plan) -> None:
  """Ours all can be evaluated; what a user's lacks is told before it is trained."""
  if plan.evaluate is False:
    return
  for task in dict.fromkeys(plan.protocol(run.spec.task).task for run in plan.runs):
    if is_own(task):
      from decap.evaluation.environment import measured_cfg

      measured_cfg(task)


def _dry_run(plan: Plan, root: Path) -> int:
  """Build every config, so that a wrong option shows now and not after hours."""
  print("Checking the configs …", flush=True)
  for run in plan.runs:
    try:
      build_configs(run.spec)
    except UserError as error:
      raise UserError(f"{run.name}: {error}") from error
  print("\n".join(display.plan_lines(plan, [Job(run, root) for run in plan.runs])))
  return 0


def _conclude(plan: Plan, root: Path, scheduler: Scheduler) -> int:
  jobs = scheduler.jobs
  make_console().print(display.table(jobs))
  for job in jobs:
    if job.note and job.state in ("failed", "stopped"):
      print(f"{job.run.name} {job.state}: {job.note}")
  reason = " because it was interrupted" if scheduler.stopped else ""
  print(f"Ended{reason}: {display.counts(jobs)}. Logs: {root / 'logs'}")
  compared = _compare(plan, root, jobs) if plan.evaluate is not False else 0
  states = {job.state for job in jobs}
  if "failed" in states or compared:
    return FAILED
  return 0 if states == {"done"} else UNFINISHED


def _compare(plan: Plan, root: Path, jobs: list[Job]) -> int:
  """Gather the results of what is evaluated, task by task, in one table each."""
  failed = 0
  for task in dict.fromkeys(job.run.spec.task for job in jobs):
    done = [job for job in jobs if job.run.spec.task == task and job.state == "done"]
    if not done:
      continue
    folders = [str(job.folder()) for job in done]
    output = root / f"comparison-{folder_name(task)}.md"
    command = [sys.executable, "-m", "decap", "compare", *folders]
    command += ["--label", plan.evaluation_label(task), "--format", "markdown"]
    code = subprocess.call([*command, "--output", str(output)])
    if code == 0:
      print(output.read_text("utf-8"))
    failed |= code
  return failed
