"""``decap demo``: train for a minute or two on the CPU and show the effect."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from decap.commands import checks
from decap.runs import RunSpec, default_run_folder

Log = dict[str, float]

UNITS = {
  "action_rate": "rad/s",
  "joint_acc": "rad/s²",
  "joint_torque": "Nm",
  "joint_vel": "rad/s",
}
WINDOW = 3  # Iterations that "before" and "after" are means of.
SKIP = 3  # Of the episodes that end in the first iterations, all are short.

SMALL_BATCH = (
  "--agent.algorithm.entropy-coef",
  "0",
  # The KL estimate of so few samples would hold an adaptive rate down.
  "--agent.algorithm.schedule",
  "fixed",
  "--agent.algorithm.learning-rate",
  "3e-4",
)
"""What makes few samples on a CPU teach something."""


def add_options(parser: argparse.ArgumentParser) -> None:
  """How long; the defaults fit into three minutes on two cores."""
  add = parser.add_argument
  add("--num-envs", type=int, default=192, metavar="N", help="default: 192")
  add("--iterations", type=int, default=60, metavar="N", help="at most (default: 60)")
  add("--seconds", type=float, default=110.0, help="training time (default: 110)")
  add("--output", metavar="DIR", default="demo", help="where files go (default: demo)")


def run(options: argparse.Namespace) -> None:
  """Train DeCap on flat ground from scratch, then print a table and draw curves."""
  checks.check_num_envs(options.num_envs, "cpu")
  checks.check_at_least("--iterations", options.iterations, 2)
  checks.check_writable(options.output)
  print(
    "DeCap demo: the Unitree G1 learns to stand and walk while the probability of "
    "surviving\na step falls with every joint that comes close to its limits."
  )
  spec = RunSpec(
    task="g1-flat",
    method="decap",
    num_envs=options.num_envs,
    iterations=options.iterations,
    overrides=SMALL_BATCH,
  )
  folder = default_run_folder(options.output, spec)
  history: list[Log] = []
  started: list[float] = []

  def record(iteration: int, log: Log) -> bool:
    started.append(time.perf_counter())
    history.append(log)
    enough = started[-1] - started[0] > options.seconds
    return enough and iteration < options.iterations

  from decap.commands.train import train

  limits = train(spec, folder=folder, quiet=True, on_iteration=record).limits
  print()
  print("\n".join(constraint_table(history, limits)))
  figure = folder / "curves.png"
  draw_curves(history, limits, figure)
  samples = len(history) * options.num_envs * 24
  print(
    f"\nCurves: {figure}\n\n{samples} environment steps are a first impression; a "
    "walking robot takes tens of\nmillions. Where to go next:\n\n"
    f"Go on from here:\n  decap train --resume {folder} --iterations 400\n"
    f"See what it looks like now:\n  decap play {folder} --video demo.mp4\n"
    "The real thing, on a GPU:\n  decap train --task g1-flat --method decap\n"
    "All tasks and methods:\n  decap list"
  )


def constraint_table(history: list[Log], limits: dict[str, float]) -> list[str]:
  """Lines of a table: each constraint at the start and at the end."""
  lines = [
    f"{'':<22}{'':>8}  {'mean over joints':^19}  {'steps in violation':^19}",
    f"{'constraint':<22}{'limit':>8}  {'before':>9}{'after':>9}   {'before':>9}{'after':>9}",
  ]
  skip = SKIP if len(history) > SKIP + WINDOW else 0
  first, last = _mean(history[skip : skip + WINDOW]), _mean(history[-WINDOW:])
  for row, limit in limits.items():
    unit = UNITS.get(row.split("/")[0], "")
    mean, violation = f"Constraint/{row}/mean", f"Constraint/{row}/violation"
    lines.append(
      f"{row:<22}{limit:>8g}  {first[mean]:>9.2f}{last[mean]:>9.2f}   "
      f"{first[violation]:>9.1%}{last[violation]:>9.1%}  {unit}"
    )
  for name, key in (
    ("δ̄", "Constraint/delta"),
    ("episode, steps", "Train/episode_length"),
  ):
    if key in first and key in last:
      pad = 31 if name == "δ̄" else 30  # The macron takes no column.
      lines.append(f"{name:<{pad}}  {first[key]:>9.3g}{last[key]:>9.3g}")
  return lines


def draw_curves(history: list[Log], limits: dict[str, float], path: Path) -> None:
  """Three panels: quantities over their limits, violations, length of episodes."""
  import matplotlib

  matplotlib.use("Agg")
  import matplotlib.pyplot as plt

  iterations = range(1, len(history) + 1)
  figure, axes = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
  for row, limit in limits.items():
    style = "-" if row.endswith("upper") else "--"
    means = [log[f"Constraint/{row}/mean"] / limit for log in history]
    axes[0].plot(iterations, means, style, label=row)
    violations = [100 * log[f"Constraint/{row}/violation"] for log in history]
    axes[1].plot(iterations, violations, style)
  axes[0].set(ylabel="mean / limit", yscale="log")
  axes[0].legend(fontsize=7, ncols=2)
  axes[1].set(ylabel="steps in violation, %", ylim=(-2, 102))
  lengths = [log.get("Train/episode_length", float("nan")) for log in history]
  axes[2].plot(iterations[SKIP:], lengths[SKIP:], color="black")
  axes[2].set(ylabel="episode length, steps")
  for axis in axes:
    axis.set_xlabel("iteration")
  figure.savefig(path, dpi=120)
  plt.close(figure)


def _mean(logs: list[Log]) -> Log:
  """Mean of each entry over the logs that have it."""
  names = {name for log in logs for name in log}
  means = {}
  for name in names:
    values = [log[name] for log in logs if name in log]
    means[name] = sum(values) / len(values)
  return means
