"""From configs to an algorithm: networks, storage, and what an environment tells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from torch import Tensor

from decap.constraints.composition import Composition, ConstraintRow
from decap.constraints.groups import BodyGroupCfg
from decap.rl.config import AgentCfg, CostPpoCfg, PpoCfg
from decap.rl.environment import Environment
from decap.rl.feasibility import Feasibility
from decap.rl.lagrangian import Lagrangian
from decap.rl.lcp import LCP
from decap.rl.modules import build_models
from decap.rl.n_ipo import NIPO
from decap.rl.ppo import PPO
from decap.rl.storage import RolloutStorage

ALGORITHMS = {"ppo": PPO, "lcp": LCP, "n-ipo": NIPO, "lagrangian": Lagrangian}
"""Classes by the `class_name` of their configs."""


def algorithm_for(
  env: Environment, cfg: AgentCfg, obs: Mapping[str, Tensor], cost_names: Sequence[str]
) -> PPO:
  """The algorithm of an agent, fitted to an environment and its observations."""
  constraints, aid = env.constraint_manager, cfg.algorithm.feasibility
  names = action_names(env)
  return build_algorithm(
    cfg,
    obs,
    env.action_manager.total_action_dim,
    names,
    cost_names,
    env.num_envs,
    str(env.device),
    action_groups=_action_groups(env.constraint_manager.groups, names),
    mirrors=env.mirrors() if cfg.algorithm.mirror_loss_coef else None,
    progress_names=env.progress_names,
    feasibility=None if aid is None else Feasibility(aid, constraints.composition),
    composition=constraints.composition,
  )


def build_algorithm(
  agent_cfg: AgentCfg,
  obs: Mapping[str, Tensor],
  num_actions: int,
  action_names: Sequence[str],
  cost_names: Sequence[str],
  num_envs: int,
  device: str,
  action_groups: Mapping[str, Sequence[int]] | None = None,
  mirrors: Mapping[str, Tensor] | None = None,
  progress_names: Sequence[str] = (),
  feasibility: Feasibility | None = None,
  composition: Composition | None = None,
) -> PPO:
  """Build networks, storage and algorithm for an environment.

  `obs` needs the group "actor"; without a group "critic" the critics see the actor's.
  `action_groups` names sets of action indices whose KL and noise are logged apart.
  `mirrors` of "actor" observations and "actions" are for symmetric policies.
  `progress_names` name what the environment reports of the task's achievements.
  `composition` is the environment's, whose p_max a schedule may raise.
  """
  if len(action_names) != num_actions:
    raise ValueError(f"{num_actions} actions, but {len(action_names)} action names.")
  cfg = agent_cfg.algorithm
  if cfg.class_name not in ALGORITHMS:
    raise ValueError(
      f"Unknown algorithm {cfg.class_name!r}; one of {list(ALGORITHMS)}."
    )
  if isinstance(cfg, CostPpoCfg) and not cost_names:
    raise ValueError(f"Algorithm {cfg.class_name!r} needs at least one constraint.")
  require_samples(agent_cfg.num_steps_per_env * num_envs, cfg)
  num_costs = len(cost_names) if isinstance(cfg, CostPpoCfg) else 0
  if cfg.mirror_loss_coef and mirrors is None:
    raise ValueError("A mirror loss needs to know the environment's mirror image.")
  models = build_models(agent_cfg.policy, obs, action_names, num_costs)
  storage = RolloutStorage(
    agent_cfg.num_steps_per_env, num_envs, obs, num_actions, num_costs, device
  )
  return ALGORITHMS[cfg.class_name](
    models,
    storage,
    cfg,
    device,
    cost_names=cost_names,
    action_groups=action_groups,
    progress_names=progress_names,
    feasibility=feasibility,
    composition=composition,
    mirrors=mirrors if cfg.mirror_loss_coef else None,
  )


def require_samples(samples: int, cfg: PpoCfg) -> None:
  """Refuse rollouts that have nothing for some of the mini-batches."""
  if samples < max(2, cfg.num_mini_batches):  # One alone has no standard deviation.
    raise ValueError(
      f"{samples} samples per iteration are too few for {cfg.num_mini_batches} "
      "mini-batches."
    )


def action_names(env: Environment) -> tuple[str, ...]:
  """Joint that each action moves, in the order of the action vector."""
  terms = env.action_manager.active_terms
  return tuple(
    name for term in terms for name in env.action_manager.get_term(term).target_names
  )


def _action_groups(
  groups: Mapping[str, BodyGroupCfg], names: Sequence[str]
) -> dict[str, list[int]]:
  """Indices of the actions that move a group's joints; some joints may have none."""
  found = {
    group: [
      i
      for i, name in enumerate(names)
      if any(re.fullmatch(pattern, name) for pattern in cfg.joint_names)
    ]
    for group, cfg in groups.items()
  }
  return {group: indices for group, indices in found.items() if indices}


def cost_columns(rows: Sequence[ConstraintRow], cfg: PpoCfg) -> dict[str, list[int]]:
  """Cost name → columns of the environment's costs whose maximum it is."""
  by_quantity = isinstance(cfg, CostPpoCfg) and cfg.costs == "terms"
  columns: dict[str, list[int]] = {}
  for index, row in enumerate(rows):
    columns.setdefault(row.quantity if by_quantity else row.name, []).append(index)
  return columns
