"""Limits from measured motion: quantiles of a nominal policy, and the paper's rule.

The lower body's limits lie near its observed operating range, so that walking stays
possible; the upper body's lie towards the lower end, so that it becomes quieter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from decap.errors import UserError
from decap.evaluation.layout import QUANTITIES, UNITS, Limits
from decap.evaluation.metrics import measure_trajectory
from decap.evaluation.trajectory import Trajectory
from decap.files import write_text

QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
"""Quantiles that a profile lists."""

DEFAULT_RULE = {"upper": 0.5, "lower": 0.99}
"""Group -> quantile that becomes its limit."""


@dataclass(frozen=True)
class Profile:
  """Quantiles of every quantity, per group and per joint, in the layout's units."""

  quantiles: tuple[float, ...]
  groups: dict[str, dict[str, list[float]]]
  """Group -> quantity -> value per quantile, over all joint-steps of the group."""
  joints: dict[str, dict[str, list[float]]]
  """Joint -> quantity -> value per quantile."""


def profile_trajectory(
  trajectory: Trajectory, quantiles: Sequence[float] = QUANTILES
) -> Profile:
  """Quantiles over the steps that count."""
  values = measure_trajectory(trajectory)
  valid, layout = trajectory.valid, trajectory.layout
  if not valid.any():
    raise UserError(
      "No step counts: every environment was reset before its warm-up of "
      f"{trajectory.protocol.get('warmup')} steps was over."
    )
  counted = {name: values[name][valid] for name in QUANTITIES}  # [N, J]

  def of(columns: list[int]) -> dict[str, list[float]]:
    return {
      name: np.asarray(np.quantile(counted[name][:, columns], quantiles)).tolist()
      for name in QUANTITIES
    }

  return Profile(
    tuple(quantiles),
    {group: of(list(indices)) for group, indices in layout.groups.items()},
    {name: of([j]) for j, name in enumerate(layout.joint_names)},
  )


def propose_limits(trajectory: Trajectory, rule: Mapping[str, float]) -> Limits:
  """Limits by group: the quantile of `rule`, to three significant digits.

  Args:
    rule: Group -> quantile, for every group.
  """
  groups = trajectory.layout.groups
  for group in groups:
    if group not in rule:
      raise UserError(f"There is no quantile for the group '{group}'.")
  for group, quantile in rule.items():
    if group not in groups:
      raise UserError(f"Unknown group '{group}' (there are {', '.join(groups)}).")
    if not 0.0 < quantile < 1.0:
      raise UserError(f"The quantile of '{group}' must be in (0, 1), not {quantile}.")
  limits: Limits = {name: {} for name in QUANTITIES}
  for group in groups:
    profile = profile_trajectory(trajectory, (rule[group],))
    for name in QUANTITIES:
      limit = float(f"{profile.groups[group][name][0]:.3g}")
      if limit <= 0.0:
        raise UserError(
          f"The quantile {rule[group]} of {name}/{group} is 0: no limit can follow from "
          "a policy that does not move."
        )
      limits[name][group] = limit
  return limits


def write_limits(
  path: Path, limits: Limits, rule: Mapping[str, float], policy: Mapping[str, Any]
) -> None:
  """Write a limits file for `decap train --limits`."""
  rules = ", ".join(f"{group}: quantile {q:g}" for group, q in rule.items())
  lines = [
    f"# Limits measured on {policy.get('source')} ({policy.get('task') or 'task'}).",
    f"# {rules}.",
    "limits:",
  ]
  for name, values in limits.items():
    lines.append(f"  {name}:  # {UNITS[name]}")
    lines += [f"    {group}: {value!r}" for group, value in values.items()]
  write_text(path, "\n".join(lines) + "\n")


def group_table(profile: Profile) -> Any:
  """Quantiles by group and quantity, for the terminal."""
  rows = [
    (group, f"{name} ({UNITS[name]})", *values)
    for group, quantities in profile.groups.items()
    for name, values in quantities.items()
  ]
  return _table("Quantiles by body group", ("Group", "Quantity"), rows, profile)


def joint_tables(profile: Profile) -> list[Any]:
  """Quantiles by joint, a table per quantity, for the terminal."""
  return [
    _table(
      f"{name} ({UNITS[name]}) by joint",
      ("Joint",),
      [(joint, *quantities[name]) for joint, quantities in profile.joints.items()],
      profile,
    )
    for name in QUANTITIES
  ]


def _table(
  title: str, leads: Sequence[str], rows: Sequence[Sequence[Any]], profile: Profile
) -> Any:
  from rich import box
  from rich.table import Table

  table = Table(title=title, box=box.SIMPLE_HEAD)
  for lead in leads:
    table.add_column(lead)
  for quantile in profile.quantiles:
    table.add_column(f"{100 * quantile:g} %", justify="right")
  for row in rows:
    table.add_row(*(v if isinstance(v, str) else f"{v:.3g}" for v in row))
  return table
