"""Events on a mask of environments: resets, pushes, randomisation.

Those that stand in for mjlab's take the same parameters and draw from the same
distributions; they sample for all environments and write where the mask says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from mjlab.entity import Entity
from mjlab.envs.mdp import events as stock
from mjlab.managers.event_manager import RecomputeLevel, requires_model_fields
from mjlab.managers.scene_entity_config import SceneEntityCfg
from mjlab.utils.lab_api.math import quat_from_euler_xyz, quat_mul

from decap.envs.masked import constant, masked, write_where
from decap.envs.mdp.kinematics import (
  Ids,
  columns,
  on_device,
  root_qpos,
  root_qvel,
  rotate_to_body,
)
from decap.envs.mdp.terrain import terrain_height

if TYPE_CHECKING:
  from mjlab.envs import ManagerBasedRlEnv

_ROBOT = SceneEntityCfg("robot")
_AXES = ("x", "y", "z", "roll", "pitch", "yaw")
_FOOTPRINT_M = 0.2
"""Half the side of the square below a robot that must be free of ground."""

Ranges = dict[str, tuple[float, float]]
Mask = torch.Tensor | None
"""Environments that are meant [B]; None for all."""


##
# Root and joints.
##


@masked
def reset_scene_to_default(env: ManagerBasedRlEnv, mask: Mask) -> None:
  """Every entity back to its default state, at its environment's origin."""
  for entity in env.scene.entities.values():
    if not isinstance(entity, Entity):
      continue
    if not entity.is_fixed_base or entity.is_mocap:
      state = entity.data.default_root_state.clone()  # [B, 13]
      state[:, :3] += env.scene.env_origins
      pose, qvel = state[:, :7], state[:, 7:]
      if not entity.is_fixed_base:
        qvel = _free_velocity(pose[:, 3:], qvel)
      _write_root(env, entity, mask, pose, qvel)
    if entity.is_articulated:
      data = entity.data
      _write_joints(env, entity, mask, data.default_joint_pos, data.default_joint_vel)


@masked
def reset_root_state_uniform(
  env: ManagerBasedRlEnv,
  mask: Mask,
  pose_range: Ranges,
  velocity_range: Ranges | None = None,
  asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
  """Default root state plus uniform offsets of pose and velocity."""
  asset: Entity = env.scene[asset_cfg.name]
  pose, qvel = _sample_root(env, asset, pose_range, velocity_range)
  _write_root(env, asset, mask, pose, qvel)


@masked
def reset_root_on_terrain(
  env: ManagerBasedRlEnv,
  mask: Mask,
  pose_range: Ranges,
  velocity_range: Ranges | None = None,
  asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
  """As reset_root_state_uniform, but above the highest ground under the robot.

  mjlab starts a robot at the height of its patch's origin, which on rough ground can
  be centimetres below the surface where the offset puts it.
  """
  asset: Entity = env.scene[asset_cfg.name]
  pose, qvel = _sample_root(env, asset, pose_range, velocity_range)
  axis = (-_FOOTPRINT_M, 0.0, _FOOTPRINT_M)
  square = constant(env, "footprint", [(x, y) for x in axis for y in axis])  # [9, 2]
  ground = terrain_height(env, pose[:, None, :2] + square).amax(1)  # [B]
  pose[:, 2] += ground - env.scene.env_origins[:, 2]
  _write_root(env, asset, mask, pose, qvel)


@masked
def reset_joints_by_offset(
  env: ManagerBasedRlEnv,
  mask: Mask,
  position_range: tuple[float, float],
  velocity_range: tuple[float, float],
  asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
  """Default joint state plus uniform offsets; positions stay within soft limits."""
  asset: Entity = env.scene[asset_cfg.name]
  data, ids = asset.data, on_device(env, asset_cfg.joint_ids)
  position = _offset(data.default_joint_pos[:, ids], position_range)
  limits = data.soft_joint_pos_limits[:, ids]
  position = position.clamp(limits[..., 0], limits[..., 1])
  velocity = _offset(data.default_joint_vel[:, ids], velocity_range)
  _write_joints(env, asset, mask, position, velocity, asset_cfg.joint_ids)


@masked
def push_by_setting_velocity(
  env: ManagerBasedRlEnv,
  mask: Mask,
  velocity_range: Ranges,
  asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
  """Adds a uniform velocity to the root: an instantaneous push.

  To the joint's own velocity, not to mjlab's of the link: that one is from before the
  last substep, and writing it back would take the substep's acceleration away.
  """
  asset: Entity = env.scene[asset_cfg.name]
  push = _sample_ranges(env, velocity_range)  # [B, 6]
  qvel = root_qvel(env, asset)
  pushed = qvel + _free_velocity(root_qpos(env, asset)[:, 3:], push)
  write_where(qvel, mask, pushed)


##
# Terrain and randomisation.
##


@masked
def randomize_terrain(env: ManagerBasedRlEnv, mask: Mask) -> None:
  """A random patch of the terrain for each environment."""
  terrain = env.scene.terrain
  if terrain is None or terrain.terrain_origins is None:
    return
  rows, columns = terrain.terrain_origins.shape[:2]
  levels, types = terrain.terrain_levels, terrain.terrain_types
  write_where(levels, mask, torch.randint_like(levels, rows))
  write_where(types, mask, torch.randint_like(types, columns))
  origins = terrain.terrain_origins[levels, types]
  write_where(terrain.env_origins, mask, origins)


@requires_model_fields("body_mass", "body_inertia", recompute=RecomputeLevel.set_const)
def add_body_mass(
  env: ManagerBasedRlEnv,
  env_ids: torch.Tensor | None,
  range_kg: tuple[float, float],
  asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
  """Adds a uniform mass to the chosen bodies and scales their inertia with it.

  Inertia follows mass as for a body of another density. A startup event: it runs once
  for all environments, outside the control step.
  """
  assert env_ids is None, "add_body_mass is a startup event"
  asset: Entity = env.scene[asset_cfg.name]
  ids = asset.indexing.body_ids[asset_cfg.body_ids]
  mass = env.sim.get_default_field("body_mass")[ids].expand(env.num_envs, -1)
  lightest = float(mass.amin())
  if lightest + range_kg[0] <= 0.0:
    raise ValueError(
      f"range_kg starts at {range_kg[0]:g} kg, which leaves nothing of a body of "
      f"{lightest:.3g} kg."
    )
  inertia = env.sim.get_default_field("body_inertia")[ids]
  heavier = _offset(mass, range_kg)  # [B, N]
  env.sim.model.body_mass[:, ids] = heavier
  env.sim.model.body_inertia[:, ids] = inertia * (heavier / mass).unsqueeze(-1)


MASKED_EVENTS: dict[Callable[..., Any], Callable[..., Any]] = {
  stock.push_by_setting_velocity: push_by_setting_velocity,
  stock.randomize_terrain: randomize_terrain,
  stock.reset_joints_by_offset: reset_joints_by_offset,
  stock.reset_root_state_uniform: reset_root_state_uniform,
  stock.reset_scene_to_default: reset_scene_to_default,
}
"""mjlab's event → ours with the same parameters."""


##
# Sampling and writing.
##


def _sample_ranges(env: ManagerBasedRlEnv, ranges: Ranges | None) -> torch.Tensor:
  """Uniform [x, y, z, roll, pitch, yaw] of all environments. # [B, 6]"""
  bounds = tuple((ranges or {}).get(axis, (0.0, 0.0)) for axis in _AXES)
  low, high = constant(env, ("ranges", bounds), bounds).unbind(1)
  return torch.lerp(low, high, torch.rand(env.num_envs, 6, device=env.device))


def _sample_root(
  env: ManagerBasedRlEnv,
  asset: Entity,
  pose_range: Ranges,
  velocity_range: Ranges | None,
) -> tuple[torch.Tensor, torch.Tensor]:
  """Pose [B, 7] and velocity [B, 6] of the free joint around the default state."""
  state, offset = asset.data.default_root_state, _sample_ranges(env, pose_range)
  position = state[:, :3] + offset[:, :3] + env.scene.env_origins
  if {"roll", "pitch"} & set(pose_range):
    turn = quat_from_euler_xyz(offset[:, 3], offset[:, 4], offset[:, 5])
    orientation = quat_mul(state[:, 3:7], turn)
  else:
    orientation = _turned(env, state[:, 3:7], offset[:, 5:])
  pose = torch.cat((position, orientation), -1)
  velocity, start = state[:, 7:13], asset.cfg.init_state
  if velocity_range:
    velocity = velocity + _sample_ranges(env, velocity_range)
  elif not any((*start.lin_vel, *start.ang_vel)):
    return pose, velocity  # At rest in every frame.
  return pose, _free_velocity(orientation, velocity)


def _turned(
  env: ManagerBasedRlEnv, quat: torch.Tensor, yaw: torch.Tensor
) -> torch.Tensor:
  """Product of ``quat`` [B, 4] and a turn about z by ``yaw`` [B, 1], in few kernels."""
  # (w, x, y, z) k = (−z, y, −x, w) for the quaternion unit k.
  half = yaw * constant(env, "signs of half a turn", (-0.5, 0.5, -0.5, 0.5))
  return torch.addcmul(quat * half.cos(), quat.flip(-1), half.sin())


def _free_velocity(quat: torch.Tensor, velocity_w: torch.Tensor) -> torch.Tensor:
  """qvel of a free joint, whose angular velocity is in the body. # [B, 6]"""
  angular_b = rotate_to_body(quat, velocity_w[:, 3:])
  return torch.cat((velocity_w[:, :3], angular_b), -1)


def _offset(value: torch.Tensor, bounds: tuple[float, float]) -> torch.Tensor:
  return value + torch.empty_like(value).uniform_(*bounds) if any(bounds) else value


def _write_root(
  env: ManagerBasedRlEnv,
  asset: Entity,
  mask: Mask,
  pose: torch.Tensor,
  qvel: torch.Tensor,
) -> None:
  if asset.is_fixed_base:
    assert asset.is_mocap, "a fixed base can only be moved as a mocap body"
    index, data = asset.indexing.mocap_id, asset.data.data
    write_where(data.mocap_pos[:, index], mask, pose[:, :3])
    write_where(data.mocap_quat[:, index], mask, pose[:, 3:])
    return
  write_where(root_qpos(env, asset), mask, pose)
  write_where(root_qvel(env, asset), mask, qvel)


def _write_joints(
  env: ManagerBasedRlEnv,
  asset: Entity,
  mask: Mask,
  position: torch.Tensor,
  velocity: torch.Tensor,
  ids: Ids = slice(None),  # noqa: B008
) -> None:
  data = asset.data.data
  _write_columns(data.qpos, columns(env, asset, "joint_q_adr", ids), mask, position)
  _write_columns(data.qvel, columns(env, asset, "joint_v_adr", ids), mask, velocity)


def _write_columns(
  target: Any,
  chosen: torch.Tensor | slice,
  mask: Mask,
  values: torch.Tensor,
) -> None:
  """target[mask][:, chosen] = values[mask], on the current stream."""
  if isinstance(chosen, slice):
    write_where(target[:, chosen], mask, values)
    return
  if mask is not None:
    values = torch.where(mask.unsqueeze(1), values, target[:, chosen])
  target.index_copy_(1, chosen, values)
