"""Unitree Go1, a quadruped, on mjlab's model of it: an example of a robot to add.

docs/robots.md walks through this file.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import mujoco
from mjlab.asset_zoo.robots.unitree_go1.go1_constants import (
  FULL_COLLISION,
  GO1_ACTION_SCALE,
  GO1_ARTICULATION,
  INIT_STATE,
  get_spec,
)
from mjlab.entity import EntityCfg

from decap.constraints.groups import BodyGroupCfg
from decap.robots.description import Gait, RobotDescription

LEGS = ("FR", "FL", "RR", "RL")
JOINTS = tuple(
  f"{leg}_{part}_joint" for leg in LEGS for part in ("hip", "thigh", "calf")
)
FEET = tuple(f"{leg}_foot" for leg in LEGS)

LIMITS = {
  "action_rate": {"hips": 6.57, "legs": 8.58},
  "joint_acc": {"hips": 368.0, "legs": 750.0},
  "joint_torque": {"hips": 4.28, "legs": 22.0},
  "joint_vel": {"hips": 2.3, "legs": 5.71},
}
"""What `python examples/go1_trot.py` proposes: quantile 0.99 of the largest joint of a
group in a trot that follows 75 % of the commanded velocity; rad/s, rad/s², Nm, rad/s."""


def go1() -> RobotDescription:
  """A fresh description of the Go1."""
  return RobotDescription(
    joint_names=JOINTS,
    entity=EntityCfg(
      # mjlab's pose with the feet on the ground instead of 1.7 cm within it.
      init_state=replace(INIT_STATE, pos=(0.0, 0.0, 0.295)),
      collisions=(deepcopy(FULL_COLLISION),),
      spec_fn=go1_spec,
      articulation=deepcopy(GO1_ARTICULATION),
    ),
    action_scale=dict(GO1_ACTION_SCALE),
    exploration={".*": 0.6},
    groups={
      # Legs swing in their planes; what spreads them should be calm.
      "hips": BodyGroupCfg(joint_names=(".*_hip_joint",), p_max=0.5),
      "legs": BodyGroupCfg(joint_names=(".*_(thigh|calf)_joint",), p_max=0.25),
    },
    limits=deepcopy(LIMITS),
    feet=FEET,
    foot_geoms=tuple(f"{foot}_collision" for foot in FEET),
    contact_bodies=("trunk", ".*_(hip|thigh|calf)"),
    torso="trunk",
    base_height_m=0.28,
    fallen_height_m=0.12,
    foot_clearance_m=0.08,
    # A trot: feet on a diagonal move together.
    gait=Gait(period_s=0.5, offsets=(0.0, 0.5, 0.5, 0.0)),
    deviations={"hip_deviation": ((".*_hip_joint",), -1.0)},
    head=("trunk", (0.3, 0.0, 0.0)),
    segments={"trunk": "trunk"},
    extremities={"trunk/head": ("trunk", (0.3, 0.0, 0.0))},
    payload_kg=(-0.5, 1.5),
    # As in mjlab's own task.
    solver={"cone": "elliptic", "impratio": 10},
    view_distance_m=1.5,
  )


def go1_spec() -> mujoco.MjSpec:
  """mjlab's Go1 with feet as bodies, and without the sensors that no term reads."""
  spec = get_spec()
  for name in ("imu_lin_vel", "imu_lin_acc", "imu_upvector", "root_angmom"):
    spec.delete(spec.sensor(name))
  for leg in LEGS:
    sole = spec.geom(f"{leg}_foot_collision")
    place, radius = spec.site(leg).pos, sole.size[0]
    spec.delete(sole)
    # Without mass: it is part of the calf's.
    foot = spec.body(f"{leg}_calf").add_body(
      name=f"{leg}_foot", pos=place, mass=0.0, explicitinertial=True
    )
    foot.add_geom(
      name=f"{leg}_foot_collision",
      type=mujoco.mjtGeom.mjGEOM_SPHERE,
      size=[radius, 0.0, 0.0],
      mass=0.0,
      group=3,
    )
  return spec
