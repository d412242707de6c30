"""Terminations; time-out is mjlab's own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from mjlab.managers.scene_entity_config import SceneEntityCfg

from decap.envs.mdp.kinematics import root_height, up_b

if TYPE_CHECKING:
  from mjlab.entity import Entity
  from mjlab.envs import ManagerBasedRlEnv

_ROBOT = SceneEntityCfg("robot")


def base_below(
  env: ManagerBasedRlEnv, minimum_m: float, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
  """The root is lower above the terrain below it than a standing robot can be."""
  asset: Entity = env.scene[asset_cfg.name]
  return root_height(env, asset) < minimum_m


def bad_orientation(
  env: ManagerBasedRlEnv, limit_angle: float, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
  """The root is tilted by more than an angle, in rad; as mjlab's term."""
  asset: Entity = env.scene[asset_cfg.name]
  return up_b(asset)[:, 2] < math.cos(limit_angle)
