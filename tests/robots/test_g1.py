"""The two G1 models against the numbers of the real robots."""

import mujoco
import numpy as np
import pytest
from mjlab.entity import Entity

from decap.constraints.groups import resolve_groups
from decap.robots.g1 import (
  G1_23DOF_JOINTS,
  G1_29DOF_JOINTS,
  GROUPS,
  g1,
  spec_23dof,
  spec_29dof,
)

# kp, effort limit and action scale = 0.25 effort / kp of mjlab's G1.
ACTUATORS = {
  "shoulder_pitch": (14.25, 25.0, 0.4386),
  "shoulder_roll": (14.25, 25.0, 0.4386),
  "shoulder_yaw": (14.25, 25.0, 0.4386),
  "elbow": (14.25, 25.0, 0.4386),
  "wrist_roll": (14.25, 25.0, 0.4386),
  "wrist_pitch": (16.78, 5.0, 0.0745),
  "wrist_yaw": (16.78, 5.0, 0.0745),
  "hip_pitch": (40.18, 88.0, 0.5475),
  "hip_yaw": (40.18, 88.0, 0.5475),
  "waist_yaw": (40.18, 88.0, 0.5475),
  "hip_roll": (99.10, 139.0, 0.3507),
  "knee": (99.10, 139.0, 0.3507),
  "ankle_pitch": (28.50, 50.0, 0.4386),
  "ankle_roll": (28.50, 50.0, 0.4386),
  "waist_roll": (28.50, 50.0, 0.4386),
  "waist_pitch": (28.50, 50.0, 0.4386),
}


@pytest.fixture(scope="module", params=[29, 23])
def robot(request):
  description = g1(request.param)
  entity = Entity(description.entity)
  return request.param, description, entity, entity.spec.compile()


def test_joints_in_motor_order(robot):
  dof, description, entity, model = robot
  assert model.nu == dof
  assert tuple(entity.joint_names) == description.joint_names
  assert len(description.joint_names) == dof


def test_total_mass(robot):
  dof, _, _, model = robot
  expected = {29: 33.34, 23: 32.11}[dof]
  assert model.body_mass.sum() == pytest.approx(expected, abs=0.005)


def test_masses_that_differ():
  """Distal arm 0.824 -> 0.357 kg a side, waist links 0.30 -> 0 kg, nothing else."""
  m29, m23 = spec_29dof().compile(), spec_23dof().compile()
  wrist = ["roll", "pitch", "yaw"]
  for side in ("left", "right"):
    links = [f"{side}_wrist_{w}_link" for w in wrist]
    assert sum(m29.body(n).mass[0] for n in links) == pytest.approx(0.824, abs=5e-4)
    assert sum(m23.body(n).mass[0] for n in links) == pytest.approx(0.357, abs=5e-4)
  waist = ["waist_yaw_link", "waist_roll_link"]
  assert sum(m29.body(n).mass[0] for n in waist) == pytest.approx(0.30)
  assert sum(m23.body(n).mass[0] for n in waist) == 0.0
  for i in range(m29.nbody):
    name = m29.body(i).name
    if "wrist" not in name and name not in waist:
      assert m29.body(i).mass == m23.body(i).mass, name


def test_arms_of_23dof_are_mirror_images():
  model = spec_23dof().compile()
  left, right = model.body("left_wrist_roll_link"), model.body("right_wrist_roll_link")
  np.testing.assert_allclose(left.ipos * (1, -1, 1), right.ipos)
  np.testing.assert_allclose(left.inertia, right.inertia)


def test_gains_limits_and_scales(robot):
  _, description, _, model = robot
  seen = set()
  for i in range(model.nu):
    joint = model.joint(model.actuator_trnid[i, 0]).name
    kind = joint.removeprefix("left_").removeprefix("right_").removesuffix("_joint")
    kp, effort, scale = ACTUATORS[kind]
    assert model.actuator_gainprm[i, 0] == pytest.approx(kp, abs=0.006), joint
    assert model.actuator_forcerange[i, 1] == pytest.approx(effort), joint
    matching = [s for p, s in description.action_scale.items() if _match(p, joint)]
    assert matching == [pytest.approx(scale, abs=6e-5)], joint
    seen.add(joint)
  assert seen == set(description.joint_names)


def test_default_pose(robot):
  """mjlab's home pose: both soles on the ground."""
  _, _, entity, model = robot
  pose = {n: model.key_qpos[0][7 + i] for i, n in enumerate(entity.joint_names)}
  for side, sign in (("left", 1.0), ("right", -1.0)):
    assert pose[f"{side}_hip_pitch_joint"] == pytest.approx(-0.1)
    assert pose[f"{side}_knee_joint"] == pytest.approx(0.3)
    assert pose[f"{side}_ankle_pitch_joint"] == pytest.approx(-0.2)
    assert pose[f"{side}_shoulder_pitch_joint"] == pytest.approx(0.2)
    assert pose[f"{side}_shoulder_roll_joint"] == pytest.approx(sign * 0.2)
    assert pose[f"{side}_elbow_joint"] == pytest.approx(1.28)
  data = mujoco.MjData(model)
  mujoco.mj_resetDataKeyframe(model, data, 0)
  mujoco.mj_kinematics(model, data)
  foot = data.geom("left_foot4_collision")
  assert foot.xpos[2] - 0.01 == pytest.approx(0.0, abs=2e-3)  # Capsule radius 1 cm.


def test_no_sensor_that_needs_forces_of_all_bodies(robot):
  model = robot[-1]
  costly = (
    mujoco.mjtSensor.mjSENS_ACCELEROMETER,
    mujoco.mjtSensor.mjSENS_SUBTREEANGMOM,
  )
  assert model.nsensor == 1
  assert not set(model.sensor_type) & set(costly)


@pytest.mark.parametrize(
  ("names", "upper", "lower"), [(G1_29DOF_JOINTS, 14, 15), (G1_23DOF_JOINTS, 10, 13)]
)
def test_every_joint_is_in_one_group(names, upper, lower):
  groups = resolve_groups(GROUPS, names)
  assert len(groups["upper"]) == upper
  assert len(groups["lower"]) == lower
  assert sorted(groups["upper"] + groups["lower"]) == list(range(len(names)))
  assert {n: g.p_max for n, g in GROUPS.items()} == {"upper": 0.5, "lower": 0.25}


def test_other_dof_is_refused():
  with pytest.raises(ValueError, match="29 or 23"):
    g1(27)


def _match(pattern: str, name: str) -> bool:
  import re

  return re.fullmatch(pattern, name) is not None
