"""Reward and termination terms against values computed by hand."""

import math
from types import SimpleNamespace

import mujoco
import numpy as np
import pytest
import torch
from mjlab.managers.scene_entity_config import SceneEntityCfg

from decap.envs import mdp
from decap.envs.constrained_env import ConstrainedEnv
from decap.envs.mdp import rewards
from tests.envs.robots import make_env

FEET = ("left_ankle_roll_link", "right_ankle_roll_link")


@pytest.fixture(scope="module")
def shared_env() -> ConstrainedEnv:
  # Contacts of a pose, without a step.
  return make_env(num_envs=2, split_physics=False)


@pytest.fixture
def env(shared_env) -> ConstrainedEnv:
  shared_env.reset(seed=0)
  place(shared_env)
  return shared_env


def place(env, z=0.78, rpy=(0.0, 0.0, 0.0), linear=(0.0, 0.0, 0.0), angular=(0, 0, 0)):
  """Home pose at the world's origin, with a root velocity (angular: body frame)."""
  data, robot = env.sim.data, env.scene["robot"]
  quat = np.zeros(4)
  mujoco.mju_euler2Quat(quat, np.array(rpy[::-1], dtype=float), "zyx")
  data.qpos[:] = 0.0
  data.qpos[:, 2] = z
  data.qpos[:, 3:7] = torch.as_tensor(quat, dtype=torch.float32)
  data.qpos[:, robot.indexing.joint_q_adr] = robot.data.default_joint_pos
  data.qvel[:] = 0.0
  data.qvel[:, :3] = torch.tensor(linear)
  data.qvel[:, 3:6] = torch.tensor(angular, dtype=torch.float32)
  refresh(env)


def refresh(env):
  env.sim.forward()
  for sensor in env.scene.sensors.values():
    sensor._invalidate_cache()


def command(env, x=0.0, y=0.0, yaw=0.0):
  env.command_manager.get_command("twist")[:] = torch.tensor((x, y, yaw))


def feet(env) -> SceneEntityCfg:
  cfg = SceneEntityCfg("robot", body_names=FEET, preserve_order=True)
  cfg.resolve(env.scene)
  return cfg


def joints(env, *patterns) -> SceneEntityCfg:
  cfg = SceneEntityCfg("robot", joint_names=patterns)
  cfg.resolve(env.scene)
  return cfg


def values(result: torch.Tensor) -> float:
  assert result.shape == (2,)
  assert result[0] == result[1]
  return result[0].item()


##
# Tracking and base.
##


def test_track_xy_is_in_the_yaw_frame(env):
  # Facing +y and pitched: 0.5 m/s along world y is 0.5 m/s ahead.
  place(env, rpy=(0.0, 0.3, math.pi / 2), linear=(0.0, 0.5, 0.0))
  command(env, x=1.0)
  # Error 0.5 m/s: exp(-0.25 / 0.25).
  result = mdp.track_velocity_xy(env, "twist", 0.25)
  assert values(result) == pytest.approx(math.exp(-1.0), rel=1e-4)
  command(env, x=0.5, y=0.1)  # Error 0.1 m/s.
  result = mdp.track_velocity_xy(env, "twist", 0.25)
  assert values(result) == pytest.approx(math.exp(-0.04), rel=1e-4)


def test_track_yaw(env):
  place(env, angular=(0.4, 0.0, -0.1))
  command(env, yaw=0.2)
  # Error 0.3 rad/s; the roll rate does not matter.
  result = mdp.track_velocity_yaw(env, "twist", 0.25)
  assert values(result) == pytest.approx(math.exp(-0.09 / 0.25), rel=1e-4)


def test_the_mean_velocity_is_tracked_rather_than_that_of_the_moment(env):
  term, turn = (mdp.TrackMeanVelocity(None, env) for _ in range(2))
  command(env, x=0.5, y=0.1, yaw=0.4)
  mean = np.zeros(3)
  for vx, vy, yaw in ((0.6, 0.5, -0.2), (0.4, -0.3, 0.9)):
    place(env, linear=(vx, vy, 0.0), angular=(0.0, 0.0, yaw))
    mean += 0.05 * (np.array((vx, vy, yaw)) - mean)  # 0.02 s of 0.4 s.
    error = np.array((0.5, 0.1, 0.4)) - mean
    told = ("twist", (0, 2), 0.02, 0.4)
    expected = math.exp(-(error[:2] ** 2).sum() / 0.02)
    assert values(term(env, *told)) == pytest.approx(expected, rel=1e-4)
    expected = math.exp(-(error[2] ** 2) / 0.05)
    assert values(turn(env, "twist", (2, 3), 0.05, 0.4)) == pytest.approx(
      expected, rel=1e-4
    )
  term.reset_masked(torch.tensor([True, False]))
  assert not term.mean[0].any() and term.mean[1].all()
  turn.reset(torch.tensor([1]))
  assert turn.mean[0].all() and not turn.mean[1].any()
  turn.reset(None)
  assert not turn.mean.any()
  # Shorter than a step: the velocity of the moment, not more than that.
  term(env, "twist", (0, 2), 0.02, 0.015)
  assert term.mean[0].tolist() == pytest.approx([0.4, -0.3, 0.9], rel=1e-4)


def test_vertical_velocity_and_rates(env):
  place(env, linear=(1.0, 0.0, 0.3), angular=(0.4, -0.2, 5.0))
  assert values(mdp.vertical_velocity(env)) == pytest.approx(0.09, rel=1e-4)
  assert values(mdp.roll_pitch_rate(env)) == pytest.approx(0.16 + 0.04, rel=1e-4)


def test_base_height_and_fall(env):
  place(env, z=0.68)
  assert values(mdp.base_height(env, 0.78)) == pytest.approx(0.01, rel=1e-4)
  assert not mdp.base_below(env, 0.2).any()
  place(env, z=0.19)
  assert mdp.base_below(env, 0.2).all()


def test_tilt_terminates_beyond_its_angle(env):
  for angle, falls in ((0.79, False), (0.81, True)):
    place(env, rpy=(0.0, angle, 1.0))
    assert env.termination_manager.compute()[0].item() is falls
    assert values(mdp.tilt(env)) == pytest.approx(angle, abs=1e-4)


def test_tilt_costs_the_square_of_its_sine(env):
  place(env, rpy=(0.3, -0.2, 1.0))
  upright = math.cos(0.3) * math.cos(0.2)
  assert values(mdp.flat_orientation(env)) == pytest.approx(1 - upright**2, rel=1e-4)


def test_joints_beyond_their_soft_limits(env):
  robot = env.scene["robot"]
  limits = robot.data.soft_joint_pos_limits[0]
  position = robot.data.default_joint_pos.clone()
  for joint, side, beyond in (
    ("left_elbow_joint", 1, 0.1),
    ("right_elbow_joint", 0, -0.25),
    ("left_knee_joint", 1, 0.5),  # Not chosen.
  ):
    index = robot.joint_names.index(joint)
    position[:, index] = limits[index, side] + beyond
  env.sim.data.qpos[:, robot.indexing.joint_q_adr] = position
  result = mdp.joint_pos_limits(env, joints(env, ".*_elbow_.*"))
  assert values(result) == pytest.approx(0.35, rel=1e-4)


def test_joint_deviation(env):
  robot = env.scene["robot"]
  position = robot.data.default_joint_pos.clone()
  position[:, robot.joint_names.index("waist_yaw_joint")] += 0.1
  position[:, robot.joint_names.index("waist_roll_joint")] -= 0.25
  position[:, robot.joint_names.index("left_knee_joint")] += 1.0  # Not chosen.
  env.sim.data.qpos[:, robot.indexing.joint_q_adr] = position
  result = mdp.joint_deviation(env, joints(env, "waist_.*"))
  assert values(result) == pytest.approx(0.35, rel=1e-5)


##
# Feet.
##


def ankle_height(env) -> float:
  return env.scene["robot"].data.body_link_pos_w[0, feet(env).body_ids[0], 2].item()


def test_foot_clearance(env):
  rise = 0.25 - ankle_height(env)
  place(env, z=0.78 + rise, linear=(0.3, 0.4, 0.0))
  # Both ankles at 0.25 m with 0.5 m/s: 2 · 0.15² · tanh(1) / 0.05.
  expected = math.exp(-2 * 0.0225 * math.tanh(1.0) / 0.05)
  result = mdp.foot_clearance(env, 0.1, 0.05, 2.0, feet(env))
  assert values(result) == pytest.approx(expected, rel=1e-3)
  place(env, z=0.78 + rise)  # At rest the height does not matter.
  result = mdp.foot_clearance(env, 0.1, 0.05, 2.0, feet(env))
  assert values(result) == pytest.approx(1.0)


def test_foot_slide_counts_feet_on_the_ground(env):
  place(env, z=0.78, linear=(0.3, 0.4, 0.0))  # 4 mm into the ground.
  assert env.scene["feet_contact"].data.found.gt(0).all()
  result = mdp.foot_slide(env, "feet_contact", feet(env))
  assert values(result) == pytest.approx(2 * 0.5, rel=1e-3)
  place(env, z=1.0, linear=(0.3, 0.4, 0.0))
  assert values(mdp.foot_slide(env, "feet_contact", feet(env))) == 0.0


def one_foot_on_the_ground(env, lifted: str):
  """The named side's knee is bent, so that only the other foot touches."""
  robot = env.scene["robot"]
  place(env)
  for joint, angle in (
    (f"{lifted}_hip_pitch_joint", -0.8),
    (f"{lifted}_knee_joint", 1.6),
  ):
    env.sim.data.qpos[:, robot.indexing.joint_q_adr[robot.joint_names.index(joint)]] = (
      angle
    )
  refresh(env)
  found = env.scene["feet_contact"].data.found.flatten(1) > 0
  assert found[0].tolist() == [lifted == "right", lifted == "left"]


@pytest.mark.parametrize("lifted", ["left", "right"])
def test_only_the_foot_that_touches_slides(env, lifted):
  one_foot_on_the_ground(env, lifted)
  # Ahead and turning left: 0.3 ∓ 0.12 m/s.
  env.sim.data.qvel[:, 0], env.sim.data.qvel[:, 5] = 0.3, 1.0
  refresh(env)
  velocity = env.scene["robot"].data.body_link_lin_vel_w[0, feet(env).body_ids, :2]
  speed = velocity.norm(dim=-1)
  stands = 1 if lifted == "left" else 0
  assert speed[1] - speed[0] > 0.2
  result = mdp.foot_slide(env, "feet_contact", feet(env))
  assert result.tolist() == pytest.approx([speed[stands].item()] * 2, rel=1e-4)


@pytest.mark.parametrize(
  ("step", "lifted", "agree"),
  [
    (24, "left", 2),  # Phases 0.6 and 0.1: the left foot should swing, and does.
    (24, "right", 0),
    (8, "right", 2),  # Phases 0.2 and 0.7.
    (8, "left", 0),
    (22, "left", 2),  # 22 of 40 steps is 0.55: stance ends before, not at it.
    (21, "left", 1),  # Phases 0.525 and 0.025: both should stand, the right one does.
  ],
)
def test_gait_knows_left_from_right(env, step, lifted, agree):
  one_foot_on_the_ground(env, lifted)
  env.episode_length_buf[:] = step
  command(env, x=0.5)
  params = ("feet_contact", "twist", 0.8, (0.0, 0.5), 0.55, 0.1)
  assert values(mdp.gait(env, *params)) == agree


def test_turning_is_a_command_to_move(env):
  env.episode_length_buf[:] = 0
  params = ("feet_contact", "twist", 0.8, (0.0, 0.5), 0.55, 0.1)
  for told, expected in (
    ({"yaw": 0.2}, 2),
    ({"y": 0.2}, 2),
    ({"x": 0.08, "yaw": 0.08}, 2),  # Norm 0.113.
    ({"yaw": 0.05}, 0),
  ):
    command(env, **told)
    assert values(mdp.gait(env, *params)) == expected, told


def test_every_robot_has_its_own_command(env):
  env.episode_length_buf[:] = 0
  told = env.command_manager.get_command("twist")
  told[:] = torch.tensor(((0.5, 0.0, 0.0), (0.25, 0.0, 0.0)))
  params = ("feet_contact", "twist", 0.8, (0.0, 0.5), 0.55, 0.25)
  # The second is at the threshold, not above it.
  assert mdp.gait(env, *params).tolist() == [2, 0]


def test_a_foot_may_be_a_quarter_ahead(env):
  """At 0.3 of the period it is at 0.55, and should swing; a quarter behind, stand."""
  env.episode_length_buf[:] = 12
  command(env, x=0.5)
  params = ("feet_contact", "twist", 0.8, (0.0, 0.25), 0.55, 0.1)
  assert values(mdp.gait(env, *params)) == 1


def test_what_terms_share_is_made_once_per_step(env, monkeypatch):
  monkeypatch.setattr(env, "step_cache", {})
  params = ("feet_contact", "twist", 0.8, (0.0, 0.5), 0.55, 0.1)
  assert mdp.gait(env, *params) is mdp.gait(env, *params)
  touches = rewards.in_contact(env, "feet_contact")
  assert touches is rewards.in_contact(env, "feet_contact")


@pytest.mark.parametrize(
  ("step", "on_ground", "in_air"),
  [
    (0, 2, 0),  # Phases 0 and 0.5: both in stance.
    (24, 1, 1),  # 0.48 s, phases 0.6 and 0.1: left swings.
    (8, 1, 1),  # 0.16 s, phases 0.2 and 0.7: right swings.
    (40, 2, 0),  # 0.8 s: the period is over.
  ],
)
def test_gait(env, step, on_ground, in_air):
  params = ("feet_contact", "twist", 0.8, (0.0, 0.5), 0.55, 0.1)
  env.episode_length_buf[:] = step
  command(env, x=0.5)
  for z, expected in ((0.78, on_ground), (1.0, in_air)):
    place(env, z=z)
    assert values(mdp.gait(env, *params)) == expected
  command(env, x=0.05, yaw=0.05)  # Norm 0.07: commanded to stand.
  assert values(mdp.gait(env, *params)) == 0


##
# Contacts.
##


def sensing(**fields) -> SimpleNamespace:
  """As much of an environment as terms on a contact sensor read."""
  sensor = SimpleNamespace(data=SimpleNamespace(**fields))
  return SimpleNamespace(scene={"sensor": sensor})


def test_one_contact_is_contact():
  env = sensing(found=torch.tensor([[0, 1], [2, 0]]))
  assert rewards.in_contact(env, "sensor").tolist() == [[False, True], [True, False]]


def test_a_body_counts_beyond_the_threshold():
  none = [0.0, 0.0, 0.0]
  # One of 5 N and two of 0; 5.2 N, 6 N and 0.
  force = [[[3.0, 4.0, 0.0], none, none], [[3.0, 3.0, 3.0], [6.0, 0.0, 0.0], none]]
  env = sensing(force=torch.tensor(force))
  assert mdp.undesired_contacts(env, "sensor", 5.0).tolist() == [0, 2]


def touched_bodies(env) -> int:
  """C MuJoCo's contacts: bodies other than feet with more than 1 N."""
  model = env.sim.mj_model
  data = mujoco.MjData(model)
  data.qpos[:] = env.sim.data.qpos[0].numpy()
  mujoco.mj_forward(model, data)
  net = np.zeros((model.nbody, 3))
  for i, contact in enumerate(data.contact):
    wrench = np.zeros(6)
    mujoco.mj_contactForce(model, data, i, wrench)
    force = contact.frame.reshape(3, 3).T @ wrench[:3]
    for geom, sign in ((contact.geom[0], -1), (contact.geom[1], 1)):
      net[model.geom_bodyid[geom]] += sign * force
  robot = [b for b in range(model.nbody) if model.body(b).name.startswith("robot/")]
  others = [b for b in robot if "ankle" not in model.body(b).name]
  return int((np.linalg.norm(net[others], axis=1) > 1.0).sum())


def test_undesired_contacts(env):
  assert values(mdp.undesired_contacts(env, "body_contact", 1.0)) == 0
  place(env, z=0.06, rpy=(0.0, math.pi / 2, 0.0))  # Lying face down.
  expected = touched_bodies(env)
  assert expected >= 3
  assert values(mdp.undesired_contacts(env, "body_contact", 1.0)) == expected
