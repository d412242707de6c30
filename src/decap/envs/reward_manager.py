"""mjlab's rewards, weighed and summed all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from mjlab.managers.reward_manager import RewardManager

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
    count = len(manager._term_names)
    manager._weights = torch.zeros(count, 1, device=manager.device)
    manager._names = tuple(f"reward {name}" for name in manager._term_names)
    manager._sums = torch.zeros(count, manager.num_envs, device=manager.device)
    manager._episode_sums = dict(zip(manager._term_names, manager._sums, strict=True))
    # In the layout of the terms, so that they are written to it directly.
    manager._step_reward = torch.zeros_like(manager._sums).T
    manager.load_weights()
    return manager

  def load_weights(self) -> None:
    """Copies the terms' weights to the device; host work, not for inside a step."""
    weights = [cfg.weight for cfg in self._term_cfgs]
    self._weights.copy_(torch.tensor(weights, device=self.device).unsqueeze(1))

  def rows(self, names: Sequence[str]) -> torch.Tensor:
    """Where these terms are in ``rates``; all terms if none is named. # [n]"""
    unknown = sorted(set(names) - set(self._term_names))
    if unknown:
      raise ValueError(
        f"no reward '{unknown[0]}'; there are {', '.join(self._term_names)}"
      )
    indices = [self._term_names.index(name) for name in names or self._term_names]
    return torch.tensor(indices, dtype=torch.long, device=self.device)

  @property
  def rates(self) -> torch.Tensor:
    """What each term paid in the last step, per second. # [n, B]"""
    return self._step_reward.T

  @property
  def episode_sums(self) -> torch.Tensor:
    """Weighted sums of the running episodes, a row per term. # [n, B]"""
    return self._sums

  def compute(self, dt: float) -> torch.Tensor:
    values = []
    for name, cfg in zip(self._term_names, self._term_cfgs, strict=True):
      value = cfg.func(self._env, **cfg.params)
      self._check_term_shape(name, value)
      values.append(value)
    if not values:
      return self._reward_buf.zero_()
    raw = torch.stack(values)  # [n, B]
    self._env.log.flag(self._names, raw)
    rates = torch.mul(raw, self._weights, out=self.rates)
    rates.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    scale = dt if self._scale_by_dt else 1.0
    self._sums.add_(rates, alpha=scale)
    return torch.sum(rates, 0, out=self._reward_buf).mul_(scale)
