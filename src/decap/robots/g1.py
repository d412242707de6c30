"""Unitree G1 with 29 and with 23 degrees of freedom, on mjlab's model of it.

mjlab's gains, action scales, feet and solver settings are what its users deploy, so
they stay. The 23-DoF robot is the same model without its six extra joints and with the
inertias of the links that differ on the real one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from functools import partial

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
from decap.robots.description import Gait, Point, RobotDescription
from decap.robots.g1_motors import G1_23DOF, G1_29DOF

G1_29DOF_JOINTS = G1_29DOF.joint_names
G1_23DOF_JOINTS = G1_23DOF.joint_names
"""Joints in the order of the model, of the actions and of the robot's motor slots."""

GROUPS: dict[str, BodyGroupCfg] = {
  "upper": BodyGroupCfg(
    joint_names=(".*_shoulder_.*", ".*_elbow_.*", ".*_wrist_.*"), p_max=0.5
  ),
  "lower": BodyGroupCfg(
    joint_names=(".*_hip_.*", ".*_knee_.*", ".*_ankle_.*", "waist_.*"), p_max=0.25
  ),
}
"""DeCap's decoupled body groups."""

LIMITS = {
  "action_rate": {"upper": 5.0, "lower": 20.0},
  "joint_acc": {"upper": 20.0, "lower": 600.0},
  "joint_torque": {"upper": 4.0, "lower": 20.0},
  "joint_vel": {"upper": 1.5, "lower": 10.0},
}
"""The paper's decoupled limits: rad/s, rad/s², Nm, rad/s."""

# No term reads these, and the accelerometer alone makes MuJoCo compute the forces of
# every body after the solver.
_UNUSED_SENSORS = ("imu_lin_vel", "imu_lin_acc", "imu_upvector", "root_angmom")


def g1(dof: int) -> RobotDescription:
  """A fresh description of the G1 with 29 or 23 degrees of freedom."""
  specs = {29: (G1_29DOF_JOINTS, spec_29dof), 23: (G1_23DOF_JOINTS, spec_23dof)}
  if dof not in specs:
    raise ValueError(f"the G1 has 29 or 23 degrees of freedom, not {dof}")
  joint_names, spec_fn = specs[dof]
  arms = (".*_shoulder_.*", ".*_elbow_.*", ".*_wrist_.*")
  return RobotDescription(
    joint_names=joint_names,
    entity=_entity(joint_names, spec_fn),
    action_scale={p: s for p, s in G1_ACTION_SCALE.items() if _matches(p, joint_names)},
    # Decoupled like the limits: arms start with the noise that their action-rate limit
    # allows, legs with what balance is learnt from.
    exploration={
      ".*_(shoulder|elbow|wrist)_.*": 0.06,
      ".*(hip|knee|ankle|waist)_.*": 0.6,
    },
    groups=deepcopy(GROUPS),
    limits=deepcopy(LIMITS),
    feet=("left_ankle_roll_link", "right_ankle_roll_link"),
    foot_geoms=(r"^(left|right)_foot[1-7]_collision$",),
    contact_bodies=(
      "pelvis",
      "torso_link",
      r".*_(hip_roll|hip_yaw|knee|shoulder_yaw|elbow|wrist_pitch|wrist_yaw)_link",
    ),
    torso="torso_link",
    base_height_m=0.78,
    fallen_height_m=0.2,
    foot_clearance_m=0.1,
    gait=Gait(period_s=0.8, offsets=(0.0, 0.5)),
    deviations={
      "waist_deviation": (("waist_.*",), -1.0),
      "hip_deviation": ((".*_hip_roll_joint", ".*_hip_yaw_joint"), -1.0),
      "arm_deviation": (arms, -0.1),
    },
    # The head is rigid on the torso.
    head=("torso_link", (0.0, 0.0, 0.42)),
    segments={
      "pelvis": "pelvis",
      "torso": "torso_link",
      "head": "torso_link",
      "left_wrist": "left_wrist_yaw_link",
      "right_wrist": "right_wrist_yaw_link",
    },
    extremities=_extremities(),
    profile_quantiles={"upper": 0.5, "lower": 0.99},
  )


g1_29dof, g1_23dof = partial(g1, 29), partial(g1, 23)


def _entity(
  joint_names: tuple[str, ...], spec_fn: Callable[[], mujoco.MjSpec]
) -> EntityCfg:
  actuators = tuple(
    deepcopy(a)
    for a in G1_ARTICULATION.actuators
    if isinstance(a, BuiltinPositionActuatorCfg)
    and any(_matches(p, joint_names) for p in a.target_names_expr)
  )
  return EntityCfg(
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


def _extremities() -> dict[str, Point]:
  points: dict[str, Point] = {"torso_link/head": ("torso_link", (0.0, 0.0, 0.42))}
  for side in ("left", "right"):
    foot, hand = f"{side}_ankle_roll_link", f"{side}_wrist_yaw_link"
    points[f"{foot}/heel"] = (foot, (-0.05, 0.0, -0.035))
    points[f"{foot}/toe"] = (foot, (0.13, 0.0, -0.035))
    points[f"{hand}/hand"] = (hand, (0.1, 0.0, 0.0))
  return points


def spec_29dof() -> mujoco.MjSpec:
  """mjlab's G1 without the sensors that no term reads."""
  spec = get_spec()
  for name in _UNUSED_SENSORS:
    spec.delete(spec.sensor(name))
  return spec


def spec_23dof() -> mujoco.MjSpec:
  """The 23-DoF G1: six joints fewer, one hand per side, no waist links."""
  spec = spec_29dof()
  for name in G1_29DOF_JOINTS:
    if name not in G1_23DOF_JOINTS:
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
