"""What several terms read from the simulation: few kernels, and no waiting.

On a GPU every operation on these small tensors costs the same, whatever it computes.
So neighbouring columns are views, orientations are MuJoCo's matrices rather than
quaternions, and what several terms need is made once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from decap.envs.masked import kept
from decap.envs.mdp.terrain import height_above_terrain

if TYPE_CHECKING:
  from mjlab.entity import Entity
  from mjlab.envs import ManagerBasedRlEnv

Ids = list[int] | slice
_ALL = slice(None)


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
  such memory, and every term computes its own. Nobody may write into the result.
  """
  cache: dict[Any, torch.Tensor] | None = getattr(env, "step_cache", None)
  if cache is None:
    return make()
  if key not in cache:
    cache[key] = make()
  return cache[key]


##
# Columns.
##


def on_device(env: ManagerBasedRlEnv, ids: Ids) -> torch.Tensor | slice:
  """Indices for ``x[:, ids]``; a Python list would be copied to the device each time.

  Evenly spaced ones are a slice, which makes a view instead of a copy.
  """
  if isinstance(ids, slice):
    return ids
  return kept(env, ("ids", *ids), lambda: _slice_or_tensor(ids, env.device))


def columns(
  env: ManagerBasedRlEnv, asset: Entity, kind: str, ids: Ids = _ALL
) -> torch.Tensor | slice:
  """``asset.indexing``'s entries of a kind, such as "joint_q_adr", as ``on_device``."""

  def make() -> torch.Tensor | slice:
    return _slice_or_tensor(getattr(asset.indexing, kind)[ids].tolist(), env.device)

  return kept(env, (kind, id(asset), str(ids)), make)


def _slice_or_tensor(ids: list[int], device: str) -> torch.Tensor | slice:
  step = ids[1] - ids[0] if len(ids) > 1 else 1
  if ids and step > 0 and ids == list(range(ids[0], ids[-1] + 1, step)):
    return slice(ids[0], ids[-1] + 1, step)
  return torch.tensor(ids, dtype=torch.long, device=device)


##
# Joints.
##


def joint_pos(env: ManagerBasedRlEnv, asset: Entity) -> torch.Tensor:
  """Joint positions. # [B, J]"""
  return asset.data.data.qpos[:, columns(env, asset, "joint_q_adr")]


def joint_dofs(env: ManagerBasedRlEnv, asset: Entity, values: Any) -> torch.Tensor:
  """The joints' part of an array like qvel. values [B, nv] -> [B, J]"""
  return values[:, columns(env, asset, "joint_v_adr")]


def joint_offset(env: ManagerBasedRlEnv, asset: Entity) -> torch.Tensor:
  """Joint positions relative to the default ones. # [B, J]"""
  return shared(
    env,
    ("joint_offset", id(asset)),
    lambda: joint_pos(env, asset) - asset.data.default_joint_pos,
  )


##
# Root.
##


def root_qpos(env: ManagerBasedRlEnv, asset: Entity) -> torch.Tensor:
  """A view of the free joint's position and quaternion. # [B, 7]"""
  return asset.data.data.qpos[:, columns(env, asset, "free_joint_q_adr")]


def root_qvel(env: ManagerBasedRlEnv, asset: Entity) -> torch.Tensor:
  """A view of the free joint's velocity: linear in the world, angular in the body."""
  return asset.data.data.qvel[:, columns(env, asset, "free_joint_v_adr")]  # [B, 6]


def root_position_w(asset: Entity) -> torch.Tensor:
  """Origin of the root. # [B, 3]"""
  return asset.data.data.xpos[:, asset.indexing.root_body_id]


def root_rotation(asset: Entity) -> torch.Tensor:
  """Matrix whose columns are the root's axes in the world. # [B, 3, 3]"""
  return asset.data.data.xmat[:, asset.indexing.root_body_id]


def root_height(env: ManagerBasedRlEnv, asset: Entity) -> torch.Tensor:
  """Height of the root above the terrain below it. # [B]"""
  return shared(
    env,
    ("root_height", id(asset)),
    lambda: height_above_terrain(env, root_position_w(asset)),
  )


def up_b(asset: Entity) -> torch.Tensor:
  """The vertical in the root's frame, against gravity. # [B, 3]"""
  return root_rotation(asset)[:, 2]


def root_velocity_w(env: ManagerBasedRlEnv, asset: Entity) -> torch.Tensor:
  """Linear and angular velocity of the root. # [B, 2, 3]"""

  def make() -> torch.Tensor:
    data, root = asset.data.data, asset.indexing.root_body_id
    cvel = data.cvel[:, root]
    linear = _velocity_at(data.xpos[:, root], data.subtree_com[:, root], cvel)
    return torch.stack((linear, cvel[:, :3]), 1)

  return shared(env, ("root_velocity_w", id(asset)), make)


def root_velocity_b(env: ManagerBasedRlEnv, asset: Entity) -> torch.Tensor:
  """Linear and angular velocity of the root in its own frame. # [B, 6]"""

  def make() -> torch.Tensor:
    velocity = root_velocity_w(env, asset).unsqueeze(-1)  # [B, 2, 3, 1]
    # A sum of products: matrix products may be rounded to TF32.
    return (velocity * root_rotation(asset).unsqueeze(1)).sum(2).flatten(1)

  return shared(env, ("root_velocity_b", id(asset)), make)


def root_velocity_yaw(env: ManagerBasedRlEnv, asset: Entity) -> torch.Tensor:
  """Root velocity along and across the heading, in the horizontal plane. # [B, 2]"""
  # As complex numbers: turned back by the direction of the root's x axis.
  x_axis = root_rotation(asset)[:, :2, 0]
  heading = torch.complex(x_axis[:, 0], x_axis[:, 1]).sgn()
  velocity = torch.view_as_complex(root_velocity_w(env, asset)[:, 0, :2])
  return torch.view_as_real(velocity * heading.conj())


##
# Bodies.
##


def body_position_w(
  env: ManagerBasedRlEnv, asset: Entity, body_ids: Ids
) -> torch.Tensor:
  """Origins of some of an entity's bodies. # [B, N, 3]"""
  return asset.data.data.xpos[:, columns(env, asset, "body_ids", body_ids)]


def body_planar_speed(
  env: ManagerBasedRlEnv, asset: Entity, body_ids: Ids
) -> torch.Tensor:
  """Horizontal speeds at the origins of some of an entity's bodies. # [B, N]"""

  def make() -> torch.Tensor:
    data, ids = asset.data.data, columns(env, asset, "body_ids", body_ids)
    com = data.subtree_com[:, asset.indexing.root_body_id].unsqueeze(1)
    velocity = _velocity_at(data.xpos[:, ids], com, data.cvel[:, ids])
    return velocity[..., :2].norm(dim=-1)

  return shared(env, ("body_planar_speed", id(asset), str(body_ids)), make)


def rotate_to_body(quat: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
  """R(quat)ᵀ vector, as mjlab's quat_apply_inverse. quat [B, 4], vector [B, 3]"""
  w, xyz = quat[:, :1], quat[:, 1:]
  side = torch.linalg.cross(xyz, vector)
  turn = torch.addcmul(torch.linalg.cross(xyz, side), w, side, value=-1)
  return torch.add(vector, turn, alpha=2)


def _velocity_at(
  position: torch.Tensor, com: torch.Tensor, cvel: torch.Tensor
) -> torch.Tensor:
  """Linear velocity at a point of a body from MuJoCo's cvel, which is at the com."""
  return cvel[..., 3:] - torch.linalg.cross(cvel[..., :3], com - position)
