"""Copy what the paper's page needs out of the runs of results/paper.yaml.

`python docs/tools/paper_collect.py runs/paper` takes metrics and learning curves of all
runs there that were evaluated, finished sweep or not; `make tables` does the rest.
"""

from __future__ import annotations

import csv
import shutil
import sys
from pathlib import Path

import numpy as np

from decap.evaluation.plots import read_scalars
from decap.sweep.job import Job
from decap.sweep.plan import PlannedRun, read_plan

ROOT = Path(__file__).parents[2]
EVERY = 10
"""Iterations between two rows of a curve."""
TIMES = ("Perf/collection_time", "Perf/learning_time", "Perf/evaluation_time")
COLUMNS = {
  "episode_steps": "Train/episode_length",
  "reward": "Train/reward",
  "delta": "Constraint/delta",
  "delta_applied": "Constraint/delta_applied",
  "budget": "Constraint/budget",
  "barrier_applied": "Constraint/barrier_applied",
  **{
    f"followed_{band}": f"Task/{band}"
    for band in ("slow", "fast", "backward", "sideways", "turning")
  },
  "upright": "Task/upright",
  "stepping": "Task/stepping",
  "kl": "Policy/kl",
  "terrain_level": "Curriculum/terrain_levels/mean",
  **{
    f"violation_{quantity}_{group}": f"Constraint/{quantity}/{group}/violation"
    for quantity in ("action_rate", "joint_acc", "joint_torque", "joint_vel")
    for group in ("upper", "lower")
  },
}
"""Column of a learning curve -> tag in the log."""


def row_name(run: PlannedRun) -> str:
  """What the page calls a run of the grid: its method, or what is special about it."""
  method, label = run.spec.method, run.label
  kind, _, change = label.partition("_")
  if kind == "coefficient":
    return f"coefficient-{method}-{change.rpartition('=')[2]}"
  if kind == "weights":
    return f"weights-{method}-{change.split('_')[0].rpartition('=-')[2]}"
  if kind == "middle" and change:
    named = {"barrier": "middle-no-barrier", "p-max": "p-max-half"}
    return named.get(change.partition("=")[0], change.replace("=", "-"))
  if kind == "continued":
    return f"{method}-continued"
  return label or method


def write_curve(folder: Path, path: Path, steps_per_iteration: int) -> None:
  """Learning curve of a run folder: a row every ten iterations."""
  logged = {
    tag: dict(zip(*pair, strict=True)) for tag, pair in read_scalars(folder).items()
  }
  iterations = sorted(logged[TIMES[0]])
  took = [sum(logged.get(tag, {}).get(i, 0.0) for tag in TIMES) for i in iterations]
  seconds = dict(zip(iterations, np.cumsum(took), strict=True))
  with path.open("w", newline="") as file:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["iteration", "seconds", "samples", *COLUMNS])
    for i in (i for i in iterations if i % EVERY == 0 or i == iterations[-1]):
      values = [logged.get(tag, {}).get(i, float("nan")) for tag in COLUMNS.values()]
      numbers = [f"{value:.4g}" for value in values]
      writer.writerow([i, f"{seconds[i]:.1f}", i * steps_per_iteration, *numbers])


def collect(root: Path, results: Path) -> int:
  """Copy what is there; returns of how many runs."""
  count, plan = 0, read_plan(ROOT / "results" / "paper.yaml")
  for run in plan.runs:
    job = Job(run, root)
    folder = job.folder()
    if folder is None or not job.trained() or not job.evaluated(plan):
      continue
    stem = results / run.spec.task / f"{row_name(run)}-{run.spec.seed}"
    stem.parent.mkdir(parents=True, exist_ok=True)
    for label in ("", "-disturbed"):
      if (folder / f"metrics{label}.json").is_file():
        shutil.copyfile(folder / f"metrics{label}.json", f"{stem}{label}.json")
    write_curve(folder, Path(f"{stem}.csv"), run.steps_per_iteration)
    count += 1
  return count


if __name__ == "__main__":
  done = collect(Path(sys.argv[1]), ROOT / "results" / "paper")
  print(f"Copied {done} runs; see results/paper/gpu.yaml, then: make tables")
