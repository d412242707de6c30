"""``decap demo``: two policies side by side, then a minute of training on the CPU."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from tyro.conf import arg

import decap
from decap.cli import checks, play
from decap.cli.compare import CompareArgs
from decap.cli.terminal import evaluate_with_bar, program
from decap.cli.train import TrainArgs, train
from decap.errors import UserError
from decap.evaluation.protocol import QUICK
from decap.options import machine
from decap.options.args import Args, at_least, output_folder
from decap.options.types import Positive
from decap.rl.display import Log, make_console
from decap.runs import RunSpec, build_configs, default_run_folder
from decap.tasks import get_task

POLICIES = {
  "DeCap, calm torso": "g1-flat-decap-calm-torso",
  "smoothness rewards": "g1-flat-smoothness-rewards",
}
"""Label of a row → released policy."""
PROTOCOL = QUICK
FILM: dict[str, Any] = {"schedule": "0:0.5,0,0 3:0,0,0.5", "seconds": 6.0}
FILM |= {"size": (320, 360), "distance": 2.2, "device": "cpu"}
"""Options of `decap play`: both robots of the video walk, then turn."""
FPS = 12.5

TASK = "g1-flat"
HEADS = ("constraint", "limit", "", "before", "after", "violated before", "after")
WINDOW = 3  # Iterations that "before" and "after" are means of.
SKIP = 3  # Of the episodes that end in the first iterations, all are short.

FEW_SAMPLES = (
  *("--agent.algorithm.entropy-coef", "0"),
  *("--agent.algorithm.learning-rate", "1e-3"),
  # Ten steps of horizon throughout: limits weigh more, balance less.
  *("--agent.algorithm.feasibility.budget", "0.1"),
  *("--agent.algorithm.feasibility.target", "None"),
  *("--agent.algorithm.feasibility.quantile", "None"),
)
"""What makes the limits show an effect within a minute on a CPU."""
CALM_STD = 0.3
"""Most noise that a joint starts with: legs that are calmer than the task's comply
sooner, and learn to walk later."""


@dataclass(kw_only=True)
class DemoArgs(Args):
  """How long; the defaults fit into three minutes on two cores."""

  num_envs: Annotated[int, at_least(1)] = 192
  """Environments of the training."""
  iterations: Annotated[int, at_least(2)] = 50
  """Iterations, at most."""
  seconds: Positive = 60.0
  """Training time."""
  output: Annotated[str, arg(metavar="DIR"), output_folder] = "demo"
  """Where files go."""

  def check(self) -> None:
    machine.check_num_envs(self.num_envs, "cpu")

  def run(self) -> None:
    """Compare and film the released policies, then train one from scratch."""
    output, policies = Path(self.output), find_policies()
    checks.announce_imports("cpu")
    if policies:
      print("DeCap demo, part 1: two policies of a Unitree G1 that walk.", flush=True)
      compare_policies(policies, output)
      film_policies(policies, output / "walk.mp4")
      print()
    else:
      print("Nothing to compare here: policies are in policies/ of the repository.")
    print(
      "DeCap demo, part 2: a robot that moves at random learns to keep its joints within "
      "limits,\nas the probability of surviving a step falls with every joint that comes "
      "close to them.",
      flush=True,
    )
    trained = train_briefly(self)
    print(f"\n{_next_steps(trained, policies)}")


def find_policies() -> dict[str, Path]:
  """Label → folder of the released policies; none where the repository is not."""
  for root in (Path(), Path(decap.__file__).parents[2]):
    found = {label: root / "policies" / name for label, name in POLICIES.items()}
    if all((path / "policy.onnx").is_file() for path in found.values()):
      return found
  return {}


def compare_policies(policies: dict[str, Path], output: Path) -> None:
  """A quick evaluation of each, the tables of `decap compare`, and the report."""
  from decap.evaluation.policies import load_policy

  rows = []
  for label, path in policies.items():
    policy, folder = load_policy(str(path)), output / path.name
    found = evaluate_with_bar(f"Evaluating {label}", policy, PROTOCOL, trajectory=1)
    found.save(folder)
    rows.append(f"{label}={folder}")
  CompareArgs(sources=tuple(rows), html=str(output / "report.html")).run()


def film_policies(policies: dict[str, Path], path: Path) -> None:
  """Both robots, told the same, side by side; a sentence where nothing can draw."""
  try:
    machine.check_renderer(draws=True)
  except UserError as error:
    print(f"No video: {error}")
    return
  named = tuple(f"{label}={source}" for label, source in policies.items())
  play.record(play.PlayArgs(policies=named, video=str(path), **FILM), FPS)


def demo_spec(num_envs: int, iterations: int) -> RunSpec:
  """The demo's training: the task's, with what few samples need."""
  noise = get_task(TASK).describe().exploration
  calm = {joint: min(std, CALM_STD) for joint, std in noise.items()}
  overrides = (*FEW_SAMPLES, "--agent.policy.init-std", str(calm))
  return RunSpec(TASK, "decap", 1, num_envs, iterations, overrides=overrides)


def train_briefly(args: DemoArgs) -> Path:
  """Train DeCap from scratch, print a table and draw curves; returns the run folder."""
  spec = demo_spec(args.num_envs, args.iterations)
  folder = default_run_folder(args.output, spec)
  history: list[Log] = []
  times: list[float] = []

  def record(iteration: int, log: Log) -> bool:
    times.append(time.perf_counter())
    history.append(log)
    enough = times[-1] - times[0] > args.seconds
    return enough and iteration < args.iterations

  train(spec, folder, TrainArgs(device="cpu"), quiet=True, on_iteration=record)
  from decap.evaluation.layout import limits_by_row
  from decap.evaluation.plots import training_curves
  from decap.evaluation.table_formats import numbers_table

  constraints = build_configs(spec)[0].constraints
  limits = limits_by_row({name: term.limits for name, term in constraints.items()})
  rows = constraint_rows(history, limits)
  make_console().print(
    numbers_table("Means over joints, steps in violation", HEADS, rows)
  )
  training_curves({"DeCap": folder}).savefig(folder / "curves.png", dpi=150)
  print(
    f"\nCurves: {folder / 'curves.png'}\n{len(history) * args.num_envs * 24} "
    "environment steps are a first impression; a walking robot takes tens of millions."
  )
  return folder


def _next_steps(trained: Path, policies: dict[str, Path]) -> str:
  start, run = program(), shlex.quote(str(trained))
  label = next(iter(POLICIES))
  walker = policies.get(label, Path("policies") / POLICIES[label])
  where = "" if policies else " (in the repository)"
  return (
    f"Go on from here:\n  {start} train --resume {run} --iterations 400\n"
    f"The real thing, on a GPU:\n  {start} train --task g1-flat\n"
    f"All tasks and methods:\n  {start} list\n"
    f"Watch a robot that walks, in the browser{where}:\n"
    f"  {start} play {shlex.quote(str(walker))}"
  )


def constraint_rows(history: list[Log], limits: dict[str, float]) -> list[list[str]]:
  """Cells of a table: each constraint at the start and at the end."""
  from decap.evaluation.layout import UNITS

  skip = SKIP if len(history) > SKIP + WINDOW else 0
  ends = _mean(history[skip : skip + WINDOW]), _mean(history[-WINDOW:])
  rows = []
  for row, limit in limits.items():
    means = [f"{end[f'Constraint/{row}/mean']:.2f}" for end in ends]
    violations = [f"{end[f'Constraint/{row}/violation']:.1%}" for end in ends]
    unit = UNITS.get(row.split("/")[0], "")
    rows.append([row, f"{limit:g}", unit, *means, *violations])
  further = {"δ̄": "Constraint/delta", "episode, steps": "Train/episode_length"}
  for name, key in further.items():
    if all(key in end for end in ends):
      rows.append([name, "", "", *(f"{end[key]:.3g}" for end in ends), "", ""])
  return rows


def _mean(logs: list[Log]) -> Log:
  """Mean of each entry over the logs that have it."""
  names = {name for log in logs for name in log}
  return {name: fmean(log[name] for log in logs if name in log) for name in names}
