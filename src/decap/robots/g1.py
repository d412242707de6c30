"""Unitree G1 with 29 and with 23 degrees of freedom, on mjlab's model of it.

mjlab's gains, action scales, feet and solver settings are what its users deploy, so
they stay. The 23-DoF robot is the same model without its six extra joints and with the
inertias of the links that differ on the real one.
"""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass

import mujoco
from mjlab.actuator import BuiltinPositionActuatorCfg
from mjlab.asset_zoo.robots.unitree_g1.g1_constants import (
  FULL_COLLISION,
  G1_ACTION_SCALE,
  G1_ARTICULATION,
  HOME_KEYFRAME,
  get_spec,
)
from mjlab.entity import EntityArticulationInfoCfg, EntityCfg

from decap.constraints.groups import BodyGroupCfg

G1_29DOF_JOINTS: tuple[str, ...] = (
  *(f"left_{j}_joint" for j in ("hip_pitch", "hip_roll", "hip_yaw", "knee")),
  *(f"left_{j}_joint" for j in ("ankle_pitch", "ankle_roll")),
  *(f"right_{j}_joint" for j in ("hip_pitch", "hip_roll", "hip_yaw", "knee")),
  *(f"right_{j}_joint" for j in ("ankle_pitch", "ankle_roll")),
  *(f"waist_{j}_joint" for j in ("yaw", "roll", "pitch")),
  *(f"left_shoulder_{j}_joint" for j in ("pitch", "roll", "yaw")),
  "left_elbow_joint",
  *(f"left_wrist_{j}_joint" for j in ("roll", "pitch", "yaw")),
  *(f"right_shoulder_{j}_joint" for j in ("pitch", "roll", "yaw")),
  "right_elbow_joint",
  *(f"right_wrist_{j}_joint" for j in ("roll", "pitch", "yaw")),
)
"""Joints in the order of the model, of the actions and of the robot's motor slots."""

FIXED_ON_23DOF: tuple[str, ...] = (
  "waist_roll_joint",
  "waist_pitch_joint",
  "left_wrist_pitch_joint",
  "left_wrist_yaw_joint",
  "right_wrist_pitch_joint",
  "right_wrist_yaw_joint",
)

G1_23DOF_JOINTS: tuple[str, ...] = tuple(
  name for name in G1_29DOF_JOINTS if name not in FIXED_ON_23DOF
)

MOTOR_SLOTS: dict[str, int] = {name: i for i, name in enumerate(G1_29DOF_JOINTS)}
"""Joint name → index in the robot's motor arrays. The 23-DoF robot has the same slots,
six of them empty: always map by name."""

GROUPS: dict[str, BodyGroupCfg] = {
  "upper": BodyGroupCfg(
    joint_names=(".*_shoulder_.*", ".*_elbow_.*", ".*_wrist_.*"), p_max=0.5
  ),
  "lower": BodyGroupCfg(
    joint_names=(".*_hip_.*", ".*_knee_.*", ".*_ankle_.*", "waist_.*"), p_max=0.25
  ),
}
"""DeCap's decoupled body groups."""

# No term reads these, and the accelerometer alone makes MuJoCo compute the forces of
# every body after the solver.
_UNUSED_SENSORS = ("imu_lin_vel", "imu_lin_acc", "imu_upvector", "root_angmom")


@dataclass(frozen=True)
class G1:
  """What a task needs to know about one of the two robots."""

  joint_names: tuple[str, ...]
  entity: EntityCfg
  action_scale: dict[str, float]


def g1(dof: int) -> G1:
  """A fresh description of the G1 with 29 or 23 degrees of freedom."""
  specs = {29: (G1_29DOF_JOINTS, spec_29dof), 23: (G1_23DOF_JOINTS, spec_23dof)}
  if dof not in specs:
    raise ValueError(f"the G1 has 29 or 23 degrees of freedom, not {dof}")
  joint_names, spec_fn = specs[dof]
  actuators = tuple(
    deepcopy(a)
    for a in G1_ARTICULATION.actuators
    if isinstance(a, BuiltinPositionActuatorCfg)
    and any(_matches(p, joint_names) for p in a.target_names_expr)
  )
  entity = EntityCfg(
    init_state=deepcopy(HOME_KEYFRAME),
    # Self-collisions included: they are most of the undesired contacts, and all
    # capsules together cost 7 % of a physics step over feet alone.
    collisions=(deepcopy(FULL_COLLISION),),
    spec_fn=spec_fn,
    articulation=EntityArticulationInfoCfg(
      actuators=actuators,
      soft_joint_pos_limit_factor=G1_ARTICULATION.soft_joint_pos_limit_factor,
    ),
  )
  scale = {p: s for p, s in G1_ACTION_SCALE.items() if _matches(p, joint_names)}
  return G1(joint_names, entity, scale)


def spec_29dof() -> mujoco.MjSpec:
  """mjlab's G1 without the sensors that no term reads."""
  spec = get_spec()
  for name in _UNUSED_SENSORS:
    spec.delete(spec.sensor(name))
  return spec


def spec_23dof() -> mujoco.MjSpec:
  """The 23-DoF G1: six joints fewer, one hand per side, no waist links."""
  spec = spec_29dof()
  for name in FIXED_ON_23DOF:
    spec.delete(spec.joint(name))
  for name in ("waist_yaw_link", "waist_roll_link"):
    _set_inertia(spec.body(name), 0.0)
  for side, sign in (("left", 1.0), ("right", -1.0)):
    # The vendor's inertia of forearm end and rubber hand as one link, without its
    # small off-diagonal part; the 29-DoF robot has three links of 0.824 kg there.
    _set_inertia(
      spec.body(f"{side}_wrist_roll_link"),
      0.356929,
      pos=(0.107947, sign * 0.00163512, 0.00202245),
      diagonal=(0.000196135, 0.00200280, 0.00194182),
    )
    for link in ("wrist_pitch", "wrist_yaw"):
      _set_inertia(spec.body(f"{side}_{link}_link"), 0.0)
  return spec


def _set_inertia(
  body: mujoco.MjsBody,
  mass: float,
  pos: tuple[float, float, float] = (0.0, 0.0, 0.0),
  diagonal: tuple[float, float, float] = (0.0, 0.0, 0.0),
) -> None:
  body.mass = mass
  body.ipos = pos
  body.iquat = (1.0, 0.0, 0.0, 0.0)
  body.inertia = diagonal


def _matches(pattern: str, names: tuple[str, ...]) -> bool:
  return any(re.fullmatch(pattern, name) for name in names)
