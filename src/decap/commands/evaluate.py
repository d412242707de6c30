"""``decap evaluate``: measure smoothness, violations and tracking of a policy."""

from __future__ import annotations

import argparse

from decap.commands import checks
from decap.commands.options import add_backend, add_device
from decap.evaluation.commands import EvaluateArgs, evaluate_main


def add_options(parser: argparse.ArgumentParser) -> None:
  """A policy, the protocol, and where the results go."""
  add, default = parser.add_argument, EvaluateArgs("")
  add(
    "policy",
    metavar="POLICY",
    help="run folder, checkpoint, bundle folder, or 'stand' for the action zero",
  )
  add("--task", metavar="NAME", help="task to evaluate on (default: the policy's own)")
  add(
    "--quick", action="store_true", help="a quick look: 4 × 16 environments, 300 steps"
  )
  add(
    "--disturbed",
    action="store_true",
    help="observation noise, and a push every 4 s",
  )
  add(
    "--commands",
    choices=("random", "switching"),
    default=default.commands,
    help="velocity commands: random as in training, or a schedule (default: random)",
  )
  add(
    "--command",
    type=float,
    nargs=3,
    metavar=("VX", "VY", "YAW"),
    help="one fixed command in m/s, m/s and rad/s",
  )
  for name, text in (
    ("rollouts", "rollouts, over which deviations are taken (default: 5; quick: 4)"),
    ("envs", "environments per rollout (default: 256; quick: 16)"),
    ("steps", "control steps per environment (default: 1000; quick: 300)"),
    ("per-command", "further robots per fixed command (default: 32; quick: 16)"),
  ):
    add(f"--{name}", type=int, metavar="N", help=text)
  add("--seed", type=int, default=default.seed, help="seed of the environments")
  add(
    "--trajectory",
    type=int,
    default=default.trajectory,
    metavar="N",
    help="environments per rollout to record (default: 1; 0 for none)",
  )
  add("--limits", metavar="FILE", help="count violations against these limits")
  add_device(parser)
  add_backend(parser)
  add("--output", metavar="DIR", help="folder for the results (default: the run's)")


def read_arguments(options: argparse.Namespace) -> EvaluateArgs:
  """Check the options and say what they ask for."""
  device = checks.check_device(options.device)
  checks.check_backend(options.backend, device)
  checks.check_at_least("--trajectory", options.trajectory, 0)
  checks.check_at_least("--seed", options.seed, 0)
  arguments = EvaluateArgs(
    policy=options.policy,
    task=options.task,
    rollouts=options.rollouts,
    envs=options.envs,
    steps=options.steps,
    per_command=options.per_command,
    quick=options.quick,
    disturbed=options.disturbed,
    commands=options.commands,
    command=tuple(options.command) if options.command else None,
    limits=options.limits,
    trajectory=options.trajectory,
    seed=options.seed,
    device=device,
    backend=options.backend,
    output=options.output,
  )
  size = arguments.protocol(options.task or "g1-flat").num_envs
  checks.check_num_envs(size, device)
  return arguments


def run(options: argparse.Namespace) -> None:
  """Evaluate."""
  arguments = read_arguments(options)
  checks.check_renderer()
  evaluate_main(arguments)
