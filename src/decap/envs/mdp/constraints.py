"""Constrained quantities of an environment, from the functions of the constraint core.

Joint terms return [B, J] in the robot's joint order, scalar terms [B].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from mjlab.managers.scene_entity_config import SceneEntityCfg

from decap.constraints import quantities
from decap.envs.masked import kept, terms_of
from decap.envs.mdp.kinematics import columns, joint_dofs, up_b

if TYPE_CHECKING:
  from mjlab.entity import Entity
  from mjlab.envs.mdp.actions.actions import BaseAction
  from mjlab.sensor import ContactSensor

  from decap.envs.constrained_env import ConstrainedEnv
  from decap.envs.constraint_manager import ConstraintTermCfg

_ROBOT = SceneEntityCfg("robot")


def action_rate(
  env: ConstrainedEnv,
  action_name: str = "joint_pos",
  raw: bool = False,
  asset_cfg: SceneEntityCfg = _ROBOT,
) -> torch.Tensor:
  """Rate of the joint-position targets, 0 on an episode's first step. # [B, J]

  Joints that the action does not drive have a rate of 0. With ``raw`` it is the rate of
  the policy's output, per second but without the scale, as CaT's code has it.
  """
  manager = env.action_manager
  term: BaseAction = manager.get_term(action_name)  # type: ignore[assignment]
  columns = _action_columns(env, action_name)
  action, before = manager.action[:, columns], manager.prev_action[:, columns]
  # The counter was raised before this term runs: 1 is the first step.
  first = (env.episode_length_buf == 1).unsqueeze(1)
  before = torch.where(first, action, before)
  scale = 1.0 if raw else term.scale
  rate = quantities.action_rate(action, before, scale, env.step_dt)
  joints = env.scene[asset_cfg.name].num_joints
  driven = kept(env, ("driven", action_name), lambda: term.target_ids.tolist())
  if driven == list(range(joints)):
    return rate
  return rate.new_zeros(env.num_envs, joints).index_copy_(1, term.target_ids, rate)


def joint_acc(env: ConstrainedEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
  """Joint acceleration over the last physics substep. # [B, J]"""
  asset: Entity = env.scene[asset_cfg.name]
  velocity = joint_dofs(env, asset, asset.data.data.qvel)
  before = joint_dofs(env, asset, env.sim.qvel_prev)
  return quantities.joint_acceleration(velocity, before, env.physics_dt)


class joint_acc_control:
  """Joint acceleration over the whole control step: what a robot can measure.

  It remembers the velocity of the step before, and is 0 on an episode's first step.
  """

  def __init__(self, cfg: ConstraintTermCfg, env: ConstrainedEnv):
    asset: Entity = env.scene[cfg.params.get("asset_cfg", _ROBOT).name]
    self._before = torch.zeros_like(asset.data.joint_vel)  # [B, J]

  def __call__(
    self, env: ConstrainedEnv, asset_cfg: SceneEntityCfg = _ROBOT
  ) -> torch.Tensor:
    velocity = env.scene[asset_cfg.name].data.joint_vel
    first = (env.episode_length_buf == 1).unsqueeze(1)
    before = torch.where(first, velocity, self._before)
    acceleration = quantities.joint_acceleration(velocity, before, env.step_dt)
    self._before.copy_(velocity)
    return acceleration


def joint_torque(
  env: ConstrainedEnv, asset_cfg: SceneEntityCfg = _ROBOT
) -> torch.Tensor:
  """Torque of the actuators at the joints. # [B, J]"""
  asset: Entity = env.scene[asset_cfg.name]
  return quantities.joint_torque(joint_dofs(env, asset, asset.data.data.qfrc_actuator))


def joint_vel(env: ConstrainedEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
  """Joint speed. # [B, J]"""
  asset: Entity = env.scene[asset_cfg.name]
  return quantities.joint_velocity(joint_dofs(env, asset, asset.data.data.qvel))


def tilt(env: ConstrainedEnv, asset_cfg: SceneEntityCfg = _ROBOT) -> torch.Tensor:
  """Angle between the root's z axis and the vertical, in rad. # [B]"""
  asset: Entity = env.scene[asset_cfg.name]
  return torch.acos(up_b(asset)[:, 2].clamp(-1.0, 1.0))


def body_angular_speed(env: ConstrainedEnv, asset_cfg: SceneEntityCfg) -> torch.Tensor:
  """Largest angular speed of the chosen bodies, in rad/s. # [B]"""
  asset: Entity = env.scene[asset_cfg.name]
  ids = columns(env, asset, "body_ids", asset_cfg.body_ids)
  return asset.data.data.cvel[:, ids, :3].norm(dim=-1).amax(1)


def contact_force(env: ConstrainedEnv, sensor_name: str) -> torch.Tensor:
  """Largest force on any of a contact sensor's primaries, in N. # [B]"""
  sensor: ContactSensor = env.scene[sensor_name]
  force = sensor.data.force
  assert force is not None, f"sensor '{sensor_name}' has no field 'force'"
  return force.norm(dim=-1).amax(1)


def _action_columns(env: ConstrainedEnv, action_name: str) -> slice:
  start = 0
  for name, term in terms_of(env.action_manager).items():
    if name == action_name:
      return slice(start, start + term.action_dim)
    start += term.action_dim
  raise ValueError(
    f"no action term '{action_name}' in {env.action_manager.active_terms}"
  )
