"""All constraints of a robot side by side: rows, δ, δ̄, costs and margins.

An environment, an evaluation, an algorithm and a script with another simulator all
compose their quantities here, so that their numbers can never disagree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from decap import collective
from decap.constraints.groups import BodyGroupCfg, per_joint, resolve_groups
from decap.constraints.termination import (
  TerminationCfg,
  ViolationScale,
  cat_probability,
  decap_probability,
  largest_finite,
)

Limits = Mapping[str, Mapping[str, float] | float]
"""Quantity → limit ε per body group, or one number for a scalar quantity."""

SCALAR_P_MAX = 0.25
"""Termination probability at the limit of a scalar quantity, where none is given."""


@dataclass(frozen=True)
class ConstraintRow:
  """What is reported as one line: a quantity within a group, or a scalar quantity."""

  quantity: str
  group: str | None
  """None for a scalar."""
  columns: tuple[int, ...]
  limit: float

  @property
  def name(self) -> str:
    """ "quantity/group", or "quantity" for a scalar."""
    return self.quantity if self.group is None else f"{self.quantity}/{self.group}"


class Composition:
  """Turns quantities into termination probabilities and costs, row by row.

  All quantities stand side by side in one tensor q [B, C], a column per joint for each
  joint quantity and one for each scalar, in the order of the limits. ``limit`` and
  ``p_max`` are tensors [C] that may be changed in place at any time, also between
  replays of a CUDA graph; nothing here waits for the device.
  """

  def __init__(
    self,
    limits: Limits,
    groups: Mapping[str, BodyGroupCfg],
    joint_names: Sequence[str],
    termination: TerminationCfg | None = None,
    *,
    scalar_p_max: Mapping[str, float] | None = None,
    device: torch.device | str = "cpu",
  ) -> None:
    """Checks limits and groups, and lays out columns and rows.

    Args:
      limits: Limits by quantity; their order is that of the columns.
      groups: Body groups; together they hold every joint once. May be empty where all
        quantities are scalars.
      joint_names: Joints in the order of the quantities' columns.
      termination: How closeness to a limit becomes a probability.
      scalar_p_max: Probability at the limit of scalar quantities, by name.
      device: Where the quantities will be.
    """
    if not limits:
      raise ValueError("an environment needs at least one constraint")
    self.termination = termination or TerminationCfg()
    self.num_joints = len(joint_names)
    self.rows: list[ConstraintRow] = []
    self.columns: dict[str, slice | int] = {}
    """Quantity → its columns in q: a slice of all joints, or a scalar's index."""
    values = torch.empty(2, 0)  # Limits and p_max.
    for name, limit in limits.items():
      start = values.shape[1]
      if isinstance(limit, (int, float)):
        p_max = (scalar_p_max or {}).get(name, SCALAR_P_MAX)
        more = self._lay_out_scalar(name, start, limit, p_max)
      else:
        more = self._lay_out_joints(name, start, limit, groups, joint_names)
      values = torch.cat((values, more), 1)  # [2, C]
    self.limit, self.p_max = (row.to(device, copy=True) for row in values)  # [C]
    width = max(len(row.columns) for row in self.rows)
    # Shorter rows repeat their first column, which changes no maximum.
    padded = [r.columns + (r.columns[0],) * (width - len(r.columns)) for r in self.rows]
    self.row_columns = torch.tensor(padded, device=device)  # [K, M]
    self.row_limit = torch.tensor([r.limit for r in self.rows], device=device)  # [K]
    self.scale = self.new_scale()
    """Running violation scale c̄ of the limits."""
    self.shared = False
    """Whether c̄ is one for all processes that train together, which then all call."""

  # Properties.

  @property
  def row_names(self) -> tuple[str, ...]:
    """Names of the columns of row tensors: "quantity/group", or "quantity"."""
    return tuple(row.name for row in self.rows)

  # Methods.

  def join(self, quantities: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """All quantities as q, after a check of their shapes. # [B, C]

    Args:
      quantities: Quantity → values, [B, J] for joints or [B] for a scalar.
    """
    parts = []
    batch = max(value.shape[0] if value.dim() else 0 for value in quantities.values())
    for name, column in self.columns.items():
      value = quantities[name]
      joints = () if isinstance(column, int) else (self.num_joints,)
      expected = (batch, *joints)
      if tuple(value.shape) != expected:
        raise ValueError(
          f"constraint '{name}' returned shape {tuple(value.shape)}, "
          f"expected {expected}"
        )
      parts.append(value if joints else value.unsqueeze(1))
    return torch.cat(parts, dim=1)

  def split(self, q: torch.Tensor) -> dict[str, torch.Tensor]:
    """Views of columns by quantity: [B, J], or [B] for a scalar."""
    return {name: q[:, column] for name, column in self.columns.items()}

  def report(self, quantities: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """What an environment puts into ``extras["constraints"]``; once per control step.

    Args:
      quantities: Quantity → values, [B, J] for joints or [B] for a scalar; measured
        after the physics and before any reset.
    """
    q = self.join(quantities)  # [B, C]
    delta, _ = self.decided(self.probabilities(q))
    return self.reported(q, delta, self.costs(q))

  def reported(
    self, q: torch.Tensor, delta: torch.Tensor, costs: torch.Tensor
  ) -> dict[str, Any]:
    """The report, of what is known already. # [B, C], [B], [B, K]"""
    return {
      "delta": delta,
      "costs": costs,
      "quantities": self.split(q),
      "margins": self.split(self.margins(q)),
    }

  def probabilities(
    self,
    q: torch.Tensor,
    highest: torch.Tensor | None = None,
    limit: torch.Tensor | None = None,
    scale: ViolationScale | None = None,
  ) -> torch.Tensor:
    """δ of each row, the largest of its joints (Eq. 2 to 4), and c̄ moved on. # [B, K]

    Args:
      q: Quantities. # [B, C]
      highest: ``largest_finite(q)``, where it is known already. # [C]
      limit: Limits in place of the composition's own, with a ``scale`` of their own.
      scale: Their running violation scale.
    """
    cfg = self.termination
    limit = self.limit if limit is None else limit
    scale = self.scale if scale is None else scale
    highest = largest_finite(q) if highest is None else highest
    if self.shared:
      highest = collective.maximum(highest)
    scale.update_largest(highest - limit)
    if cfg.rule == "cat":
      delta = cat_probability(q, limit, self.p_max, scale.value)
    else:
      delta = decap_probability(
        q,
        limit,
        self.p_max,
        scale.value,
        rho=cfg.rho,
        kappa=cfg.kappa,
        barrier=cfg.barrier,
      )
    return self.peaks(delta)

  def decided(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """δ̄, the largest δ of all rows, and the row that decides it. # [B, K] -> 2 × [B]"""
    return rows.max(-1)

  def peaks(self, values: torch.Tensor) -> torch.Tensor:
    """The largest of each row's columns. # [B, C] -> [B, K]"""
    return values[:, self.row_columns].amax(2)

  # A NaN compares as false; it is no compliance.

  def beyond(self, q: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    """Where the barrier has ended (Eq. 4): at a limit, or above it. # [B, C]"""
    return ~(q < limit)

  def above(self, q: torch.Tensor) -> torch.Tensor:
    """Where a limit is violated. # [B, C]"""
    return ~(q <= self.limit)

  def costs(self, q: torch.Tensor) -> torch.Tensor:
    """1 where any joint of a row is above its limit, else 0. # [B, C] -> [B, K]"""
    peak = self.peaks(q)  # [B, K]
    return torch.logical_not(peak <= self.row_limit, out=torch.empty_like(peak))

  def margins(self, q: torch.Tensor) -> torch.Tensor:
    """q / ε: 1 is at the limit. # [B, C]"""
    return q / self.limit

  def new_scale(self) -> ViolationScale:
    """A fresh violation scale. # [C]"""
    return ViolationScale(
      self.limit.shape,
      floor=self.termination.floor(self.limit),
      decay=self.termination.scale_decay,
      device=self.limit.device,
    )

  def set_limit(self, row: str, limit: float) -> None:
    """Changes the limit of one row in place, for example ``"joint_vel/upper"``."""
    if row not in self.row_names:
      raise ValueError(f"no constraint '{row}'; there are {', '.join(self.row_names)}")
    if not 0 < limit < math.inf:
      raise ValueError(f"the limit of '{row}' must be above 0, not {limit}")
    k = self.row_names.index(row)
    self.limit[self.row_columns[k]] = limit
    self.row_limit[k] = limit
    self.rows[k] = replace(self.rows[k], limit=limit)
    # The least violation that counts is a share of the limit.
    self.scale.floor.copy_(self.termination.floor(self.limit))

  # Private methods.

  def _lay_out_joints(
    self,
    name: str,
    start: int,
    limits: Mapping[str, float],
    groups: Mapping[str, BodyGroupCfg],
    joint_names: Sequence[str],
  ) -> torch.Tensor:
    """Adds a joint quantity's rows; its limits and p_max. # [2, J]"""
    resolved = resolve_groups(groups, joint_names)
    try:
      limit = per_joint(limits, resolved, self.num_joints)
    except ValueError as error:
      raise ValueError(f"constraint '{name}': {error}") from None
    self.columns[name] = slice(start, start + self.num_joints)
    for group, joints in resolved.items():
      columns = tuple(start + joint for joint in joints)
      self.rows.append(ConstraintRow(name, group, columns, limits[group]))
    p_max = {group: cfg.p_max for group, cfg in groups.items()}
    return torch.stack((limit, per_joint(p_max, resolved, self.num_joints)))

  def _lay_out_scalar(
    self, name: str, start: int, limit: float, p_max: float
  ) -> torch.Tensor:
    """Adds a scalar quantity's row; its limit and p_max. # [2, 1]"""
    if not 0 < limit < math.inf:
      raise ValueError(f"constraint '{name}': the limit must be above 0")
    if not 0 < p_max < 1:
      raise ValueError(f"constraint '{name}': p_max must be between 0 and 1")
    self.columns[name] = start
    self.rows.append(ConstraintRow(name, None, (start,), limit))
    return torch.tensor([[limit], [p_max]])
