"""What changes over a run, as functions of what is known when it changes."""

from __future__ import annotations

import torch
from torch import Tensor

LEARNING_RATE_RANGE = (1e-5, 1e-2)
"""Bounds of rsl_rl's adaptive learning rate."""


def adaptive_rate(rate: Tensor, kl: Tensor, desired_kl: float) -> Tensor:
  """rsl_rl's rule: slower above twice the desired KL, faster below half of it. # []"""
  lowest, highest = LEARNING_RATE_RANGE
  slower = (rate / 1.5).clamp_min(lowest)
  faster = (rate * 1.5).clamp_max(highest)
  small = (kl < desired_kl / 2.0) & (kl > 0.0)
  return torch.where(kl > desired_kl * 2.0, slower, torch.where(small, faster, rate))


def fixed_rate(rate: float, final_share: float, share: float) -> float:
  """Constant for half of a run, then linear down to `final_share` of the rate.

  Args:
    share: How much of the run is done, in [0, 1].
  """
  late = max(0.0, 2.0 * share - 1.0)
  return rate * (1.0 - late * (1.0 - final_share))


def ramped(p_max: Tensor, ramp: tuple[float, float], share: float) -> Tensor:
  """CaT's p_max early in a run: the expected lifetime 1/p falls linearly.

  Args:
    ramp: Share of p_max at the start, and share of the run after which it is whole.
    share: How much of the run is done, in [0, 1].
  """
  first, whole_at = ramp
  lifetimes = 1.0 / first, 1.0
  done = min(1.0, share / whole_at)
  return p_max / (lifetimes[0] + done * (lifetimes[1] - lifetimes[0]))
