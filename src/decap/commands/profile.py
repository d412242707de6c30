"""``decap profile``: measure a policy and propose limits."""

from __future__ import annotations

import argparse

from decap.commands import checks
from decap.commands.options import add_backend, add_device
from decap.errors import UserError
from decap.evaluation.commands import ProfileArgs, profile_main


def add_options(parser: argparse.ArgumentParser) -> None:
  """A nominal policy, and which quantiles become limits."""
  add, default = parser.add_argument, ProfileArgs("")
  add("policy", metavar="POLICY", help="run folder, checkpoint or bundle folder")
  add(
    "--output",
    metavar="FILE",
    default=default.output,
    help="limits file to write (default: limits.yaml)",
  )
  add(
    "--quantile",
    action="append",
    default=[],
    metavar="GROUP=Q",
    help="quantile that becomes a group's limit; may be repeated "
    "(default: upper=0.5 lower=0.99)",
  )
  add("--joints", action="store_true", help="print the quantiles of every joint too")
  add("--task", metavar="NAME", help="task to measure on (default: the policy's own)")
  for name, text in (
    ("envs", "environments"),
    ("steps", "control steps per environment"),
    ("seed", "seed of the environments"),
  ):
    value = getattr(default, name)
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
  """Check the options, then measure."""
  device = checks.check_device(options.device)
  checks.check_backend(options.backend, device)
  checks.check_at_least("--seed", options.seed, 0)
  checks.check_at_least("--envs", options.envs, 1)
  checks.check_num_envs(options.envs, device)
  arguments = ProfileArgs(
    policy=options.policy,
    output=options.output,
    quantile=dict(map(_quantile, options.quantile)),
    joints=options.joints,
    task=options.task,
    envs=options.envs,
    steps=options.steps,
    seed=options.seed,
    device=device,
    backend=options.backend,
  )
  checks.check_renderer()
  profile_main(arguments)


def _quantile(text: str) -> tuple[str, float]:
  group, equals, value = text.partition("=")
  try:
    number = float(value)
  except ValueError:
    number = None
  if not equals or number is None:
    raise UserError(f"--quantile must be GROUP=Q, such as lower=0.99, not '{text}'.")
  return group, number
