"""Reward terms of the velocity task: ``(env, **params) -> [B]``, weights in the task.

Terms that mjlab has in the same form (alive, action rate of first and second order) are
mjlab's own, except where ours need far fewer kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from mjlab.managers.manager_base import ManagerTermBase
from mjlab.managers.scene_entity_config import SceneEntityCfg

from decap.envs.masked import constant
from decap.envs.mdp.kinematics import (
  body_planar_speed,
  body_position_w,
  get_command,
  joint_offset,
  joint_pos,
  on_device,
  root_height,
  root_velocity_b,
  root_velocity_yaw,
  shared,
  up_b,
)
from decap.envs.mdp.terrain import height_above_terrain

if TYPE_CHECKING:
  from mjlab.entity import Entity
  from mjlab.envs import ManagerBasedRlEnv
  from mjlab.managers import RewardTermCfg
  from mjlab.sensor import ContactSensor

_ROBOT = SceneEntityCfg("robot")


def track_velocity_xy(
  env: ManagerBasedRlEnv,
  command_name: str,
  variance: float,
  asset_cfg: SceneEntityCfg = _ROBOT,
) -> torch.Tensor:
  """exp(−‖error‖² / variance) of the planar velocity in the yaw frame."""
  asset: Entity = env.scene[asset_cfg.name]
  command = get_command(env, command_name)
  error = command[:, :2] - root_velocity_yaw(env, asset)
  return torch.exp(error.square().sum(1) / -variance)


def track_velocity_yaw(
  env: ManagerBasedRlEnv,
  command_name: str,
  variance: float,
  asset_cfg: SceneEntityCfg = _ROBOT,
) -> torch.Tensor:
  """exp(−error² / variance) of the yaw rate."""
  asset: Entity = env.scene[asset_cfg.name]
  command = get_command(env, command_name)
  error = command[:, 2] - root_velocity_b(env, asset)[:, 5]
  return torch.exp(error.square() / -variance)


class TrackMeanVelocity(ManagerTermBase):
  """exp(−‖error‖² / variance) of the velocity's running mean over about a step.

  A walker sways from foot to foot. Against its velocity of the moment, a narrow kernel
  pays for not swaying, which is hopping, more than for going where it is told.
  """

  def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
    del cfg
    super().__init__(env)
    self.mean = torch.zeros(self.num_envs, 3, device=self.device)

  def __call__(
    self,
    env: ManagerBasedRlEnv,
    command_name: str,
    entries: tuple[int, int],
    variance: float,
    time_s: float,
    asset_cfg: SceneEntityCfg = _ROBOT,
  ) -> torch.Tensor:
    """The reward of this step. # [B]

    Args:
      entries: First and one past the last entry of (vx, vy, yaw rate) that count.
      time_s: Time constant of the running mean.
    """
    asset: Entity = env.scene[asset_cfg.name]
    planar, turn = root_velocity_yaw(env, asset), root_velocity_b(env, asset)[:, 5:]
    self.mean.lerp_(torch.cat((planar, turn), 1), min(1.0, env.step_dt / time_s))
    error = (get_command(env, command_name) - self.mean)[:, slice(*entries)]
    return torch.exp(error.square().sum(1) / -variance)

  def reset(self, env_ids: torch.Tensor | slice | None) -> None:
    self.mean[slice(None) if env_ids is None else env_ids] = 0.0

  def reset_masked(self, mask: torch.Tensor) -> None:
    """Robots that start again start at rest. mask [B]"""
    self.mean.masked_fill_(mask.unsqueeze(1), 0.0)


def vertical_velocity(
  env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
  """Square of the root's velocity along its own z axis."""
  asset: Entity = env.scene[asset_cfg.name]
  return root_velocity_b(env, asset)[:, 2].square()


def roll_pitch_rate(
  env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
  """Sum of the squares of the root's roll and pitch rates."""
  asset: Entity = env.scene[asset_cfg.name]
  return root_velocity_b(env, asset)[:, 3:5].square().sum(1)


def base_height(
  env: ManagerBasedRlEnv, target_m: float, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
  """Squared error of the root's height above the terrain below it."""
  asset: Entity = env.scene[asset_cfg.name]
  return (root_height(env, asset) - target_m).square()


def flat_orientation(
  env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
  """Square of the sine of the root's tilt."""
  asset: Entity = env.scene[asset_cfg.name]
  return up_b(asset)[:, :2].square().sum(1)


def joint_deviation(
  env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
  """Sum of the distances of the chosen joints from their default positions."""
  asset: Entity = env.scene[asset_cfg.name]
  ids = on_device(env, asset_cfg.joint_ids)
  return joint_offset(env, asset)[:, ids].norm(p=1, dim=1)


def joint_pos_limits(
  env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
  """Sum of the distances of the chosen joints beyond their soft limits."""
  asset: Entity = env.scene[asset_cfg.name]
  ids = on_device(env, asset_cfg.joint_ids)
  position, limits = joint_pos(env, asset)[:, ids], asset.data.soft_joint_pos_limits
  low, high = limits[:, ids].unbind(-1)
  return (position - position.clamp(low, high)).norm(p=1, dim=1)


def foot_slide(
  env: ManagerBasedRlEnv, sensor_name: str, asset_cfg: SceneEntityCfg
) -> torch.Tensor:
  """Horizontal speed of the feet that touch the ground, summed.

  The bodies of ``asset_cfg`` and the primaries of the sensor are the same feet in the
  same order.
  """
  asset: Entity = env.scene[asset_cfg.name]
  speed = body_planar_speed(env, asset, asset_cfg.body_ids)
  return (speed * in_contact(env, sensor_name)).sum(1)


def foot_clearance(
  env: ManagerBasedRlEnv,
  target_m: float,
  variance: float,
  speed_gain: float,
  asset_cfg: SceneEntityCfg,
) -> torch.Tensor:
  """exp(−Σ (z − target)² tanh(gain · ‖v_xy‖) / variance) over the feet.

  z is the height of the foot's body, not of its sole, above the terrain.
  """
  asset: Entity = env.scene[asset_cfg.name]
  position = body_position_w(env, asset, asset_cfg.body_ids)
  height = height_above_terrain(env, position)
  speed = body_planar_speed(env, asset, asset_cfg.body_ids)
  error = (height - target_m).square() * torch.tanh(speed_gain * speed)
  return torch.exp(error.sum(1) / -variance)


def gait(
  env: ManagerBasedRlEnv,
  sensor_name: str,
  command_name: str,
  period_s: float,
  offsets: tuple[float, ...],
  stance_share: float,
  command_threshold: float,
) -> torch.Tensor:
  """Number of feet whose contact agrees with a clock, when commanded to move.

  A foot is in stance while the phase of its clock, which starts with the episode, is
  below ``stance_share``.
  """

  def count() -> torch.Tensor:
    # Steps rather than seconds: multiples of the period must be phase 0, not 0.99999.
    period = period_s / env.step_dt
    ahead = tuple(period * offset for offset in offsets)
    ahead = constant(env, ("gait offsets", ahead), ahead)
    phase = (env.episode_length_buf.unsqueeze(1) + ahead) % period  # [B, feet]
    agrees = (phase < stance_share * period) == in_contact(env, sensor_name)
    command = get_command(env, command_name)
    moves = command.norm(dim=1, keepdim=True) > command_threshold
    return (agrees & moves).sum(1, dtype=torch.float)

  clock = (command_name, period_s, offsets, stance_share, command_threshold)
  return shared(env, ("gait", sensor_name, *clock), count)


def undesired_contacts(
  env: ManagerBasedRlEnv, sensor_name: str, force_threshold: float
) -> torch.Tensor:
  """Number of the sensor's bodies that are touched with more than a threshold."""
  sensor: ContactSensor = env.scene[sensor_name]
  force = sensor.data.force
  assert force is not None, f"sensor '{sensor_name}' has no field 'force'"
  return (force.norm(dim=-1) > force_threshold).sum(1, dtype=torch.float)


def in_contact(env: ManagerBasedRlEnv, sensor_name: str) -> torch.Tensor:
  """Which of a contact sensor's primaries touch something. # [B, N] bool"""
  sensor: ContactSensor = env.scene[sensor_name]
  found = sensor.data.found
  assert found is not None, f"sensor '{sensor_name}' has no field 'found'"
  return shared(env, ("in_contact", sensor_name), lambda: found > 0)
