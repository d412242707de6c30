"""What several terms read from the simulation, without waiting for the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from mjlab.entity.data import compute_velocity_from_cvel
from mjlab.utils.lab_api.math import quat_apply_inverse

from decap.envs.masked import constant

if TYPE_CHECKING:
  from mjlab.entity import Entity
  from mjlab.envs import ManagerBasedRlEnv


def on_device(env: ManagerBasedRlEnv, ids: list[int] | slice) -> torch.Tensor | slice:
  """Indices for ``x[:, ids]``; a Python list would be copied to the device each time."""
  return ids if isinstance(ids, slice) else constant(env, ("ids", tuple(ids)), ids)


def get_command(env: ManagerBasedRlEnv, name: str) -> torch.Tensor:
  """The current command of a term. # [B, n]"""
  command = env.command_manager.get_command(name)
  assert command is not None, f"the environment has no command '{name}'"
  return command


def shared(
  env: ManagerBasedRlEnv, key: Any, make: Callable[[], torch.Tensor]
) -> torch.Tensor:
  """What several terms of one step need, made by the first that asks.

  ConstrainedEnv forgets it whenever the state changes; mjlab's own environment has no
  such memory, and every term computes its own.
  """
  cache: dict[Any, torch.Tensor] | None = getattr(env, "step_cache", None)
  if cache is None:
    return make()
  if key not in cache:
    cache[key] = make()
  return cache[key]


def root_velocity_b(env: ManagerBasedRlEnv, asset: Entity) -> torch.Tensor:
  """Linear and angular velocity of the root in its own frame. # [B, 6]"""

  def make() -> torch.Tensor:
    quat = asset.data.data.xquat[:, asset.indexing.root_body_id]
    velocity = asset.data.root_link_vel_w.unflatten(1, (2, 3))  # [B, 2, 3]
    return quat_apply_inverse(quat.unsqueeze(1).expand(-1, 2, -1), velocity).flatten(1)

  return shared(env, ("root_velocity_b", id(asset)), make)


def joint_offset(env: ManagerBasedRlEnv, asset: Entity) -> torch.Tensor:
  """Joint positions relative to the default ones. # [B, J]"""
  return shared(
    env,
    ("joint_offset", id(asset)),
    lambda: asset.data.joint_pos - asset.data.default_joint_pos,
  )


def root_velocity_yaw(asset: Entity) -> torch.Tensor:
  """Root velocity along and across the heading, in the horizontal plane. # [B, 2]"""
  w, x, y, z = asset.data.data.xquat[:, asset.indexing.root_body_id].unbind(-1)
  heading = torch.stack((1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y + w * z)), -1)
  heading = torch.nn.functional.normalize(heading, dim=-1)  # [B, 2] (cos, sin)
  velocity = asset.data.root_link_lin_vel_w[:, :2]
  along = (heading * velocity).sum(-1)
  across = heading[:, 0] * velocity[:, 1] - heading[:, 1] * velocity[:, 0]
  return torch.stack((along, across), -1)


def body_position_w(
  env: ManagerBasedRlEnv, asset: Entity, body_ids: list[int] | slice
) -> torch.Tensor:
  """Origins of some of an entity's bodies. # [B, N, 3]"""
  ids = asset.indexing.body_ids[on_device(env, body_ids)]
  return asset.data.data.xpos[:, ids]


def body_velocity_w(
  env: ManagerBasedRlEnv, asset: Entity, body_ids: list[int] | slice
) -> torch.Tensor:
  """Linear velocities at the origins of some of an entity's bodies. # [B, N, 3]"""

  def make() -> torch.Tensor:
    ids = asset.indexing.body_ids[on_device(env, body_ids)]
    data = asset.data.data
    com = data.subtree_com[:, asset.indexing.root_body_id].unsqueeze(1)
    cvel = data.cvel[:, ids]
    return compute_velocity_from_cvel(data.xpos[:, ids], com, cvel)[..., :3]

  chosen = (body_ids.start, body_ids.stop) if isinstance(body_ids, slice) else body_ids
  return shared(env, ("body_velocity_w", id(asset), tuple(chosen)), make)
