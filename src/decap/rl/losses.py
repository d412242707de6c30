"""Terms of PPO's loss, from tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class NetworkOutputs:
  """What the current networks say about a mini-batch."""

  policy_input: Tensor  # [N, D], normalised actor observation
  log_prob: Tensor  # [N], of the stored actions
  ratio: Tensor  # [N], to the policy that acted
  entropy: Tensor  # [], the same for all
  mean: Tensor  # [N, A]
  std: Tensor  # [A]
  values: Tensor  # [N]


def surrogate(advantages: Tensor, ratio: Tensor, clip: float) -> Tensor:
  """Loss of the policy: beyond the clip range a better ratio gains nothing. # []"""
  clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
  return -torch.min(advantages * ratio, advantages * clipped).mean()


def value(
  values: Tensor, returns: Tensor, clip: float, old_values: Tensor | None = None
) -> Tensor:
  """Loss of the critic, clipped around `old_values` where they are given. # []"""
  loss = (values - returns).square()
  if old_values is not None:
    change = (values - old_values).clamp(-clip, clip)
    loss = torch.max(loss, (old_values + change - returns).square())
  return loss.mean()


def mirror(mean: Tensor, mirrored: Tensor, std: Tensor) -> Tensor:
  """Squared distance to one's own mirror image, per action and in σ. # []"""
  return ((mean - mirrored) / std.detach()).square().mean()
