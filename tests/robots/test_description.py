"""What every described robot must hold, registered ones found by themselves."""

import re

import mujoco
import numpy as np
import pytest
from mjlab.entity import Entity

from decap.constraints.groups import per_joint, resolve_groups
from decap.tasks import TASKS

ROBOTS = {task.robot: task for task in TASKS.values()}


@pytest.fixture(scope="module", params=ROBOTS)
def described(request):
  robot = ROBOTS[request.param].describe()
  entity = Entity(robot.entity)
  model = entity.spec.compile()
  data = mujoco.MjData(model)
  mujoco.mj_resetDataKeyframe(model, data, 0)
  mujoco.mj_kinematics(model, data)
  return robot, entity, model, data


def names_of(model, kind):
  count = {"body": model.nbody, "geom": model.ngeom}[kind]
  return [getattr(model, kind)(i).name for i in range(count)]


def matches(pattern, names):
  return [name for name in names if re.fullmatch(pattern, name)]


def test_joints_are_the_model_s(described):
  robot, entity, *_ = described
  assert tuple(entity.joint_names) == robot.joint_names


@pytest.mark.parametrize("field", ["action_scale", "exploration"])
def test_every_joint_has_one_scale_and_one_noise(described, field):
  robot, *_ = described
  values = getattr(robot, field)
  for joint in robot.joint_names:
    assert len([p for p in values if re.fullmatch(p, joint)]) == 1, joint
  for pattern, value in values.items():
    assert matches(pattern, robot.joint_names) and value > 0.0, pattern


def test_every_joint_has_limits(described):
  robot, *_ = described
  groups = resolve_groups(robot.groups, robot.joint_names)
  for limits in robot.limits.values():
    if isinstance(limits, dict):
      assert per_joint(limits, groups, len(robot.joint_names)).isfinite().all()
  assert set(robot.profile_quantiles) <= set(robot.groups)


def test_bodies_and_geoms_exist(described):
  robot, _, model, _ = described
  bodies, geoms = names_of(model, "body"), names_of(model, "geom")
  points = [robot.head, *robot.extremities.values()]
  named = {robot.torso, *robot.feet, *robot.segments.values(), *(b for b, _ in points)}
  assert named <= set(bodies)
  for pattern in robot.contact_bodies:
    assert matches(pattern, bodies), pattern
  for pattern in robot.foot_geoms:
    assert matches(pattern, geoms), pattern
  for joints, weight in robot.deviations.values():
    assert all(matches(p, robot.joint_names) for p in joints) and weight < 0.0


def test_whatever_can_touch_is_a_foot_or_should_not_touch(described):
  robot, _, model, _ = described
  for i in range(model.ngeom):
    geom = model.geom(i)
    if geom.contype or geom.conaffinity:
      body = model.body(geom.bodyid[0]).name
      foot = body in robot.feet
      assert foot != any(re.fullmatch(p, body) for p in robot.contact_bodies), body
      assert foot == any(re.fullmatch(p, geom.name) for p in robot.foot_geoms)


def test_it_starts_on_its_feet_at_the_height_that_it_keeps(described):
  robot, _, model, data = described
  lowest = min(
    data.geom_xpos[i, 2] - model.geom_size[i, 0]
    for i in range(model.ngeom)
    if any(re.fullmatch(p, model.geom(i).name) for p in robot.foot_geoms)
  )
  assert -0.005 < lowest < 0.02
  assert data.qpos[2] == pytest.approx(robot.base_height_m, rel=0.06)
  assert robot.fallen_height_m < 0.6 * robot.base_height_m
  feet = np.array([data.body(foot).xpos for foot in robot.feet])
  assert (feet[:, 2] < robot.foot_clearance_m).all()


def test_the_first_two_feet_are_left_and_right(described):
  robot, _, _, data = described
  one, other = (data.body(foot).xpos for foot in robot.feet[:2])
  np.testing.assert_allclose(one * (1, -1, 1), other, atol=1e-3)
  assert len(robot.gait.offsets) == len(robot.feet)
  # They take turns.
  assert (robot.gait.offsets[0] - robot.gait.offsets[1]) % 1.0 == 0.5


def test_there_is_one_gyro_and_nothing_that_costs_forces(described):
  _, _, model, _ = described
  assert [model.sensor(i).name for i in range(model.nsensor)] == ["imu_ang_vel"]


def test_descriptions_are_independent(described):
  robot, *_ = described
  task = next(t for t in ROBOTS.values() if t.describe() == robot)
  other = task.describe()
  other.limits["joint_vel"].clear()
  next(iter(other.groups.values())).p_max = 0.9
  assert task.describe() == robot
