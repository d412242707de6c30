"""Returns that continue with the probability of survival."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from decap import collective


def survival_gae(
  rewards: Tensor,  # [T, B]
  values: Tensor,  # [T, B]
  last_values: Tensor,  # [B]
  dones: Tensor,  # [T, B]
  delta: Tensor,  # [T, B]
  gamma: float,
  lam: float,
) -> tuple[Tensor, Tensor]:
  """Survival-adjusted generalised advantage estimation: (returns, advantages) [T, B].

  TD_t = r_t + γ (1 − d_t)(1 − δ̄_t) V_{t+1} − V_t
  A_t = TD_t + γ λ (1 − d_t)(1 − δ̄_t) A_{t+1}

  The reward of step t is not scaled by its own δ̄_t; all that follows it is. With
  δ̄ = 0 this is the usual estimator. Trailing dimensions (one per cost, say) are
  allowed where `dones` and `delta` broadcast over them.
  """
  survival = (1.0 - dones.to(values.dtype)) * (1.0 - delta)
  advantages = torch.empty_like(values)
  next_values, advantage = last_values, torch.zeros_like(last_values)
  for step in reversed(range(rewards.shape[0])):
    discount = gamma * survival[step]
    td = rewards[step] + discount * next_values - values[step]
    advantage = td + lam * discount * advantage
    advantages[step] = advantage
    next_values = values[step]
  return advantages + values, advantages


def standardise(advantages: Tensor, dims: tuple[int, ...] = (0, 1)) -> Tensor:
  """Zero mean and unit deviation over `dims`, as PPO wants its advantages."""
  mean = collective.mean(advantages.mean(dim=dims, keepdim=True))
  centred = advantages - mean
  if collective.size() == 1:
    std = advantages.std(dim=dims, keepdim=True)
  else:
    count = collective.size() * math.prod(advantages.shape[dim] for dim in dims)
    squares = collective.total(centred.square().sum(dim=dims, keepdim=True))
    std = (squares / (count - 1)).sqrt()
  return centred / (std + 1e-8)
