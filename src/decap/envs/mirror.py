"""What observations and actions become when left and right are exchanged.

The mirror plane is the robot's own x-z plane. How its joints map onto each other is
read from the model; how the other observations change is known by their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import mujoco
import numpy as np
import torch

from decap.errors import UserError

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnv

_VECTOR = (1.0, -1.0, 1.0)
_ROTATION = (-1.0, 1.0, -1.0)
_SIGNS = {
  "base_lin_vel": _VECTOR,
  "base_ang_vel": _ROTATION,
  "projected_gravity": _VECTOR,
  "command": (1.0, -1.0, -1.0),
  # The other foot is due half a period later.
  "clock": (-1.0, -1.0),
}
"""Observation → factor on each entry."""
_TOLERANCE = 0.01
"""m, and 1 − cosine: by how much a joint may differ from another's mirror image."""


def mirrors(
  env: ConstrainedEnv, groups: Sequence[str] = ("actor",)
) -> dict[str, torch.Tensor]:
  """Mirrors of observation groups and of "actions", as matrices for x @ M.

  Signed permutations [D, D]: entry (i, j) is the sign with which x_i becomes y_j.
  """
  entity = env.cfg.constrained_entity
  robot = env.scene[entity]
  joints = joint_mirror(env.sim.mj_model, [f"{entity}/{n}" for n in robot.joint_names])
  action = env.action_manager
  names = [n for t in action.active_terms for n in action.get_term(t).target_names]
  order = [list(robot.joint_names).index(name) for name in names]
  actions = joints[np.ix_(order, order)]
  known = {"actions": actions, "joint_pos": joints, "joint_vel": joints}
  manager = env.observation_manager
  out = {"actions": torch.tensor(actions, dtype=torch.float)}
  for group in groups:
    parts = []
    terms = manager.active_terms[group]
    for name, shape in zip(terms, manager.group_obs_term_dim[group], strict=True):
      part = known.get(name, np.diag(_SIGNS.get(name, ())))
      if (len(part),) != tuple(shape):
        raise UserError(
          f"How the observation '{name}' changes when left and right are exchanged is "
          "not known; train with --agent.algorithm.mirror-loss-coef 0."
        )
      parts.append(torch.tensor(part, dtype=torch.float))
    out[group] = torch.block_diag(*parts)
  return out


def joint_mirror(model: mujoco.MjModel, names: list[str]) -> np.ndarray:
  """How the named hinge joints map onto each other: a signed permutation [J, J].

  A joint's image is the one whose anchor lies at the mirrored place, about the
  mirrored axis, in the model's zero pose. An axis of rotation turns around when it is
  mirrored: that of a pitch joint stays, those of roll and yaw joints flip.
  """
  data = mujoco.MjData(model)
  mujoco.mj_resetData(model, data)
  mujoco.mj_kinematics(model, data)
  ids = [model.joint(name).id for name in names]
  root = data.xpos[model.body_rootid[model.jnt_bodyid[ids[0]]]]
  anchors, axes = data.xanchor[ids] - root, data.xaxis[ids]
  cosine = (axes * _ROTATION) @ axes.T  # [J, J]
  distance = np.linalg.norm((anchors * _VECTOR)[:, None] - anchors[None], axis=-1)
  differs = np.maximum(distance, 1.0 - np.abs(cosine))
  image = differs.argmin(1)
  for i, j in enumerate(image):
    if differs[i, j] > _TOLERANCE or image[j] != i:
      raise UserError(
        f"The robot is not symmetric: joint '{names[i]}' has no mirror image; train "
        "with --agent.algorithm.mirror-loss-coef 0."
      )
  out = np.zeros_like(cosine)
  rows = np.arange(len(ids))
  out[rows, image] = np.sign(cosine[rows, image])
  return out
