"""Records some environments of a rollout: samples, and points of the robot for playback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from decap.evaluation.layout import Layout
from decap.evaluation.protocol import Protocol
from decap.evaluation.trajectory import QUANTITY, SAMPLE_FIELDS, Sample, Trajectory

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnv
  from decap.robots.description import RobotDescription


class TrajectoryRecorder:
  """Keeps the first environments of each rollout in device memory until it ends."""

  def __init__(
    self,
    env: ConstrainedEnv,
    layout: Layout,
    robot: RobotDescription,
    protocol: Protocol,
    count: int,
  ) -> None:
    self._layout, self._protocol = layout, protocol
    starts = range(0, protocol.rollouts * protocol.envs, protocol.envs)
    ids = [start + i for start in starts for i in range(count)]
    self._env_ids = torch.tensor(ids, dtype=torch.long, device=env.device)
    self._skeleton = Skeleton(env, layout, robot)
    self._buffers: dict[str, torch.Tensor] = {}
    self._step = 0

  def add(self, sample: Sample, **more: torch.Tensor) -> None:
    """Store one step; `more` are further tensors of all environments. # [B, …]"""
    tensors = {name: getattr(sample, name) for name in SAMPLE_FIELDS} | more
    kept = {name: t.index_select(0, self._env_ids) for name, t in tensors.items()}
    kept["points"] = self._skeleton.points(self._env_ids)
    for name, quantity in sample.quantities.items():
      kept[f"{QUANTITY}{name}"] = quantity.index_select(0, self._env_ids)
    for name, tensor in kept.items():
      if name not in self._buffers:
        self._buffers[name] = tensor.new_zeros(self._protocol.steps, *tensor.shape)
      self._buffers[name][self._step].copy_(tensor)
    self._step += 1

  def trajectory(self, policy: dict[str, Any]) -> Trajectory:
    """What was recorded so far, on the host."""
    buffers = self._buffers.items()
    return Trajectory(
      self._layout,
      {name: buffer[: self._step].cpu().numpy() for name, buffer in buffers},
      self._protocol.to_dict(),
      tuple(i // self._protocol.envs for i in self._env_ids.tolist()),
      self._skeleton.meta,
      policy,
    )


class Skeleton:
  """Points of the robot for playback: body origins and extremities."""

  def __init__(
    self, env: ConstrainedEnv, layout: Layout, robot: RobotDescription
  ) -> None:
    self._robot = env.scene[env.cfg.constrained_entity]
    self._bodies = self._robot.indexing.body_ids
    model, names = env.sim.mj_model, list(self._robot.body_names)
    ids = self._bodies.tolist()
    above = [model.body_parentid[i] for i in ids]
    parents = [ids.index(p) if p in ids else -1 for p in above]
    moved = model.jnt_bodyid[self._robot.indexing.joint_ids.cpu()]  # By joint. # [J]
    group_of = {moved[j]: group for group, js in layout.groups.items() for j in js}
    groups = [group_of.get(i, "") for i in ids]  # The base has none.
    ends = robot.extremities.values()
    owners = [names.index(body) for body, _ in ends]
    offsets = [offset for _, offset in ends]
    self._offsets = torch.tensor(offsets, device=env.device).view(-1, 3)
    self._owner_ids = torch.tensor(owners, dtype=torch.long, device=env.device)
    self.meta = {
      "names": [*names, *robot.extremities],
      "parents": parents + owners,
      "groups": groups + [groups[owner] for owner in owners],
    }

  def points(self, env_ids: torch.Tensor) -> torch.Tensor:
    """World positions in the chosen environments. # [N, P, 3]"""
    from mjlab.utils.lab_api.math import quat_apply

    data, owners = self._robot.data.data, self._owner_ids
    position = data.xpos[:, self._bodies].index_select(0, env_ids)
    rotation = data.xquat[:, self._bodies].index_select(0, env_ids)
    offsets = self._offsets.expand(len(position), -1, 3)
    ends = position[:, owners] + quat_apply(rotation[:, owners], offsets)
    return torch.cat((position, ends), dim=1)
