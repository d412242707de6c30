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
from decap.evaluation.layout import Layout, Limits
from decap.evaluation.metrics import measure_trajectory
from decap.evaluation.trajectory import Trajectory
from decap.files import write_text

QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
"""Quantiles that a profile lists."""

DEFAULT_QUANTILE = 0.99
"""Quantile that becomes a limit, where neither the robot nor the user says another."""


@dataclass(frozen=True)
class Profile:
  """Quantiles of every quantity, per group and per joint, in the layout's units."""

  quantiles: tuple[float, ...]
  groups: dict[str, dict[str, list[float]]]
  """Group -> quantity -> value per quantile, over all joint-steps of the group."""
  joints: dict[str, dict[str, list[float]]]
  """Joint -> quantity -> value per quantile."""
  scalars: dict[str, list[float]]
  """Scalar quantity -> value per quantile, over all steps."""
  layout: Layout


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
  counted = {name: values[name][valid] for name in layout.limits}  # [N, J] or [N]

  def quantiles_of(array: np.ndarray) -> list[float]:
    return np.asarray(np.quantile(array, quantiles)).tolist()

  def of(columns: list[int]) -> dict[str, list[float]]:
    names = layout.joint_quantities
    return {name: quantiles_of(counted[name][:, columns]) for name in names}

  return Profile(
    tuple(quantiles),
    {group: of(list(indices)) for group, indices in layout.groups.items()},
    {name: of([j]) for j, name in enumerate(layout.joint_names)},
    {name: quantiles_of(counted[name]) for name in layout.scalars},
    layout,
  )


def complete_rule(layout: Layout, chosen: Mapping[str, float]) -> dict[str, float]:
  """A quantile for every group and every scalar quantity, the chosen ones among them."""
  known = (*layout.groups, *layout.scalars)
  for name, quantile in chosen.items():
    if name not in known:
      raise UserError(f"Unknown group '{name}' (there are {', '.join(known)}).")
    if not 0.0 < quantile < 1.0:
      raise UserError(f"The quantile of '{name}' must be in (0, 1), not {quantile}.")
  return {**dict.fromkeys(known, DEFAULT_QUANTILE), **chosen}


def propose_limits(trajectory: Trajectory, rule: Mapping[str, float]) -> Limits:
  """Limits by group: the quantile of the rule, to three significant digits.

  Args:
    rule: Group, or scalar quantity -> quantile; `complete_rule` says the others.
  """
  layout = trajectory.layout
  rule = complete_rule(layout, rule)
  profiles = {q: profile_trajectory(trajectory, (q,)) for q in set(rule.values())}

  def limit(value: float, row: str, quantile: float) -> float:
    rounded = float(f"{value:.3g}")
    if rounded <= 0.0:
      raise UserError(
        f"The quantile {quantile} of {row} is 0: no limit can follow from a policy "
        "that does not move."
      )
    return rounded

  limits: Limits = {}
  for name in layout.limits:
    if name in layout.scalars:
      q = rule[name]
      limits[name] = limit(profiles[q].scalars[name][0], name, q)
      continue
    limits[name] = {}
    for group in layout.groups:
      q = rule[group]
      value = profiles[q].groups[group][name][0]
      limits[name][group] = limit(value, f"{name}/{group}", q)
  return limits


def write_limits(
  path: Path,
  limits: Limits,
  rule: Mapping[str, float],
  policy: Mapping[str, Any],
  layout: Layout,
) -> None:
  """Write a limits file for `decap train --limits`."""
  rules = ", ".join(f"{group}: quantile {q:g}" for group, q in rule.items())
  lines = [
    f"# Limits measured on {policy.get('source')} ({policy.get('task') or 'task'}).",
    f"# {rules}.",
    "limits:",
  ]
  for name, values in limits.items():
    unit = f"  # {layout.unit(name)}" if layout.unit(name) else ""
    if name in layout.scalars:
      lines.append(f"  {name}: {values!r}{unit}")
      continue
    lines.append(f"  {name}:{unit}")
    lines += [f"    {group}: {value!r}" for group, value in values.items()]
  write_text(path, "\n".join(lines) + "\n")


def group_table(profile: Profile) -> Any:
  """Quantiles by group and quantity, for the terminal."""
  rows = [
    (group, _with_unit(profile, name), *values)
    for group, quantities in profile.groups.items()
    for name, values in quantities.items()
  ]
  rows += [
    ("", _with_unit(profile, name), *values) for name, values in profile.scalars.items()
  ]
  return _table("Quantiles by body group", ("Group", "Quantity"), rows, profile)


def joint_tables(profile: Profile) -> list[Any]:
  """Quantiles by joint, a table per quantity, for the terminal."""
  return [
    _table(
      f"{_with_unit(profile, name)} by joint",
      ("Joint",),
      [(joint, *quantities[name]) for joint, quantities in profile.joints.items()],
      profile,
    )
    for name in profile.layout.joint_quantities
  ]


def _with_unit(profile: Profile, name: str) -> str:
  unit = profile.layout.unit(name)
  return f"{name} ({unit})" if unit else name


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
