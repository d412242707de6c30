"""What keeps a useful horizon while a policy is far from feasible.

A policy that starts from noise violates nearly everywhere: δ̄ is close to 1 and nothing
beyond the next step counts, so there is nothing to learn from. The aid lets limits start
at what the policy does, caps the population's mean termination probability by a budget,
and moves that budget by what the robots achieve: up while they do as they are told, down
while they do not. A scarce budget is spent on steps beyond a limit first, and what is
left of it on the barrier below. Where the budget is above the mean, δ̄ is Eq. 4's, whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from decap import collective
from decap.constraints.composition import Composition
from decap.constraints.ema import update_ema
from decap.rl.config import FeasibilityCfg
from decap.rl.progress import Progress

SAMPLES = 512
"""Environments, evenly spread, from which the policy's quantiles are taken: so many, or
up to twice as many where their number is no multiple."""

TINY = 1e-12
"""A mean below it is none."""


class Feasibility:
  """δ̄ under annealed limits, within a budget.

  The composition is the environment's: a change of its limits takes effect.
  """

  def __init__(self, cfg: FeasibilityCfg, composition: Composition) -> None:
    self.cfg, self.composition = cfg, composition
    limit = composition.limit  # [C]
    self.annealed = None if cfg.quantile is None else AnnealedLimit(limit, cfg)
    self.scale = composition.new_scale()
    self.mean = torch.zeros(2, device=limit.device)
    """Running mean of δ̄ at steps beyond a limit, and of that at the others."""
    self.shares = torch.ones(2, device=limit.device)
    """How much of each is applied."""
    self.gain = torch.ones((), device=limit.device)
    self.budget = torch.full((), cfg.budget, device=limit.device)

  def apply(self, quantities: Mapping[str, Tensor], delta: Tensor) -> Tensor:
    """The δ̄ to apply, from the environment's quantities and δ̄ of Eq. 4. # [B]"""
    q = self.composition.join(quantities)  # [B, C]
    limit = self.composition.limit
    if self.annealed is not None:
      limit = self.annealed.update(q)
      rows = self.composition.probabilities(q, limit=limit, scale=self.scale)
      delta, _ = self.composition.decided(rows)
    beyond = self.composition.beyond(q, limit).any(1).to(delta.dtype)  # [B]
    parts = torch.stack((delta * beyond, delta * (1.0 - beyond)))  # [2, B]
    self.mean.lerp_(collective.mean(parts.mean(1)), self.gain)
    self.gain.fill_(1.0 - self.cfg.decay)
    # Each part takes what the one before it has left of the budget.
    left = self.budget - torch.nn.functional.pad(self.mean[:1], (1, 0))
    share = left.clamp(min=0.0) / self.mean.clamp(min=TINY)
    torch.clamp(share, max=1.0, out=self.shares)
    return (parts * self.shares.unsqueeze(1)).sum(0)

  def between_iterations(self, progress: Progress) -> None:
    """Move the budget by what the robots achieve, once they stay on their feet."""
    cfg = self.cfg
    composition = self.composition
    self.scale.floor.copy_(composition.termination.floor(composition.limit))
    if cfg.target is None:
      return
    # What the task itself does not pay for cannot be waited for.
    target = (cfg.keep * progress.best).clamp(max=cfg.target)
    # The weakest decides: in the mean, what is easy would pay for what is given up.
    slack = ((progress.achieved - target) / cfg.tolerance).clamp(-1.0, 1.0)
    # Gentle steps differ from the clock by a moment; walking is asked for, not that.
    slack = slack.masked_fill(progress.gait | ~progress.asked, 1.0).amin()
    factor = torch.exp(torch.where(slack < 0.0, 3.0 * cfg.rate, cfg.rate) * slack)
    factor = torch.where(progress.steady_iterations > 0.0, factor, 1.0)
    self.budget.mul_(factor).clamp_(*cfg.budget_range)

  def metrics(self) -> dict[str, Tensor]:
    """The state of the aid, for the log."""
    return {
      "Constraint/budget": self.budget.clone(),
      "Constraint/barrier_applied": self.shares[1].clone(),
    }

  def load_state_dict(self, state: dict[str, Tensor]) -> None:
    for name, tensor in self.state_dict().items():
      tensor.copy_(state[name])

  def state_dict(self) -> dict[str, Tensor]:
    """Its tensors themselves."""
    state = {"mean": self.mean, "gain": self.gain, "budget": self.budget}
    state |= {"scale": self.scale.value, "scale_gain": self.scale.gain}
    if self.annealed is not None:
      state |= {"limits": self.annealed.average, "limits_gain": self.annealed.gain}
    return state


class AnnealedLimit:
  """Limits that start near the policy's own high quantile and end at ε.

  The effective limit is max(ε, shrink · EMA of the batch quantile of q), per joint: as
  the policy becomes smoother its limit follows, until it is ε. The limits are kept by
  reference, so that a change of them in place takes effect.
  """

  def __init__(self, limit: Tensor, cfg: FeasibilityCfg) -> None:
    self.cfg = cfg
    self.limit = limit  # [J]
    self.average = limit.clone()  # [J]
    self.gain = torch.ones_like(limit)  # [J]

  def update(self, q: Tensor) -> Tensor:
    """Take in the quantities of this step and return the limits to apply. # [J]

    kthvalue puts NaN and infinity last; a quantile that reaches them is left out.

    Args:
      q: Constrained quantity of all environments. # [B, J]
    """
    assert self.cfg.quantile is not None
    # Some hundred environments tell a quantile well enough, at a fraction of the cost.
    q = q[:: max(1, q.shape[0] // SAMPLES)]
    rank = max(1, math.ceil(self.cfg.quantile * q.shape[0]))
    high = collective.mean(q.kthvalue(rank, dim=0).values)  # [J]
    heard = high.abs() < torch.inf
    update_ema(self.average, self.gain, high, heard, self.cfg.decay)
    return torch.maximum(self.limit, self.average * self.cfg.shrink)
