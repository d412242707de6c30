"""What terms share: the same as mjlab's own quantities, and never of another state."""

import pytest
import torch
from mjlab.envs import mdp as mjlab_mdp
from mjlab.managers import EventTermCfg, RewardTermCfg
from mjlab.utils.lab_api.math import quat_apply_inverse, yaw_quat

from decap.envs import mdp
from decap.envs.constrained_env import ConstrainedEnv
from decap.envs.masked import masked
from decap.envs.mdp import kinematics
from decap.tasks import env_cfg
from tests.envs.robots import make_env

NUM_ENVS = 16
FEET = ["left_ankle_roll_link", "right_ankle_roll_link"]


@pytest.fixture(scope="module")
def env() -> ConstrainedEnv:
  """Tumbling robots with bent joints."""
  env = make_env(num_envs=NUM_ENVS)
  tumble(env)
  return env


def tumble(env: ConstrainedEnv) -> None:
  data = env.sim.data
  data.qpos[:, 3:7] = torch.nn.functional.normalize(torch.randn(NUM_ENVS, 4), dim=-1)
  data.qpos[:, 7:] += 0.5 * torch.randn(NUM_ENVS, 29)
  data.qvel[:] = torch.randn(NUM_ENVS, 35)
  env.sim.forward()


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
  torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=1e-5)


def test_root(env):
  robot = env.scene["robot"]
  close(kinematics.root_position_w(robot), robot.data.root_link_pos_w)
  close(kinematics.up_b(robot), -robot.data.projected_gravity_b)
  close(kinematics.root_velocity_w(env, robot).flatten(1), robot.data.root_link_vel_w)
  velocity = kinematics.root_velocity_b(env, robot)
  close(velocity[:, :3], robot.data.root_link_lin_vel_b)
  close(velocity[:, 3:], robot.data.root_link_ang_vel_b)
  turn = yaw_quat(robot.data.root_link_quat_w)
  planar = quat_apply_inverse(turn, robot.data.root_link_lin_vel_w)[:, :2]
  close(kinematics.root_velocity_yaw(env, robot), planar)


def test_rotation_to_the_body():
  quat = torch.nn.functional.normalize(torch.randn(64, 4), dim=-1)
  vector = torch.randn(64, 3)
  close(kinematics.rotate_to_body(quat, vector), quat_apply_inverse(quat, vector))


def test_joints_and_bodies(env):
  robot = env.scene["robot"]
  close(kinematics.joint_pos(env, robot), robot.data.joint_pos)
  close(kinematics.joint_dofs(env, robot, env.sim.data.qvel), robot.data.joint_vel)
  ids = [robot.body_names.index(name) for name in FEET]
  speed = robot.data.body_link_lin_vel_w[:, ids, :2].norm(dim=-1)
  close(kinematics.body_planar_speed(env, robot, ids), speed)
  close(kinematics.body_position_w(env, robot, ids), robot.data.body_link_pos_w[:, ids])


def test_evenly_spaced_columns_are_views(env):
  x = torch.arange(10.0).expand(2, -1)
  for ids, is_view in (
    ([3], True),
    ([2, 3, 4], True),
    ([1, 4, 7], True),
    ([1, 2, 4], False),
    ([4, 3, 2], False),
    ([5, 5], False),
  ):
    chosen = kinematics.on_device(env, ids)
    assert isinstance(chosen, slice) is is_view, ids
    assert x[:, chosen].tolist() == [[float(i) for i in ids]] * 2
  assert kinematics.on_device(env, slice(2, 5)) == slice(2, 5)


@pytest.mark.parametrize(
  ("ours", "theirs"),
  [
    (mdp.base_lin_vel, mjlab_mdp.base_lin_vel),
    (mdp.projected_gravity, mjlab_mdp.projected_gravity),
    (mdp.joint_pos_rel, mjlab_mdp.joint_pos_rel),
    (mdp.joint_vel_rel, mjlab_mdp.joint_vel_rel),
    (mdp.flat_orientation, mjlab_mdp.flat_orientation_l2),
    (mdp.joint_pos_limits, mjlab_mdp.joint_pos_limits),
  ],
)
def test_terms_are_mjlabs(env, ours, theirs):
  expected = theirs(env)
  assert expected.abs().max() > 0.1
  close(ours(env), expected)


def test_bad_orientation_is_mjlabs(env):
  for angle in (0.4, 0.8, 2.5):
    expected = mjlab_mdp.bad_orientation(env, angle)
    assert expected.any()
    assert torch.equal(mdp.bad_orientation(env, angle), expected)


##
# What is shared is of the present state.
##


def test_nothing_is_remembered_outside_a_step(env):
  robot = env.scene["robot"]
  for _ in range(2):
    before = mdp.projected_gravity(env)
    tumble(env)
    assert not torch.equal(mdp.projected_gravity(env), before)
    close(mdp.projected_gravity(env), robot.data.projected_gravity_b)
    close(mdp.joint_pos_rel(env), mjlab_mdp.joint_pos_rel(env))
  env.step(torch.randn(NUM_ENVS, 29))
  tumble(env)
  close(mdp.base_lin_vel(env), mjlab_mdp.base_lin_vel(env))


def test_terms_of_a_step_share(env, monkeypatch):
  made = []
  monkeypatch.setattr(env, "step_cache", {})
  for _ in range(2):
    kinematics.shared(env, "key", lambda: made.append(1) or torch.zeros(()))
  assert len(made) == 1


def test_rewards_events_and_observations_see_the_state_of_their_time():
  """In steps with pushes and resets, every value is that of mjlab's term."""
  differences, during_events = [], []

  def note(ours, theirs):
    differences.append((ours - theirs).abs().max().item())

  def probe(env):
    note(mdp.projected_gravity(env), mjlab_mdp.projected_gravity(env))
    note(mdp.base_lin_vel(env), mjlab_mdp.base_lin_vel(env))
    note(mdp.joint_pos_rel(env), mjlab_mdp.joint_pos_rel(env))
    return torch.zeros(env.num_envs)

  @masked
  def event(env, mask):
    env.sim.data.qpos[:, 7:] += 0.1
    note(mdp.joint_pos_rel(env), mjlab_mdp.joint_pos_rel(env))
    during_events.append(env.step_cache)

  cfg = env_cfg("g1-flat")
  cfg.scene.num_envs = NUM_ENVS
  cfg.rewards["probe"] = RewardTermCfg(func=probe, weight=1.0)
  cfg.events["push"].interval_range_s = (0.06, 0.06)
  for mode in ("reset", "interval"):
    cfg.events[mode] = EventTermCfg(func=event, mode=mode)
  cfg.events["interval"].interval_range_s = (0.04, 0.04)
  env = ConstrainedEnv(cfg, "cpu")
  env.reset(seed=1)
  for i in range(6):
    env.episode_length_buf[i] = int(env.max_episode_length)
    obs = env.step(torch.randn(NUM_ENVS, 29))[0]["critic"]
    note(obs[:, :3], mjlab_mdp.base_lin_vel(env))
    note(obs[:, 6:9], mjlab_mdp.projected_gravity(env))
    note(obs[:, 12:41], mjlab_mdp.joint_pos_rel(env))
    note(obs[:, 41:70], mjlab_mdp.joint_vel_rel(env))
  assert max(differences) < 1e-5
  assert during_events and not any(during_events)
