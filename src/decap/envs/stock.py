"""A constrained task as stock mjlab runs it: the inverse of our substitutions."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from mjlab.envs import mdp as mjlab_mdp

from decap.envs import mdp
from decap.envs.constrained_env import ConstrainedEnvCfg
from decap.envs.masked import is_masked
from decap.envs.mdp import MASKED_CURRICULA, MASKED_EVENTS

_SAME_AS = {
  mjlab_mdp.base_lin_vel: mdp.base_lin_vel,
  mjlab_mdp.projected_gravity: mdp.projected_gravity,
  mjlab_mdp.joint_pos_rel: mdp.joint_pos_rel,
  mjlab_mdp.joint_vel_rel: mdp.joint_vel_rel,
  mjlab_mdp.flat_orientation_l2: mdp.flat_orientation,
  mjlab_mdp.joint_pos_limits: mdp.joint_pos_limits,
  mjlab_mdp.bad_orientation: mdp.bad_orientation,
}
"""mjlab's term → ours, which takes fewer kernels."""


def stock_twin(cfg: ConstrainedEnvCfg) -> ManagerBasedRlEnvCfg:
  """The same task for mjlab's own environment, with mjlab's own terms where it has them.

  Constraints are dropped. Terms of ours that mjlab does not have stay, called with a
  mask that is made from mjlab's indices.
  """
  cfg = copy.deepcopy(cfg)
  names = [field.name for field in dataclasses.fields(ManagerBasedRlEnvCfg)]
  twin = ManagerBasedRlEnvCfg(**{name: getattr(cfg, name) for name in names})
  _restore(twin.events, MASKED_EVENTS)
  _restore(twin.curriculum, MASKED_CURRICULA)
  for terms in (twin.rewards, twin.terminations):
    _restore(terms, _SAME_AS)
  for group in twin.observations.values():
    _restore(group.terms, _SAME_AS)
  for command in twin.commands.values():
    # Where an environment of ours was built from the config, it says how.
    vars(command).pop("build", None)
  return twin


def _restore(terms: dict[str, Any], substitutes: dict[Callable, Callable]) -> None:
  """Puts mjlab's terms back; ``substitutes`` are mjlab's term → ours."""
  stock = {ours: theirs for theirs, ours in substitutes.items()}
  for name, term in terms.items():
    if term is None:
      continue
    if term.func in stock:
      terms[name] = dataclasses.replace(term, func=stock[term.func])
    elif is_masked(term.func):
      terms[name] = dataclasses.replace(term, func=_by_index(term.func))


def _by_index(func: Callable) -> Callable:
  """A masked term that takes indices [n], or None for all environments."""

  @functools.wraps(func)
  def call(env: ManagerBasedRlEnv, env_ids: torch.Tensor | None, **params: Any) -> Any:
    mask = None
    if env_ids is not None:
      mask = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)
      mask[env_ids] = True
    return func(env, mask, **params)

  return call
