"""``decap demo``: train for two minutes on the CPU and show the effect."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from decap.commands import checks, hints
from decap.files import check_writable, replacing
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

FEW_SAMPLES = (
  "--agent.algorithm.entropy-coef",
  "0",
  "--agent.algorithm.learning-rate",
  "1e-3",
  # Legs that start calmer than the task's comply sooner, and learn to walk later.
  "--agent.policy.init-std",
  "{'.*_(shoulder|elbow|wrist)_.*': 0.06, '.*(hip|knee|ankle|waist)_.*': 0.3}",
  # Ten steps of horizon: limits weigh more, balance less.
  "--agent.algorithm.feasibility.budget",
  "0.1",
  "--agent.algorithm.feasibility.quantile",
  "None",
)
"""What makes the limits show an effect within two minutes on a CPU."""


def add_options(parser: argparse.ArgumentParser) -> None:
  """How long; the defaults fit into three minutes on two cores."""
  add = parser.add_argument
  add("--num-envs", type=int, default=192, metavar="N", help="default: 192")
  add("--iterations", type=int, default=50, metavar="N", help="at most (default: 50)")
  add("--seconds", type=float, default=110.0, help="training time (default: 110)")
  add("--output", metavar="DIR", default="demo", help="where files go (default: demo)")


def run(options: argparse.Namespace) -> None:
  """Train DeCap on flat ground from scratch, then print a table and draw curves."""
  checks.check_num_envs(options.num_envs, "cpu")
  checks.check_at_least("--iterations", options.iterations, 2)
  check_writable(options.output)
  print(
    "DeCap demo: a Unitree G1 that moves at random learns to keep its joints within "
    "limits,\nas the probability of surviving a step falls with every joint that comes "
    "close to them."
  )
  spec = RunSpec(
    task="g1-flat",
    method="decap",
    num_envs=options.num_envs,
    iterations=options.iterations,
    overrides=FEW_SAMPLES,
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
  print(f"\nCurves: {figure}\n\n{_next_steps(folder, len(history), options.num_envs)}")


def _next_steps(folder: Path, iterations: int, num_envs: int) -> str:
  decap = hints.program()
  return (
    f"{iterations * num_envs * 24} environment steps are a first impression; a walking "
    "robot takes tens of\nmillions. Where to go next:\n\n"
    f"Go on from here:\n  {decap} train --resume {folder} --iterations 400\n"
    f"See what it looks like now:\n  {decap} play {folder} --video demo.mp4\n"
    f"The real thing, on a GPU:\n  {decap} train --task g1-flat --method decap\n"
    f"All tasks and methods:\n  {decap} list"
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
  from matplotlib import rc_context
  from matplotlib.figure import Figure

  from decap.evaluation.plots import COLOURS, RC, STYLES

  iterations = range(1, len(history) + 1)
  quantities, groups = (
    list(dict.fromkeys(row.split("/")[i] for row in limits)) for i in (0, -1)
  )
  with rc_context(RC):
    figure = Figure(figsize=(12, 3.6))
    axes = figure.subplots(1, 3)
    for row, limit in limits.items():
      quantity, group = row.split("/")[0], row.split("/")[-1]
      look = {
        "color": COLOURS[quantities.index(quantity) % len(COLOURS)],
        "linestyle": STYLES[groups.index(group) % len(STYLES)],
      }
      means = [log[f"Constraint/{row}/mean"] / limit for log in history]
      axes[0].plot(iterations, means, label=row, **look)
      violations = [100 * log[f"Constraint/{row}/violation"] for log in history]
      axes[1].plot(iterations, violations, **look)
    axes[0].set(ylabel="mean over joints / limit", ylim=(0, None))
    axes[1].set(ylabel="steps in violation (%)", ylim=(-2, 102))
    lengths = [log.get("Train/episode_length", float("nan")) for log in history]
    axes[2].plot(iterations[SKIP:], lengths[SKIP:], color="black")
    axes[2].set(ylabel="episode length (steps)")
    for axis in axes:
      axis.set_xlabel("iteration")
    figure.legend(loc="outside lower center", ncols=4)
    with replacing(path) as partial:
      figure.savefig(partial, dpi=150)


def _mean(logs: list[Log]) -> Log:
  """Mean of each entry over the logs that have it."""
  names = {name for log in logs for name in log}
  means = {}
  for name in names:
    values = [log[name] for log in logs if name in log]
    means[name] = sum(values) / len(values)
  return means
