"""``decap profile``: measure a policy and propose limits."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import UseAppendAction, arg

from decap.cli import checks
from decap.cli.terminal import progress_bar
from decap.errors import UserError, unknown
from decap.evaluation.protocol import Protocol, check_steps
from decap.options import machine
from decap.options.args import OUTPUT_FILE, at_least
from decap.options.types import Flag, Policy, Seed, Simulating, TaskName, shown

MOSTLY_FALLS = 1.0
"""Falls per minute from which a profile is one of falling."""

STANDING_ENVS, STANDING_STEPS = 16, 250
"""How long robots are told to stand: what they need there is the least limit."""


@dataclass(kw_only=True)
class ProfileArgs(Simulating):
  """A nominal policy, and which quantiles become limits."""

  policy: Policy
  """Run folder, checkpoint or bundle folder."""
  output: Annotated[str, arg(metavar="FILE"), OUTPUT_FILE] = "limits.yaml"
  """Limits file to write."""
  quantile: UseAppendAction[Annotated[tuple[str, ...], shown("GROUP=Q")]] = ()
  """Quantile that becomes the limit of a group or a scalar quantity; may be repeated
  (default: the robot's, a G1's upper=0.5, and 0.99)."""
  joints: Flag = False
  """Print the quantiles of every joint too."""
  force: Flag = False
  """Also of a policy that mostly stands or falls."""
  task: TaskName = None
  """Task to measure on (default: the policy's own)."""
  envs: Annotated[int, at_least(1)] = 64
  """Environments."""
  steps: Annotated[int, at_least(1)] = 1000
  """Control steps per environment."""
  seed: Seed = 0
  """Seed of the environments."""

  def check(self) -> None:
    super().check()
    machine.check_num_envs(self.envs, self.device)
    self.quantiles()
    check_steps(self.steps)

  def quantiles(self) -> dict[str, float]:
    """Group or scalar quantity → quantile."""
    return dict(map(_quantile, self.quantile))

  def run(self) -> None:
    """Measure, print quantiles and write the limits file."""
    checks.check_renderer()
    profile(self)


def profile(args: ProfileArgs) -> None:
  """Measure a policy, print what it needs and write the limits file."""
  from rich.console import Console

  from decap.evaluation import profile as profiles
  from decap.evaluation.policies import load_policy
  from decap.evaluation.rollout import Evaluation, evaluate
  from decap.sim.backend import hush_warp
  from decap.tasks import TASKS

  policy = load_policy(args.policy, args.device)
  task = args.task or policy.info["task"] or "g1-flat"

  _check_groups(task, args.quantiles())

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
  hush_warp()
  moving = measure(f"Measuring {name}", random)
  _check_worth(moving.result.metrics, name, args.force)
  standing = measure(f"{name}, told to stand", still)
  assert moving.trajectory is not None and standing.trajectory is not None
  walking = profiles.profile_trajectory(moving.trajectory)
  needs = profiles.profile_trajectory(standing.trajectory)
  chosen = {**TASKS[task].describe().profile_quantiles, **args.quantiles()}
  rule = profiles.complete_rule(walking.layout, chosen)
  limits = profiles.propose_limits(walking, needs, rule)
  tables = profiles.joint_tables(walking) if args.joints else []
  for table in (profiles.row_table(walking, needs, limits), *tables):
    Console().print(table, crop=False)
  profiles.write_limits(Path(args.output), limits, rule, policy.info, walking.layout)
  _warn(walking.share_above(limits), profiles.MAX_SHARE)
  print(f"Wrote {args.output}; use it with 'decap train --limits {args.output}'.")


def _check_groups(task: str, chosen: dict[str, float]) -> None:
  """Refuse quantiles of what the task does not have, before anything is measured."""
  from decap.tasks import env_cfg

  cfg = env_cfg(task)
  scalars = [n for n, t in cfg.constraints.items() if isinstance(t.limits, float)]
  known = (*cfg.groups, *scalars)
  for name in chosen:
    if name not in known:
      raise unknown("group", name, known)


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
