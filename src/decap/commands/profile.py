"""``decap profile``: measure a policy and propose limits."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

from decap.commands import checks
from decap.commands.options import add_backend, add_device
from decap.commands.terminal import progress_bar
from decap.errors import UserError
from decap.evaluation.protocol import Protocol
from decap.files import check_writable

MOSTLY_FALLS = 1.0
"""Falls per minute from which a profile is one of falling."""

STANDING_ENVS, STANDING_STEPS = 16, 250
"""How long robots are told to stand: what they need there is the least limit."""


def add_options(parser: argparse.ArgumentParser) -> None:
  """A nominal policy, and which quantiles become limits."""
  add = parser.add_argument
  add("policy", metavar="POLICY", help="run folder, checkpoint or bundle folder")
  add(
    "--output",
    metavar="FILE",
    default="limits.yaml",
    help="limits file to write (default: limits.yaml)",
  )
  add(
    "--quantile",
    action="append",
    default=[],
    metavar="GROUP=Q",
    help="quantile that becomes the limit of a group or a scalar quantity; may be "
    "repeated (default: the robot's, a G1's upper=0.5, and 0.99)",
  )
  add("--joints", action="store_true", help="print the quantiles of every joint too")
  add(
    "--force",
    action="store_true",
    help="also of a policy that mostly stands or falls",
  )
  add("--task", metavar="NAME", help="task to measure on (default: the policy's own)")
  for name, value, text in (
    ("envs", 64, "environments"),
    ("steps", 1000, "control steps per environment"),
    ("seed", 0, "seed of the environments"),
  ):
    add(
      f"--{name}",
      type=int,
      default=value,
      metavar="N",
      help=f"{text} (default: {value})",
    )
  add_device(parser)
  add_backend(parser)


def run(options: argparse.Namespace) -> None:
  """Check the options, then measure, print quantiles and write the limits file."""
  options.device = checks.check_device(options.device)
  checks.check_backend(options.backend, options.device)
  checks.check_at_least("--seed", options.seed, 0)
  checks.check_at_least("--envs", options.envs, 1)
  checks.check_num_envs(options.envs, options.device)
  quantiles = dict(map(_quantile, options.quantile))
  checks.check_renderer()
  profile(options, quantiles)


def profile(args: argparse.Namespace, quantiles: dict[str, float]) -> None:
  """Measure a policy, print what it needs and write the limits file."""
  from rich.console import Console

  from decap.evaluation import profile as profiles
  from decap.evaluation.policies import load_policy
  from decap.evaluation.rollout import Evaluation, evaluate
  from decap.tasks import TASKS

  check_writable(Path(args.output).parent)
  policy = load_policy(args.policy, args.device)
  task = args.task or policy.info["task"] or "g1-flat"

  def measure(title: str, protocol: Protocol) -> Evaluation:
    with progress_bar(title, protocol.steps) as on_step:
      return evaluate(
        policy,
        protocol,
        device=args.device,
        backend=args.backend,
        trajectory=protocol.envs,
        on_step=on_step,
      )

  random = Protocol(
    task=task,
    rollouts=1,
    envs=args.envs,
    steps=args.steps,
    warmup=min(50, args.steps - 1),
    per_command=0,
    seed=args.seed,
  )
  still = dataclasses.replace(
    random,
    envs=min(args.envs, STANDING_ENVS),
    steps=min(args.steps, STANDING_STEPS),
    commands="fixed",
    command=(0.0, 0.0, 0.0),
  )
  name = policy.info["name"]
  moving = measure(f"Measuring {name}", random)
  _check_worth(moving.result.metrics, name, args.force)
  standing = measure(f"{name}, told to stand", still)
  assert moving.trajectory is not None and standing.trajectory is not None
  walking = profiles.profile_trajectory(moving.trajectory)
  needs = profiles.profile_trajectory(standing.trajectory)
  chosen = {**TASKS[task].describe().profile_quantiles, **quantiles}
  rule = profiles.complete_rule(walking.layout, chosen)
  limits = profiles.propose_limits(walking, needs, rule)
  tables = profiles.joint_tables(walking) if args.joints else []
  for table in (profiles.row_table(walking, needs, limits), *tables):
    Console().print(table, crop=False)
  profiles.write_limits(Path(args.output), limits, rule, policy.info, walking.layout)
  _warn(walking.share_above(limits), profiles.MAX_SHARE)
  print(f"Wrote {args.output}; use it with 'decap train --limits {args.output}'.")


def _check_worth(metrics: dict[str, Any], name: str, force: bool) -> None:
  """Refuse a policy whose limits would be those of standing or falling."""
  from decap.evaluation.verdict import MIN_FOLLOWED

  share = metrics["tracking"]["followed"]["mean"] or 0.0
  falls = metrics["falls_per_minute"]["mean"] or 0.0
  found = []
  if share < MIN_FOLLOWED:
    found.append(f"carries out {100 * share:.0f} % of the velocity that it is told")
  if falls > MOSTLY_FALLS:
    found.append(f"falls {falls:.1f} times per minute")
  if not found:
    return
  what = f"{name} {' and '.join(found)}"
  if not force:
    raise UserError(
      f"{what}: its limits would not be those of walking (--force writes them)."
    )
  print(f"Warning: {what}, so these are not limits of walking.", file=sys.stderr)


def _warn(shares: dict[str, float], most: float) -> None:
  above = {row: share for row, share in shares.items() if share > most}
  if above:
    rows = ", ".join(f"{row} {share:.0%}" for row, share in above.items())
    print(
      f"Warning: this policy itself is above these limits in more than {most:.0%} of "
      f"its steps: {rows}. Training has to change its motion there.",
      file=sys.stderr,
    )


def _quantile(text: str) -> tuple[str, float]:
  group, equals, value = text.partition("=")
  try:
    number = float(value)
  except ValueError:
    number = None
  if not equals or number is None:
    raise UserError(f"--quantile must be GROUP=Q, such as lower=0.99, not '{text}'.")
  if not 0.0 < number < 1.0:
    raise UserError(f"The quantile of '{group}' must be in (0, 1), not {value}.")
  return group, number
