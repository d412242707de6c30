"""mjlab's rewards, weighed and summed all at once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from mjlab.managers.reward_manager import RewardManager

from decap import mjlab_private

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnv


class StackedRewardManager(RewardManager):
  """mjlab's manager with its terms in one tensor [n, B] instead of one after another.

  A handful of operations replaces seven per term. The weights live on the device:
  change a term's ``weight`` and call ``load_weights`` between replays of a CUDA graph.
  """

  _env: ConstrainedEnv
  _names: tuple[str, ...]
  _weights: torch.Tensor  # [n, 1]
  _sums: torch.Tensor  # [n, B]

  @classmethod
  def take_over(cls, manager: RewardManager) -> StackedRewardManager:
    """Makes mjlab's manager one of ours.

    mjlab's environment builds it by name, and its terms must not be built twice:
    others may already hold on to the first ones.
    """
    manager.__class__ = cls
    assert isinstance(manager, cls)
    count = len(manager.active_terms)
    manager._weights = torch.zeros(count, 1, device=manager.device)
    manager._names = tuple(f"reward {name}" for name in manager.active_terms)
    manager._sums = torch.zeros(count, manager.num_envs, device=manager.device)
    # In the layout of the terms, so that they are written to it directly.
    step = torch.zeros_like(manager._sums).T
    mjlab_private.share_reward_buffers(manager, manager._sums, step)
    manager.load_weights()
    return manager

  def load_weights(self) -> None:
    """Copies the terms' weights to the device; host work, not for inside a step."""
    weights = [self.get_term_cfg(name).weight for name in self.active_terms]
    for name, weight in zip(self.active_terms, weights, strict=True):
      if not math.isfinite(weight):
        raise ValueError(f"the weight of reward '{name}' must be finite, not {weight}")
    self._weights.copy_(torch.tensor(weights, device=self.device).unsqueeze(1))

  @property
  def rates(self) -> torch.Tensor:
    """What each term paid in the last step, per second. # [n, B]"""
    return mjlab_private.reward_buffers(self)[1].T

  @property
  def episode_sums(self) -> torch.Tensor:
    """Weighted sums of the running episodes, a row per term. # [n, B]"""
    return self._sums

  def compute(self, dt: float) -> torch.Tensor:
    values = []
    total, _ = mjlab_private.reward_buffers(self)
    for name in self.active_terms:
      cfg = self.get_term_cfg(name)
      value = cfg.func(self._env, **cfg.params)
      mjlab_private.check_reward_shape(self, name, value)
      values.append(value)
    if not values:
      return total.zero_()
    raw = torch.stack(values)  # [n, B]
    self._env.log.flag(self._names, raw)
    rates = torch.mul(raw, self._weights, out=self.rates)
    rates.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    scale = dt if mjlab_private.rewards_per_second(self) else 1.0
    self._sums.add_(rates, alpha=scale)
    return torch.sum(rates, 0, out=total).mul_(scale)
