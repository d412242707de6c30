"""Observation terms of mjlab that share what the groups have in common.

Same names and values; for biased encoders take mjlab's ``joint_pos_rel``. Noise is
added by the manager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from mjlab.managers.scene_entity_config import SceneEntityCfg

from decap.envs.mdp.kinematics import (
  joint_dofs,
  joint_offset,
  on_device,
  root_velocity_b,
  shared,
  up_b,
)

if TYPE_CHECKING:
  from mjlab.entity import Entity
  from mjlab.envs import ManagerBasedRlEnv

_ROBOT = SceneEntityCfg("robot")


def base_lin_vel(
  env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
  """Linear velocity of the root in its own frame. # [B, 3]"""
  asset: Entity = env.scene[asset_cfg.name]
  return root_velocity_b(env, asset)[:, :3]


def projected_gravity(
  env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
  """Direction of gravity in the root's frame. # [B, 3]"""
  asset: Entity = env.scene[asset_cfg.name]
  return shared(env, ("projected_gravity", id(asset)), lambda: -up_b(asset))


def joint_pos_rel(
  env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
  """Joint positions relative to the default ones. # [B, J]"""
  asset: Entity = env.scene[asset_cfg.name]
  return joint_offset(env, asset)[:, on_device(env, asset_cfg.joint_ids)]


def joint_vel_rel(
  env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
  """Joint velocities relative to the default ones. # [B, J]"""
  asset: Entity = env.scene[asset_cfg.name]

  def make() -> torch.Tensor:
    velocity = joint_dofs(env, asset, asset.data.data.qvel)
    return velocity - asset.data.default_joint_vel

  velocity = shared(env, ("joint_vel_rel", id(asset)), make)
  return velocity[:, on_device(env, asset_cfg.joint_ids)]
