"""Constraints of an environment: quantities, margins, and the termination probability.

The manager measures; what a violation costs is the algorithm's business. It follows
mjlab's managers: terms are functions of the environment in a dict of configs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from mjlab.managers.manager_base import ManagerBase, ManagerTermBaseCfg
from prettytable import PrettyTable

from decap.constraints.groups import BodyGroupCfg, per_joint, resolve_groups
from decap.constraints.termination import (
  TerminationCfg,
  ViolationScale,
  cat_probability,
  decap_probability,
  largest_finite,
)

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnv


@dataclass(kw_only=True)
class ConstraintTermCfg(ManagerTermBaseCfg):
  """One constrained quantity: ``func(env, **params)`` gives [B, J] or [B]."""

  limits: dict[str, float] | float
  """Limit ε per body group for a joint quantity, or one number for a scalar one."""

  p_max: float = 0.25
  """Termination probability at the limit of a scalar term; joint terms take their
  group's."""


@dataclass(frozen=True)
class ConstraintRow:
  """What is reported as one line: a term within a group, or a scalar term."""

  name: str
  columns: tuple[int, ...]
  limit: float


class ConstraintManager(ManagerBase):
  """Evaluates all terms and turns closeness to their limits into δ̄ (Eq. 2 to 4).

  All quantities stand side by side in one tensor q [B, C], a column per joint and
  joint term, then one per scalar term. Limits, p_max and scales are tensors [C] that
  may be changed in place at any time, also between replays of a CUDA graph.
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
    self.termination = termination
    self._joint_names = tuple(env.scene[entity_name].joint_names)
    super().__init__(env)
    self._make_tensors()
    self._name_statistics()

  def __str__(self) -> str:
    table = PrettyTable()
    table.title = f"Active Constraints ({self.termination.rule})"
    table.field_names = ["Constraint", "Limit", "Joints"]
    table.align["Constraint"] = "l"
    for row in self.rows:
      table.add_row([row.name, row.limit, len(row.columns)])
    return f"<ConstraintManager> contains {len(self.cfg)} active terms.\n{table}"

  # Properties.

  @property
  def active_terms(self) -> list[str]:
    return list(self.cfg)

  @property
  def cost_names(self) -> tuple[str, ...]:
    """Names of the columns of ``costs``: "term/group", or "term" for scalars."""
    return tuple(row.name for row in self.rows)

  # Methods.

  def compute(self) -> dict[str, Any]:
    """Measures all terms; the result is what the environment puts into its extras.

    - ``delta`` [B]: δ̄, the probability that the step ends the episode;
    - ``costs`` [B, K]: 1 where any joint of row k is above its limit;
    - ``quantities``: term name → q, [B, J] or [B];
    - ``margins``: term name → q / ε.
    """
    q = self._measure()  # [B, C]
    highest = largest_finite(q)  # [C]
    delta, deciding = self._probabilities(q, highest).max(-1)  # [B]
    peak = q[:, self._row_columns].amax(2)  # [B, K]
    # A NaN compares as false; it is no compliance.
    complies = peak <= self._row_limit
    costs = torch.logical_not(complies, out=torch.empty_like(peak))
    self._log(q, highest, costs, delta, deciding)
    margins = q / self.limit
    return {
      "delta": delta,
      "costs": costs,
      "quantities": {n: q[:, s] for n, s in self._term_columns.items()},
      "margins": {n: margins[:, s] for n, s in self._term_columns.items()},
    }

  def set_limit(self, row: str, limit: float) -> None:
    """Changes the limit of one row, for example ``"joint_vel/upper"``."""
    if row not in self.cost_names:
      raise ValueError(f"no constraint '{row}'; there are {', '.join(self.cost_names)}")
    if not 0 < limit < math.inf:
      raise ValueError(f"the limit of '{row}' must be above 0, not {limit}")
    k = self.cost_names.index(row)
    self.limit[self._row_columns[k]] = limit
    self._row_limit[k] = limit
    # The least violation that counts is a share of the limit.
    self.scale.floor.copy_(self.termination.floor(self.limit))

  # Private methods.

  def _prepare_terms(self) -> None:
    self.rows: list[ConstraintRow] = []
    self._term_columns: dict[str, slice | int] = {}
    self._term_cfgs: list[ConstraintTermCfg] = []
    self._class_term_cfgs: list[ConstraintTermCfg] = []
    joints = len(self._joint_names)
    resolved: dict[str, list[int]] = {}
    limits: list[torch.Tensor] = []
    p_max: list[torch.Tensor] = []
    start = 0
    for name, term in self.cfg.items():
      term: ConstraintTermCfg
      self._resolve_common_term_cfg(name, term)
      self._term_cfgs.append(term)
      if hasattr(term.func, "reset"):
        self._class_term_cfgs.append(term)
      if isinstance(term.limits, dict):
        if not resolved:
          resolved = resolve_groups(self.groups, self._joint_names)
        limits.append(self._joint_limits(name, term.limits, resolved))
        group_p_max = {g: c.p_max for g, c in self.groups.items()}
        p_max.append(per_joint(group_p_max, resolved, joints))
        self._term_columns[name] = slice(start, start + joints)
        for group, ids in resolved.items():
          columns = tuple(start + i for i in ids)
          row = ConstraintRow(f"{name}/{group}", columns, term.limits[group])
          self.rows.append(row)
        start += joints
      else:
        self._check_scalar(name, term)
        limits.append(torch.tensor([float(term.limits)]))
        p_max.append(torch.tensor([term.p_max]))
        self._term_columns[name] = start
        self.rows.append(ConstraintRow(name, (start,), float(term.limits)))
        start += 1
    if not self.rows:
      raise ValueError("an environment needs at least one constraint")
    self.limit = torch.cat(limits).to(self.device)  # [C]
    self.p_max = torch.cat(p_max).to(self.device)  # [C]

  def _joint_limits(
    self, name: str, limits: dict[str, float], resolved: dict[str, list[int]]
  ) -> torch.Tensor:
    try:
      return per_joint(limits, resolved, len(self._joint_names))
    except ValueError as error:
      raise ValueError(f"constraint '{name}': {error}") from None

  @staticmethod
  def _check_scalar(name: str, term: ConstraintTermCfg) -> None:
    if not 0 < float(term.limits) < math.inf:  # type: ignore[arg-type]
      raise ValueError(f"constraint '{name}': the limit must be above 0")
    if not 0 < term.p_max < 1:
      raise ValueError(f"constraint '{name}': p_max must be between 0 and 1")

  def _make_tensors(self) -> None:
    width = max(len(row.columns) for row in self.rows)
    # Shorter rows repeat their first column, which changes no maximum.
    padded = [
      row.columns + (row.columns[0],) * (width - len(row.columns)) for row in self.rows
    ]
    self._row_columns = torch.tensor(padded, device=self.device)  # [K, M]
    self._row_limit = torch.tensor(
      [row.limit for row in self.rows], device=self.device
    )  # [K]
    self.scale = ViolationScale(
      (len(self.limit),),
      floor=self.termination.floor(self.limit),
      decay=self.termination.scale_decay,
      device=self.device,
    )

  def _name_statistics(self) -> None:
    columns = [""] * len(self.limit)
    for row in self.rows:
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
    columns = []
    for name, term in zip(self.cfg, self._term_cfgs, strict=True):
      value = term.func(self._env, **term.params)
      expected = (
        (self.num_envs, len(self._joint_names))
        if isinstance(term.limits, dict)
        else (self.num_envs,)
      )
      if tuple(value.shape) != expected:
        raise ValueError(
          f"constraint '{name}' returned shape {tuple(value.shape)}, "
          f"expected {expected}"
        )
      columns.append(value if value.dim() == 2 else value.unsqueeze(1))
    return torch.cat(columns, dim=1)

  def _probabilities(self, q: torch.Tensor, highest: torch.Tensor) -> torch.Tensor:
    """δ of each row, the largest of its joints, as in Eq. 4. # [B, K]"""
    cfg = self.termination
    self.scale.update_largest(highest - self.limit)
    if cfg.rule == "cat":
      delta = cat_probability(q, self.limit, self.p_max, self.scale.value)
    else:
      delta = decap_probability(
        q,
        self.limit,
        self.p_max,
        self.scale.value,
        rho=cfg.rho,
        kappa=cfg.kappa,
        barrier=cfg.barrier,
      )
    return delta[..., self._row_columns].amax(-1)

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
