"""``decap sweep``: train, evaluate and compare a list of runs from one file."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from decap.cli import checks
from decap.errors import UserError
from decap.files import check_writable
from decap.options import machine
from decap.options.args import Args
from decap.options.types import Count, Flag, OutputFolder, shown
from decap.rl.display import make_console, make_display
from decap.sweep import cluster, display
from decap.sweep import plan as plans
from decap.sweep.job import Job
from decap.sweep.mps import shared_gpu
from decap.sweep.plan import Plan
from decap.sweep.scheduler import LocalScheduler, Scheduler, locked
from decap.sweep.values import parse_duration
from decap.tasks import CPU_NUM_ENVS, NUM_ENVS

FAILED, UNFINISHED = 1, 3
"""Exit codes: some run failed; time was up, or Ctrl-C, with runs left to do."""

GPU_JOBS = 2
"""Runs at a time on a GPU unless the file says otherwise."""

LEAST_JOBS = 8
"""As many runs at a time may be asked for on any machine, and one per core on larger."""


@dataclass(kw_only=True)
class SweepArgs(Args):
  """The file says what; options say how, and win over the file. Start it again to go on:
  finished runs are skipped, interrupted ones continue. Exit code 1: a run failed; 3: it
  ended with runs left to do."""

  file: Positional[Annotated[str, shown("FILE")]]
  """YAML file with the runs; see docs/sweep.md."""
  jobs: Count = None
  """Runs at a time."""
  cluster: Annotated[Literal["slurm"] | None, arg(help_behavior_hint="")] = None
  """Every run as a job of this cluster."""
  device: Annotated[str | None, shown("NAME")] = None
  """auto, cpu, cuda or cuda:N."""
  output: OutputFolder = None
  """The sweep's folder (default: runs/<FILE's name>)."""
  time_limit: Annotated[str | None, shown("TIME")] = None
  """Save and end after e.g. 90s, 40m or 2h."""
  run_time_limit: Annotated[str | None, shown("TIME")] = None
  """The same for every single run."""
  no_evaluate: Flag = False
  """Train only."""
  dry_run: Flag = False
  """Check all configs, print plan and time."""

  def run(self) -> int:
    """Check the plan, work through it, then compare what was evaluated."""
    plan = _plan(self)
    root = Path(self.output or Path("runs") / Path(self.file).stem)
    check_writable(root)
    checks.check_renderer()
    if self.dry_run:
      return _dry_run(plan, root)
    boards = make_display(display.PlainBoard, display.LiveBoard)
    with locked(root) as lock, boards as view:
      if plan.cluster:  # The lock is about who looks.
        scheduler = cluster.ClusterScheduler(plan, root, view)
        _watch(plan, scheduler, view)
      else:
        scheduler = _here(plan, root, lock, view)
    return _conclude(plan, root, scheduler)


def _here(plan: Plan, root: Path, lock: int, view: display.Display) -> Scheduler:
  """Several runs at a time on this machine."""
  cluster.refuse_if_at_work(root)
  shares = plan.device != "cpu" and plan.jobs != 1
  with (
    shared_gpu() if shares else contextlib.nullcontext(({}, "")) as (variables, note)
  ):
    if note:
      view.message(note)
    scheduler = LocalScheduler(plan, root, {**os.environ, **variables}, lock, view)
    _watch(plan, scheduler, view)
    return scheduler


def _watch(plan: Plan, scheduler: Scheduler, view: display.Display) -> None:
  for line in display.plan_lines(plan, scheduler.jobs):
    view.message(line)
  scheduler.work()


def _plan(options: SweepArgs) -> Plan:
  plan = plans.with_options(
    plans.read_plan(options.file),
    jobs=options.jobs,
    device=options.device,
    time_limit_s=parse_duration(options.time_limit),
    run_time_limit_s=parse_duration(options.run_time_limit),
  )
  if options.no_evaluate:
    plan = dataclasses.replace(plan, evaluate=None)
  return _plan_there(plan, options.jobs) if options.cluster else _plan_here(plan)


def _plan_here(plan: Plan) -> Plan:
  """The plan with what this machine has."""
  device = machine.check_device(plan.device)
  machine.check_backend(plan.backend, device)
  plan = plans.with_environments(plan, CPU_NUM_ENVS if device == "cpu" else NUM_ENVS)
  for run in plan.runs:
    machine.check_num_envs(run.spec.num_envs, device)
  jobs = plan.jobs or (1 if device == "cpu" else GPU_JOBS)
  most = max(LEAST_JOBS, os.cpu_count() or 1)
  if jobs > most:
    raise UserError(
      f"{jobs} runs at a time are too many for this machine: {most} at most."
    )
  return dataclasses.replace(plan, device=device, jobs=jobs)


def _plan_there(plan: Plan, parallel: int | None) -> Plan:
  """The plan with what its section `cluster` asks for; nodes check what they have."""
  machine.check_installed("submitit", "--cluster slurm")
  cluster.check_slurm()
  if plan.time_limit_s or plan.run_time_limit_s:
    raise UserError(
      "--time-limit and --run-time-limit are for this machine; on a cluster a job that "
      "reaches 'time' of the section 'cluster' goes on in another one."
    )
  device = "cpu" if plan.device == "cpu" else "cuda"
  machine.check_backend(plan.backend, device)
  plan = plans.with_environments(plan, CPU_NUM_ENVS if device == "cpu" else NUM_ENVS)
  jobs = min(parallel or plan.resources.parallel or len(plan.runs), len(plan.runs))
  return dataclasses.replace(plan, cluster="slurm", device=device, jobs=jobs)


def _dry_run(plan: Plan, root: Path) -> int:
  """Build every config, so that a wrong option shows now and not after hours."""
  from decap.runs import build_configs

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
  reason = f" because {scheduler.stopped}" if scheduler.stopped else ""
  print(f"Ended{reason}: {display.counts(jobs)}. Logs: {root / 'logs'}")
  compared = _compare(plan, root, jobs) if plan.evaluate is not None else 0
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
    output = root / f"comparison-{task}.md"
    command = [sys.executable, "-m", "decap.cli", "compare", *folders]
    command += ["--label", plan.evaluation_label(task), "--format", "markdown"]
    code = subprocess.call([*command, "--output", str(output)])
    if code == 0:
      print(output.read_text())
    failed |= code
  return failed
