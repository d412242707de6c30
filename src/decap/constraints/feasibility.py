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

GUARD_ITERATIONS = 40
"""Iterations over which a guard averages rewards, and before it counts their best."""

MIN_BUDGET = 1e-9
"""What is left of a budget that the task cannot afford."""

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
  keep: float | None = None
  """Share of the best task reward below which nothing is enforced any more, in [0, 1):
  the budget falls linearly to zero as the reward falls from its best to there, and comes
  back with it. None: the budget stays."""
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
    if self.keep is not None and not 0.0 <= self.keep < 1.0:
      raise ValueError(f"keep must be in [0, 1), got {self.keep}.")


class Feasibility:
  """Cap on mean termination probabilities: scaled by budget / mean, at most 1."""

  def __init__(
    self,
    cfg: FeasibilityCfg,
    num_rows: int = 1,
    device: torch.device | str = "cpu",
  ) -> None:
    assert cfg.budget is not None
    self.cfg = cfg
    shape = (num_rows,) if cfg.scope == "row" else ()
    self.mean = torch.zeros(shape, device=device)
    self.gain = torch.ones(shape, device=device)
    self.budget = torch.full((), cfg.budget, device=device)
    self.guard = None if cfg.keep is None else RewardGuard(cfg.keep, device)

  def scale(self, delta: torch.Tensor) -> torch.Tensor:
    """Take in δ of this step and return it scaled.

    Args:
      delta: Probabilities by row, or δ̄ where the scope is total. # [B, K], or [B]
    """
    self.mean.lerp_(delta.mean(0), self.gain)
    self.gain.fill_(1.0 - self.cfg.decay)
    return delta / (self.mean / self.budget).clamp(min=1.0)

  def between_iterations(self) -> None:
    """Set the budget by the rewards that the guard has heard since the last call."""
    if self.guard is not None:
      share = self.guard.share()
      self.budget.copy_((self.cfg.budget * share).clamp(min=MIN_BUDGET))


class RewardGuard:
  """How much of the budget the task can afford.

  Ending returns early favours what is safe: where standing still earns nearly as much
  as walking, a policy that walks and violates is worth less than one that stands.
  """

  def __init__(self, keep: float, device: torch.device | str = "cpu") -> None:
    self._margin = 1.0 - keep
    self.sum, self.steps, self.iterations, self.average, self.best = (
      torch.zeros((), device=device) for _ in range(5)
    )

  def hear(self, reward: torch.Tensor) -> None:
    """Take in what the task paid for a step. # [B]"""
    self.sum.add_(reward.mean())
    self.steps.add_(1.0)

  def share(self) -> torch.Tensor:
    """1 at the best mean reward so far, 0 below its share that is kept."""
    self.iterations.add_(1.0)
    gain = self.iterations.reciprocal().clamp(min=1.0 / GUARD_ITERATIONS)
    self.average.lerp_(self.sum / self.steps.clamp(min=1.0), gain)
    self.sum.zero_()
    self.steps.zero_()
    # The first rewards are of robots that have just been put on their feet.
    best = torch.maximum(self.best, self.average)
    early = self.iterations <= GUARD_ITERATIONS
    torch.where(early, self.average, best, out=self.best)
    lost = (self.best - self.average) / (self.best.abs() * self._margin + 1e-12)
    return (1.0 - lost).clamp(min=0.0)


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
    heard = high.abs() < torch.inf
    average_in_place(self.average, self.gain, high, heard, self.cfg.decay)
    return torch.maximum(self.limit, self.average * self.cfg.shrink)
