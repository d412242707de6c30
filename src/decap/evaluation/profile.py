"""Limits from measured motion: quantiles of a nominal policy, and the paper's rule.

The lower body's limits lie near its observed operating range, so that walking stays
possible; the upper body's lie towards the lower end, so that it becomes quieter. Both
are of the largest joint of a group at each step, which is what a limit bounds, and no
limit is below what the same policy needs to stand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from decap.errors import UserError, check_known
from decap.evaluation.layout import Layout, Limits, limits_by_row
from decap.evaluation.table_formats import numbers_table
from decap.evaluation.trajectory import Trajectory
from decap.files import write_text

QUANTILES = (0.5, 0.9, 0.99, 0.999)
"""Quantiles that a profile lists."""

STANDING_QUANTILE = 0.999
"""Share of the steps of a standing robot that a limit must leave alone."""

MAX_SHARE = 0.05
"""Share of the policy's own steps above a limit from which a warning is due."""

DEFAULT_QUANTILE = 0.99
"""Quantile that becomes a limit, where neither the robot nor the user says another."""


@dataclass(frozen=True)
class Profile:
  """What a policy's steps measured, by row of the constraints."""

  rows: dict[str, np.ndarray]
  """Row ("quantity/group", or a scalar quantity) -> largest joint of the group at each
  step that counts. # [N]"""
  joints: dict[str, dict[str, np.ndarray]]
  """Quantity -> joint -> value at each of these steps. # [N]"""
  layout: Layout

  def quantile(self, row: str, quantile: float) -> float:
    return float(np.quantile(self.rows[row], quantile))

  def share_above(self, limits: Limits) -> dict[str, float]:
    """Row -> share of the steps that exceed a limit."""
    bounds = limits_by_row(limits)
    # A NaN compares as false; it is no compliance.
    return {row: float((~(q <= bounds[row])).mean()) for row, q in self.rows.items()}


def profile_trajectory(trajectory: Trajectory) -> Profile:
  """All steps of a trajectory that count."""
  valid, layout = trajectory.valid.copy(), trajectory.layout
  names = layout.limits if valid.any() else ()
  values = {name: trajectory.quantity(name) for name in names}
  for value in values.values():  # [T, B, J] or [T, B]
    valid &= np.isfinite(value).reshape(*valid.shape, -1).all(-1)
  if not valid.any():
    raise UserError(
      "No step counts: every environment was reset before its warm-up of "
      f"{trajectory.protocol.get('warmup')} steps was over, or is not finite."
    )
  counted = {name: value[valid] for name, value in values.items()}  # [N, J] or [N]
  composition = layout.composition()
  q = composition.join({n: torch.from_numpy(q) for n, q in counted.items()})  # [N, C]
  peaks = composition.peaks(q).T.numpy()  # [K, N]
  joints = {
    name: dict(zip(layout.joint_names, counted[name].T, strict=True))
    for name in layout.joint_quantities
  }
  rows = dict(zip(composition.row_names, peaks, strict=True))
  return Profile(rows, joints, layout)


def complete_rule(
  known: Sequence[str], chosen: Mapping[str, float]
) -> dict[str, float]:
  """A quantile for every group and every scalar quantity, the chosen ones among them."""
  for name in chosen:
    check_known("group", name, known)
  return {**dict.fromkeys(known, DEFAULT_QUANTILE), **chosen}


def propose_limits(
  walking: Profile, standing: Profile, rule: Mapping[str, float]
) -> Limits:
  """Limits by row, to three significant digits; `complete_rule` adds to the rule.

  What the policy needs at zero command, nearly always, is the least that is proposed:
  a robot that stands must not violate.
  """
  layout = walking.layout
  rule = complete_rule((*layout.groups, *layout.scalars), rule)
  limits: Limits = {}
  for row in layout.composition().rows:
    quantile = rule[row.group or row.quantity]
    wanted = walking.quantile(row.name, quantile)
    limit = _round_up(max(wanted, standing.quantile(row.name, STANDING_QUANTILE)))
    if limit <= 0.0:
      raise UserError(
        f"The quantile {quantile} of {row.name} is 0: no limit can follow from a "
        "policy that does not move."
      )
    if row.group:
      limits.setdefault(row.quantity, {})[row.group] = limit
    else:
      limits[row.quantity] = limit
  return limits


def _round_up(value: float) -> float:
  """To three significant digits, upwards."""
  if value <= 0.0:
    return 0.0
  step = 10.0 ** (math.floor(math.log10(value)) - 2)
  return float(f"{math.ceil(value / step - 1e-3) * step:.3g}")


def write_limits(
  path: Path,
  limits: Limits,
  rule: Mapping[str, float],
  policy: Mapping[str, Any],
  layout: Layout,
) -> None:
  """Write a limits file for `decap train --limits`; `policy` says where it walked."""
  import yaml

  rules = ", ".join(f"{group}: quantile {q:g}" for group, q in rule.items())
  lines = [
    f"# Limits measured on {policy.get('source')} ({policy.get('task') or 'task'}).",
    f"# {rules}.",
    "limits:",
  ]
  for name, values in limits.items():
    unit = f"  # {layout.unit(name)}" if layout.unit(name) else ""
    head, *rest = yaml.safe_dump({name: values}, sort_keys=False).splitlines()
    lines += [f"  {line}" for line in (head + unit, *rest)]
  write_text(path, "\n".join(lines) + "\n")


def row_table(walking: Profile, standing: Profile, limits: Limits) -> Any:
  """What was measured, what it needs to stand, and what is proposed of it."""
  shares, bounds = walking.share_above(limits), limits_by_row(limits)
  heads = ("Row", *(f"{100 * q:g} %" for q in QUANTILES), "standing", "limit", "above")
  lines = []
  for row in walking.rows:
    unit = walking.layout.unit(row.split("/")[0])
    values = [walking.quantile(row, q) for q in QUANTILES]
    needs = standing.quantile(row, STANDING_QUANTILE)
    texts = map(_digits, (*values, needs, bounds[row]))
    lines.append((f"{row} ({unit})" if unit else row, *texts, f"{shares[row]:.1%}"))
  return numbers_table("Proposed limits", heads, lines)


def joint_tables(profile: Profile) -> list[Any]:
  """Quantiles by joint, a table per quantity, for the terminal."""
  heads = ("Joint", *(f"{100 * q:g} %" for q in QUANTILES))
  return [
    numbers_table(
      f"{profile.layout.named(name)} by joint",
      heads,
      [
        (joint, *map(_digits, np.quantile(values, QUANTILES)))
        for joint, values in joints.items()
      ],
    )
    for name, joints in profile.joints.items()
  ]


def _digits(value: float) -> str:
  """Three significant digits without an exponent."""
  return f"{value:.0f}" if value >= 100.0 else f"{value:.3g}"
