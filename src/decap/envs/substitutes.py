"""Puts our masked terms in the place of mjlab's, so that stock tasks never wait."""

from __future__ import annotations

import functools
from dataclasses import replace

from mjlab.envs import ManagerBasedRlEnvCfg

from decap.envs.mdp import MASKED_COMMANDS, MASKED_CURRICULA, MASKED_EVENTS


def substitute_terms(cfg: ManagerBasedRlEnvCfg) -> None:
  """Replaces the terms of ``cfg`` that have a masked equivalent; same parameters."""
  for terms, masked in (
    (cfg.events, MASKED_EVENTS),
    (cfg.curriculum, MASKED_CURRICULA),
  ):
    for name, term in terms.items():
      if term is not None and term.func in masked:
        terms[name] = replace(term, func=masked[term.func])  # type: ignore[type-var]
  for command in cfg.commands.values():
    if type(command) in MASKED_COMMANDS:
      command.build = functools.partial(MASKED_COMMANDS[type(command)], command)  # type: ignore[method-assign]
