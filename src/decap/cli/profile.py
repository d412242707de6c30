"""``decap profile``: measure a policy and propose limits."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import UseAppendAction, arg

from decap.cli import checks
from decap.cli.terminal import evaluate_with_bar
from decap.errors import UserError
from decap.evaluation.protocol import Protocol
from decap.options import machine
from decap.options.args import at_least, output_file
from decap.options.types import Flag, Policy, Seed, Simulating, TaskName, shown
from decap.tasks import get_task

if TYPE_CHECKING:
  from decap.evaluation.rollout import Evaluation

MOSTLY_FALLS = 1.0
"""Falls per minute from which a profile is one of falling."""

STANDING_ENVS, STANDING_STEPS = 16, 250
"""How long robots are told to stand: what they need there is the least limit."""


@dataclass(kw_only=True)
class ProfileArgs(Simulating):
  """A nominal policy, and which quantiles become limits."""

  policy: Policy
  """Run folder, checkpoint or bundle folder."""
  output: Annotated[str, arg(metavar="FILE"), output_file] = "limits.yaml"
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
    Protocol(steps=self.steps)  # Or refuse them.

  def quantiles(self) -> dict[str, float]:
    """Group or scalar quantity → quantile."""
    return dict(map(_quantile, self.quantile))

  def run(self) -> None:
    """Measure, print quantiles and write the limits file."""
    machine.check_renderer()
    from rich.console import Console

    from decap.evaluation import profile as profiles
    from decap.evaluation.environment import measured_cfg
    from decap.evaluation.policies import load_policy

    checks.check_torch_device(self.device)
    policy = load_policy(self.policy, self.device)
    task, name = self.task or policy.info["task"] or "g1-flat", policy.info["name"]
    cfg = measured_cfg(task)
    scalars = [n for n, t in cfg.constraints.items() if not isinstance(t.limits, dict)]
    chosen = {**get_task(task).describe().profile_quantiles, **self.quantiles()}
    rule = profiles.complete_rule((*cfg.groups, *scalars), chosen)
    moving = self.measure(f"Measuring {name}", policy, task)
    _check_worth(moving.result.metrics, name, self.force)
    standing = self.measure(
      f"{name}, told to stand",
      policy,
      task,
      envs=min(self.envs, STANDING_ENVS),
      steps=min(self.steps, STANDING_STEPS),
      commands="fixed",
      command=(0.0, 0.0, 0.0),
    )
    assert moving.trajectory is not None and standing.trajectory is not None
    walking = profiles.profile_trajectory(moving.trajectory)
    needs = profiles.profile_trajectory(standing.trajectory)
    limits = profiles.propose_limits(walking, needs, rule)
    tables = profiles.joint_tables(walking) if self.joints else []
    for table in (profiles.row_table(walking, needs, limits), *tables):
      Console().print(table, crop=False)
    walked = {**policy.info, "task": task}
    profiles.write_limits(Path(self.output), limits, rule, walked, walking.layout)
    _warn(walking.share_above(limits), profiles.MAX_SHARE)
    print(f"Wrote {self.output}; use it with 'decap train --limits {self.output}'.")

  def measure(self, title: str, policy: Any, task: str, **changed: Any) -> Evaluation:
    """All of its robots, recorded, under random commands as in training if not changed."""
    protocol = Protocol(task, 1, self.envs, self.steps, per_command=0, seed=self.seed)
    protocol = dataclasses.replace(protocol, **changed)
    where = {"device": self.device, "backend": self.backend}
    return evaluate_with_bar(title, policy, protocol, trajectory=protocol.envs, **where)


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
  group, _, value = text.partition("=")
  try:
    number = float(value)
  except ValueError:
    raise UserError(
      f"--quantile must be GROUP=Q, such as lower=0.99, not '{text}'."
    ) from None
  if not 0.0 < number < 1.0:
    raise UserError(f"The quantile of '{group}' must be in (0, 1), not {value}.")
  return group, number
