"""Observations: the gait's clock, and terms of mjlab that share what groups have in common.

Those have mjlab's names and values; for biased encoders take its ``joint_pos_rel``. Noise
is added by the manager.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from mjlab.managers.scene_entity_config import SceneEntityCfg

from decap.envs.mdp.kinematics import (
  get_command,
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


def gait_clock(
  env: ManagerBasedRlEnv, command_name: str, period_s: float, command_threshold: float
) -> torch.Tensor:
  """sin and cos of the gait's phase, zero when told to stand. # [B, 2]

  The phase is the one that the gait reward pays for; a policy that cannot see it earns
  as much of that reward by standing.
  """
  period = period_s / env.step_dt
  angle = (env.episode_length_buf % period) * (2.0 * math.pi / period)
  command = get_command(env, command_name)
  moves = command.norm(dim=1, keepdim=True) > command_threshold
  return torch.stack((angle.sin(), angle.cos()), 1) * moves
