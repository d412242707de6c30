"""Diagonal Gaussians with one σ per action, in closed form.

torch.distributions spreads σ over all samples first. With σ [A] most of the work is
on A numbers, and the few kernels that are left are what an update's time is made of.
"""

from __future__ import annotations

import math

from torch import Tensor

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


def log_prob(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
  """log N(x; mean, std²), summed over actions.

  x and mean: [..., A]; std: [A]; result: [...].
  """
  z = (x - mean) * std.reciprocal()
  return -0.5 * z.square().sum(dim=-1) - (std.log() + LOG_SQRT_2PI).sum()


def entropy(std: Tensor) -> Tensor:
  """Entropy of N(·, std²) with std [A], summed over actions; the mean has no part."""
  return (std.log() + 0.5 + LOG_SQRT_2PI).sum()


def kl_divergence(
  old_mean: Tensor,  # [N, A]
  old_std: Tensor,  # [A]
  mean: Tensor,  # [N, A]
  std: Tensor,  # [A]
) -> Tensor:
  """KL(old ‖ new) of each action [A], averaged over samples."""
  var_ratio = (old_std / std).square()
  shift = (old_mean - mean).square().mean(dim=0) / std.square()
  return 0.5 * (var_ratio + shift - 1.0 - var_ratio.log())
