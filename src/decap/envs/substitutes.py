"""Our terms in the place of mjlab's, so that stock tasks never wait."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from mjlab.envs import ManagerBasedRlEnvCfg

from decap.envs import mdp

OURS: dict[Callable, Callable] = {**mdp.MASKED_EVENTS, **mdp.MASKED_CURRICULA}
"""mjlab's term → ours, with the same parameters, that takes a mask."""


def substitute_terms(cfg: ManagerBasedRlEnvCfg) -> None:
  """Replaces the terms of ``cfg`` that have a masked equivalent; same parameters."""
  exchange(cfg.events, OURS)
  exchange(cfg.curriculum, OURS)
  for command in cfg.commands.values():
    if type(command) in mdp.MASKED_COMMANDS:
      command.build = functools.partial(mdp.MASKED_COMMANDS[type(command)], command)  # type: ignore[method-assign]


def exchange(terms: dict[str, Any], others: Mapping[Callable, Callable]) -> None:
  """Replaces terms by others, with the same parameters."""
  for name, term in terms.items():
    if term is not None and term.func in others:
      terms[name] = dataclasses.replace(term, func=others[term.func])
