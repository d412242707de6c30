"""What keeps a useful horizon while a policy is far from feasible.

A policy that starts from noise violates nearly everywhere: δ̄ is close to 1 and nothing
beyond the next step counts, so there is nothing to learn from. Each aid loosens the
constraints by as much as the population violates them, and is exactly the paper's
equation once the policy complies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from decap.constraints.average import average_in_place

MAX_SAMPLES = 512
"""Environments, evenly spread, from which the policy's quantiles are taken."""


@dataclass
class FeasibilityCfg:
  """Which aids are in force, and their values."""

  budget: float | None = 0.04
  """Largest mean termination probability over the population; its inverse is the
  horizon in steps that violations leave. None: no cap."""
  scope: Literal["total", "row"] = "total"
  """total: the budget caps the mean of δ̄. row: it caps each constraint row's own mean,
  so that a limit which cannot be met does not weaken those which can."""
  quantile: float | None = None
  """Limits start at this quantile of the policy's own quantities and shrink to ε, in
  (0, 1]. None: limits are ε from the start."""
  shrink: float = 0.9
  """Limit over that quantile, in (0, 1]; below 1 it always pulls."""
  decay: float = 0.99
  """Decay of the running averages per control step, in [0, 1)."""

  def __post_init__(self) -> None:
    if self.scope not in ("total", "row"):
      raise ValueError(f"scope must be 'total' or 'row', got '{self.scope}'.")
    if not 0.0 <= self.decay < 1.0:
      raise ValueError(f"decay must be in [0, 1), got {self.decay}.")
    for name in ("budget", "quantile", "shrink"):
      value = getattr(self, name)
      if value is not None and not 0.0 < value <= 1.0:
        raise ValueError(f"{name} must be in (0, 1], got {value}.")


class Feasibility:
  """Cap on mean termination probabilities: scaled by budget / mean, at most 1."""

  def __init__(
    self,
    cfg: FeasibilityCfg,
    num_rows: int = 1,
    device: torch.device | str = "cpu",
  ) -> None:
    self.cfg = cfg
    shape = (num_rows,) if cfg.scope == "row" else ()
    self.mean = torch.zeros(shape, device=device)
    self.gain = torch.ones(shape, device=device)

  def scale(self, delta: torch.Tensor) -> torch.Tensor:
    """Take in δ of this step and return it scaled.

    Args:
      delta: Probabilities by row, or δ̄ where the scope is total. # [B, K], or [B]
    """
    assert self.cfg.budget is not None
    self.mean.lerp_(delta.mean(0), self.gain)
    self.gain.fill_(1.0 - self.cfg.decay)
    return delta / (self.mean / self.cfg.budget).clamp(min=1.0)


class AnnealedLimit:
  """Limits that start near the policy's own high quantile and end at ε.

  The effective limit is max(ε, shrink · EMA of the batch quantile of q), per joint: as
  the policy becomes smoother its limit follows, until it is ε. The limits are kept by
  reference, so that a change of them in place takes effect.
  """

  def __init__(self, limit: torch.Tensor, cfg: FeasibilityCfg) -> None:
    self.cfg = cfg
    self.limit = limit  # [J]
    self.average = limit.clone()  # [J]
    self.gain = torch.ones_like(limit)  # [J]

  def update(self, q: torch.Tensor) -> torch.Tensor:
    """Take in the quantities of this step and return the limits to apply. # [J]

    kthvalue puts NaN and infinity last; a quantile that reaches them is left out.

    Args:
      q: Constrained quantity of all environments. # [B, J]
    """
    assert self.cfg.quantile is not None
    # Some hundred environments tell a quantile well enough, at a fraction of the cost.
    q = q[:: max(1, q.shape[0] // MAX_SAMPLES)]
    rank = max(1, math.ceil(self.cfg.quantile * q.shape[0]))
    high = q.kthvalue(rank, dim=0).values  # [J]
    heard = high < torch.inf
    average_in_place(self.average, self.gain, high, heard, self.cfg.decay)
    return torch.maximum(self.limit, self.average * self.cfg.shrink)
