"""Curricula: terrain levels by mask inside the step, command ranges between rollouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from mjlab.managers.scene_entity_config import SceneEntityCfg
from mjlab.tasks.velocity.mdp import curriculums as stock

from decap.envs.masked import masked, write_where
from decap.envs.mdp.commands import VelocityCommand
from decap.envs.mdp.kinematics import get_command, root_position_w

if TYPE_CHECKING:
  from mjlab.entity import Entity
  from mjlab.envs import ManagerBasedRlEnv

_ROBOT = SceneEntityCfg("robot")


@masked
def terrain_levels(
  env: ManagerBasedRlEnv,
  mask: torch.Tensor,
  command_name: str,
  asset_cfg: SceneEntityCfg = _ROBOT,
) -> dict[str, torch.Tensor]:
  """Harder ground for robots that crossed their patch, easier for those that did not.

  mjlab's rule: up a level beyond half a patch, down below half the commanded distance,
  and from the top to a random level. Robots that have not moved yet stay.
  """
  asset: Entity = env.scene[asset_cfg.name]
  terrain = env.scene.terrain
  assert terrain is not None and terrain.terrain_origins is not None
  generator = terrain.cfg.terrain_generator
  assert generator is not None
  origins = terrain.env_origins
  distance = (root_position_w(asset) - origins)[:, :2].norm(dim=1)
  command = get_command(env, command_name)[:, :2].norm(dim=1)
  up = distance > generator.size[0] / 2
  down = (distance < command * env.max_episode_length_s * 0.5) & ~up
  started = env.episode_length_buf > 0

  old = terrain.terrain_levels
  levels = old + up.long() - down.long()
  anywhere = torch.randint_like(levels, terrain.max_terrain_level)
  levels = torch.where(
    levels >= terrain.max_terrain_level, anywhere, levels.clamp(min=0)
  )
  write_where(old, mask & started, levels)
  write_where(origins, mask, terrain.terrain_origins[old, terrain.terrain_types])
  return _level_statistics(terrain)


def command_ranges(
  env: ManagerBasedRlEnv, env_ids: Any, command_name: str, velocity_stages: list
) -> dict[str, torch.Tensor]:
  """mjlab's stages of command ranges; it decides on the host, between rollouts."""
  state = stock.commands_vel(env, env_ids, command_name, velocity_stages)
  term = env.command_manager.get_term(command_name)
  if isinstance(term, VelocityCommand):
    term.load_ranges()
  return state


MASKED_CURRICULA: dict[Callable[..., Any], Callable[..., Any]] = {
  stock.terrain_levels_vel: terrain_levels,
  stock.commands_vel: command_ranges,
}
"""mjlab's curriculum → ours with the same parameters."""


def _level_statistics(terrain: Any) -> dict[str, torch.Tensor]:
  levels = terrain.terrain_levels.float()
  statistics = {"mean": levels.mean(), "max": levels.amax()}
  names = list(terrain.cfg.terrain_generator.sub_terrains)
  if terrain.terrain_origins.shape[1] == len(names):
    for column, name in enumerate(names):
      here = terrain.terrain_types == column
      statistics[name] = (levels * here).sum() / here.sum().clamp(min=1)
  return statistics
