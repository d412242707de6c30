"""What a user sees of a sweep: the plan, a live table, and the summary."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from decap.rl.display import Lines, LivePanel, duration, make_console
from decap.sweep.job import Job
from decap.sweep.plan import Plan

START_S = 30.0
"""Time that a run takes to start, import and build included."""

ASSUMED_STEPS_PER_S = {"cpu": 2_000.0, "cuda": 100_000.0}
"""Of all jobs of a device, where nothing was measured: two cores, and a large GPU."""


def estimate(plan: Plan, jobs: Sequence[Job]) -> tuple[float, str]:
  """Seconds that the remaining training will take, and what this is based on.

  The rate of a device is the file's, or what earlier runs in the folder wrote, or a
  guess. The device with the most to do decides.
  """
  assert plan.jobs is not None
  rates = [p.steps_per_s for job in jobs if (p := job.progress()) and p.steps_per_s]
  if plan.steps_per_s:
    rate, basis = plan.steps_per_s, "steps-per-s of the file"
  elif rates:
    rate, basis = sum(rates) / len(rates) * plan.jobs, "earlier runs of this sweep"
  else:
    rate = ASSUMED_STEPS_PER_S["cpu" if plan.on_cpu else "cuda"]
    rate *= plan.jobs * plan.gpus if plan.slurm else 1
    basis = "a guess; 'decap train' shows its own, and steps-per-s sets it"
  steps, starts = ([0] * len(plan.devices) for _ in range(2))
  for job in jobs:
    left = max(0, job.run.iterations - job.done_iterations())
    device = steps.index(min(steps))
    steps[device] += left * job.run.steps_per_iteration
    starts[device] += left > 0
  seconds = max(
    count / rate + START_S * -(-runs // plan.jobs)
    for count, runs in zip(steps, starts, strict=True)
  )
  total = sum(steps)
  count = f"{total / 1e6:.3g} M" if total >= 1e6 else f"{total:,}"
  work = f"{START_S:g} s for each start, and {count} steps at {rate:.0f} steps/s"
  return seconds, f"{work}{_on_each(plan)} ({basis})"


def _on_each(plan: Plan) -> str:
  return " on each GPU" if len(plan.devices) > 1 else ""


def plan_lines(plan: Plan, jobs: Sequence[Job]) -> list[str]:
  """What would be run, what of it is done already, and how long it takes."""
  width = max(len(job.run.name) for job in jobs)
  lines = []
  for job in jobs:
    done, total = job.done_iterations(), job.run.iterations
    state = job.state if job.state == "done" else f"{done}/{total}" if done else "new"
    options = " ".join(job.run.spec.overrides)
    lines.append(f"  {job.run.name:<{width}}  {state:<9}  {options}".rstrip())
  seconds, basis = estimate(plan, jobs)
  place, count = (
    ", ".join(plan.devices),
    "1 run" if len(jobs) == 1 else f"{len(jobs)} runs",
  )
  if plan.slurm:
    gpus = f"{plan.gpus} {plan.resources.gpu or 'GPU'}"
    place = f"slurm, {f'{plan.resources.cpus} cores' if plan.on_cpu else gpus} each"
  elif len(plan.devices) > 1:
    place = f"{len(plan.devices)} GPUs ({place})"
  at_a_time = f"{plan.jobs if plan.jobs != 1 else 'one'} at a time{_on_each(plan)}"
  takes = f"training takes about {duration(seconds)}: {basis}."
  return [*lines, f"{count} on {place}, {at_a_time}; {takes}"]


_VALUES = {"episode": "{:.0f}", "reward": "{:.2f}", "error": "{:.2f}", "δ̄": "{:.3f}"}


def table(jobs: Sequence[Job]) -> Any:
  """One row per run."""
  from rich.table import Table

  view = Table(box=None, header_style="dim")
  for column in ("run", "state"):
    view.add_column(column, no_wrap=True)
  for column in ("iteration", *_VALUES, "steps/s", "left"):
    view.add_column(column, justify="right", no_wrap=True)
  styles = {"done": "green", "failed": "red", "stopped": "yellow", "waiting": "dim"}
  for job in jobs:
    cells = []
    if progress := job.progress():
      known = progress.values
      cells = [f"{progress.iteration}/{progress.total}"]
      cells += [f.format(known[n]) if n in known else "" for n, f in _VALUES.items()]
      if job.state == "training":
        cells += [f"{progress.steps_per_s:.0f}", duration(progress.left_s)]
    view.add_row(job.run.name, job.state, *cells, style=styles.get(job.state, ""))
  return view


def counts(jobs: Sequence[Job]) -> str:
  """How many runs are in each state, such as ``3 done, 1 failed``."""
  order = ("done", "training", "evaluating", "waiting", "stopped", "failed")
  states = [job.state for job in jobs]
  return ", ".join(f"{states.count(s)} {s}" for s in order if s in states)


class LiveBoard(LivePanel):
  """A table of all runs."""

  _next = 0.0

  def update(self, jobs: list[Job]) -> None:
    # Reading every file is cheap, but need not happen at every poll.
    if time.monotonic() >= self._next:
      self._next = time.monotonic() + 2.0
      # A screen shows the first rows of many.
      at_work = sorted(jobs, key=lambda j: j.state not in ("training", "evaluating"))
      self.live.update(table(at_work), refresh=True)


class PlainBoard(Lines):
  """The same table once a minute."""

  _next = 0.0

  def update(self, jobs: list[Job]) -> None:
    if time.monotonic() >= self._next:
      self._next = time.monotonic() + 60.0
      make_console().print(table(jobs))


Display = LiveBoard | PlainBoard
"""Shows the state of all jobs."""
