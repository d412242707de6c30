"""mjlab's observations, with the noise of a group's terms added at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from mjlab.managers.observation_manager import ObservationManager, ObservationTermCfg
from mjlab.utils.noise import UniformNoiseCfg

from decap import mjlab_private
from decap.envs.masked import kept


class JoinedObservationManager(ObservationManager):
  """mjlab's manager, which joins the terms of a group first.

  Four operations then do what takes a copy per term and five more per noise. Groups
  with more than uniform noise (scales, delays, histories, …) are left to mjlab.
  """

  def compute_group(
    self,
    group_name: str,
    update_history: bool = False,
    env_ids: torch.Tensor | None = None,
  ) -> torch.Tensor | dict[str, torch.Tensor]:
    terms = mjlab_private.observation_terms(self, group_name)
    if not (self._is_joined(group_name) and all(map(_is_simple, terms))):
      return super().compute_group(group_name, update_history, env_ids)
    values = torch.cat([t.func(self._env, **t.params) for t in terms], -1)  # [B, D]
    if all(term.noise is None for term in terms):
      return values
    low, high = self._noise_bounds(group_name)
    return values + torch.lerp(low, high, torch.rand_like(values))

  def _is_joined(self, group: str) -> bool:
    """Whether the group is one matrix that nobody checks."""
    cfg, shapes = self.cfg[group], self.group_obs_term_dim[group]
    flat = all(len(shape) == 1 for shape in shapes)
    return flat and cfg.concatenate_terms and cfg.nan_policy == "disabled"

  def _noise_bounds(self, group: str) -> torch.Tensor:
    """Lowest and highest noise of each column. # [2, D]"""
    bounds = tuple(map(_bounds, mjlab_private.observation_terms(self, group)))

    def make() -> torch.Tensor:
      shapes = self.group_obs_term_dim[group]
      columns = [
        [np.broadcast_to(bound, shape) for bound in pair]
        for pair, shape in zip(bounds, shapes, strict=True)
      ]
      values = np.concatenate(columns, axis=1, dtype=np.float32)
      return torch.as_tensor(values, device=self._env.device)

    # As text: bounds may be lists, as files give them.
    return kept(self._env, ("noise", group, str(bounds)), make)


def _bounds(term: ObservationTermCfg) -> tuple[Any, Any]:
  noise = term.noise
  return (noise.n_min, noise.n_max) if isinstance(noise, UniformNoiseCfg) else (0, 0)


def _is_simple(term: ObservationTermCfg) -> bool:
  """Whether a term has nothing beyond its value and additive uniform noise."""
  noise = term.noise
  if noise is not None and not (
    type(noise) is UniformNoiseCfg and noise.operation == "add"
  ):
    return False
  processed = term.clip is not None or term.scale is not None
  return not (processed or term.delay_max_lag or term.history_length)
