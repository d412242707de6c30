"""Our terms in the place of mjlab's, so that stock tasks never wait; and back again."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mjlab.envs import ManagerBasedRlEnvCfg
from mjlab.envs import mdp as mjlab_mdp

from decap.envs import mdp

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnvCfg

_OURS: dict[Callable, Callable] = {**mdp.MASKED_EVENTS, **mdp.MASKED_CURRICULA}
"""mjlab's term → ours, with the same parameters, that takes a mask."""

_FASTER: dict[Callable, Callable] = {
  mjlab_mdp.base_lin_vel: mdp.base_lin_vel,
  mjlab_mdp.projected_gravity: mdp.projected_gravity,
  mjlab_mdp.joint_pos_rel: mdp.joint_pos_rel,
  mjlab_mdp.joint_vel_rel: mdp.joint_vel_rel,
  mjlab_mdp.flat_orientation_l2: mdp.flat_orientation,
  mjlab_mdp.joint_pos_limits: mdp.joint_pos_limits,
  mjlab_mdp.bad_orientation: mdp.bad_orientation,
}
"""mjlab's term → ours, which takes fewer kernels."""


def substitute_terms(cfg: ManagerBasedRlEnvCfg) -> None:
  """Replaces the terms of ``cfg`` that have a masked equivalent; same parameters."""
  _exchange(cfg.events, _OURS)
  _exchange(cfg.curriculum, _OURS)
  for command in cfg.commands.values():
    if type(command) in mdp.MASKED_COMMANDS:
      command.build = functools.partial(mdp.MASKED_COMMANDS[type(command)], command)  # type: ignore[method-assign]


def stock_twin(cfg: ConstrainedEnvCfg) -> ManagerBasedRlEnvCfg:
  """The same task for mjlab's own environment, with mjlab's own terms where it has them.

  Constraints are dropped. Terms of ours that mjlab does not have stay.
  """
  cfg = copy.deepcopy(cfg)
  names = [field.name for field in dataclasses.fields(ManagerBasedRlEnvCfg)]
  twin = ManagerBasedRlEnvCfg(**{name: getattr(cfg, name) for name in names})
  theirs = {ours: mjlab for mjlab, ours in {**_OURS, **_FASTER}.items()}
  groups = (group.terms for group in twin.observations.values())
  for terms in (twin.events, twin.curriculum, twin.rewards, twin.terminations, *groups):
    _exchange(terms, theirs)
  for command in twin.commands.values():
    # Where an environment of ours was built from the config, it says how.
    vars(command).pop("build", None)
  return twin


def _exchange(terms: dict[str, Any], others: Mapping[Callable, Callable]) -> None:
  for name, term in terms.items():
    if term is not None and term.func in others:
      terms[name] = dataclasses.replace(term, func=others[term.func])
