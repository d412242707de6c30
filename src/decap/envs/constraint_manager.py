"""Constraints of an environment: quantities, margins, and the termination probability.

The manager measures; what a violation costs is the algorithm's business. It follows
mjlab's managers: terms are functions of the environment in a dict of configs.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from mjlab.managers.manager_base import ManagerBase, ManagerTermBaseCfg
from prettytable import PrettyTable

from decap import mjlab_private
from decap.constraints.composition import SCALAR_P_MAX, Composition
from decap.constraints.groups import BodyGroupCfg
from decap.constraints.termination import TerminationCfg, largest_finite

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnv


@dataclass(kw_only=True)
class ConstraintTermCfg(ManagerTermBaseCfg):
  """One constrained quantity: ``func(env, **params)`` gives [B, J] or [B]."""

  limits: dict[str, float] | float
  """Limit ε per body group for a joint quantity, or one number for a scalar one."""

  p_max: float = SCALAR_P_MAX
  """Termination probability at the limit of a scalar term; joint terms take their
  group's."""

  unit: str = ""
  """Unit of the quantity, for tables and figures."""


class ConstraintManager(ManagerBase):
  """Evaluates all terms and turns closeness to their limits into δ̄ (Eq. 2 to 4).

  What the terms measure is composed in ``composition``, whose limits and p_max may be
  changed in place at any time, also between replays of a CUDA graph.
  """

  _env: ConstrainedEnv

  def __init__(
    self,
    cfg: dict[str, ConstraintTermCfg],
    groups: dict[str, BodyGroupCfg],
    termination: TerminationCfg,
    env: ConstrainedEnv,
    entity_name: str = "robot",
  ):
    self.cfg = deepcopy(cfg)
    self.groups = groups
    super().__init__(env)
    self.composition = Composition(
      {name: term.limits for name, term in self.cfg.items()},
      groups,
      env.scene[entity_name].joint_names,
      termination,
      scalar_p_max={name: term.p_max for name, term in self.cfg.items()},
      device=self.device,
    )
    self._name_statistics()

  def __str__(self) -> str:
    table = PrettyTable()
    table.title = f"Active Constraints ({self.composition.termination.rule})"
    table.field_names = ["Constraint", "Limit", "Joints"]
    table.align["Constraint"] = "l"
    for row in self.composition.rows:
      table.add_row([row.name, row.limit, len(row.columns)])
    return f"<ConstraintManager> contains {len(self.cfg)} active terms.\n{table}"

  # Properties.

  @property
  def active_terms(self) -> list[str]:
    return list(self.cfg)

  @property
  def cost_names(self) -> tuple[str, ...]:
    """Names of the columns of ``costs``: "term/group", or "term" for scalars."""
    return self.composition.row_names

  # Methods.

  def compute(self) -> dict[str, Any]:
    """Measures all terms; the result is what the environment puts into its extras.

    - ``delta`` [B]: δ̄, the probability that the step ends the episode;
    - ``costs`` [B, K]: 1 where any joint of row k is above its limit;
    - ``quantities``: term name → q, [B, J] or [B];
    - ``margins``: term name → q / ε.
    """
    composition = self.composition
    q = self._measure()  # [B, C]
    highest = largest_finite(q)  # [C]
    rows = composition.probabilities(q, highest)  # [B, K]
    delta, deciding = composition.decided(rows)  # [B]
    costs = composition.costs(q)  # [B, K]
    self._log(q, highest, costs, delta, deciding)
    return composition.reported(q, delta, costs)

  def set_limit(self, row: str, limit: float) -> None:
    """Changes the limit of one row, for example ``"joint_vel/upper"``."""
    self.composition.set_limit(row, limit)

  # Private methods.

  def _prepare_terms(self) -> None:
    self._term_cfgs: list[ConstraintTermCfg] = []
    self._class_term_cfgs: list[ConstraintTermCfg] = []
    for name, term in self.cfg.items():
      mjlab_private.resolve_term(self, name, term)
      self._term_cfgs.append(term)
      if hasattr(term.func, "reset"):
        self._class_term_cfgs.append(term)

  def _name_statistics(self) -> None:
    columns = [""] * len(self.composition.limit)
    for row in self.composition.rows:
      for column in row.columns:
        columns[column] = row.name
    self._mean_names = (
      *_named(columns, "mean"),
      *_named(self.cost_names, "violation"),
      "Constraint/delta",
    )
    self._max_names = _named(columns, "max")
    self._share_names = _named(self.cost_names, "share")

  def _measure(self) -> torch.Tensor:
    """The terms' values side by side. # [B, C]"""
    return self.composition.join(
      {
        name: term.func(self._env, **term.params)
        for name, term in zip(self.cfg, self._term_cfgs, strict=True)
      }
    )

  def _log(
    self,
    q: torch.Tensor,
    highest: torch.Tensor,
    costs: torch.Tensor,
    delta: torch.Tensor,
    deciding: torch.Tensor,
  ) -> None:
    log = self._env.log
    finite = torch.nan_to_num(q, nan=0.0, posinf=0.0, neginf=0.0)
    log.mean({self._mean_names: torch.cat((finite, costs, delta.unsqueeze(1)), 1).T})
    log.maximum(self._max_names, highest)
    # Which row decides, where any does.
    log.share(self._share_names, deciding, delta.sign())


def _named(rows: Sequence[str], statistic: str) -> tuple[str, ...]:
  return tuple(f"Constraint/{row}/{statistic}" for row in rows)
