"""``decap profile``: measure a policy and propose limits."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from decap.commands import checks
from decap.commands.options import add_backend, add_device
from decap.commands.terminal import progress_bar
from decap.errors import UserError
from decap.evaluation.protocol import Protocol
from decap.files import check_writable

MIN_FOLLOWED = 0.5
"""Share of the commanded velocity below which a profile is one of standing."""


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
  """Measure a policy, print its quantiles and write the limits file."""
  from rich.console import Console

  from decap.evaluation import profile as profiles
  from decap.evaluation.policies import load_policy
  from decap.evaluation.rollout import evaluate
  from decap.tasks import TASKS

  check_writable(Path(args.output).parent)
  policy = load_policy(args.policy, args.device)
  protocol = Protocol(
    task=args.task or policy.info["task"] or "g1-flat",
    rollouts=1,
    envs=args.envs,
    steps=args.steps,
    warmup=min(50, args.steps - 1),
    per_command=0,
    seed=args.seed,
  )
  with progress_bar(f"Measuring {policy.info['name']}", protocol.steps) as on_step:
    evaluation = evaluate(
      policy,
      protocol,
      device=args.device,
      backend=args.backend,
      trajectory=protocol.envs,
      on_step=on_step,
    )
  trajectory = evaluation.trajectory
  assert trajectory is not None
  chosen = {**TASKS[protocol.task].describe().profile_quantiles, **quantiles}
  rule = profiles.complete_rule(trajectory.layout, chosen)
  limits = profiles.propose_limits(trajectory, rule)
  profile = profiles.profile_trajectory(trajectory)
  tables = profiles.joint_tables(profile) if args.joints else []
  for table in (profiles.group_table(profile), *tables):
    Console().print(table)
  profiles.write_limits(Path(args.output), limits, rule, policy.info, trajectory.layout)
  share = evaluation.result.metrics["tracking"]["followed"]["mean"] or 0.0
  if share < MIN_FOLLOWED:
    print(
      f"Note: this policy carries out {100 * share:.0f} % of the velocity that it is "
      "told, so these limits are those of a robot that mostly stands.",
      file=sys.stderr,
    )
  for name, values in limits.items():
    groups = values.items() if isinstance(values, dict) else [("", values)]
    print(f"{name}: " + ", ".join(f"{group} {v:g}".strip() for group, v in groups))
  print(f"Wrote {args.output}; use it with 'decap train --limits {args.output}'.")


def _quantile(text: str) -> tuple[str, float]:
  group, equals, value = text.partition("=")
  try:
    number = float(value)
  except ValueError:
    number = None
  if not equals or number is None:
    raise UserError(f"--quantile must be GROUP=Q, such as lower=0.99, not '{text}'.")
  return group, number
