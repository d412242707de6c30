"""Masked events: they touch what the mask says, and draw what mjlab's draw."""

import math

import pytest
import torch
from mjlab.envs.mdp import events as stock
from mjlab.managers.scene_entity_config import SceneEntityCfg

from decap.envs import mdp
from decap.envs.constrained_env import ConstrainedEnv
from tests.envs.robots import make_env

NUM_ENVS = 512
POSE = {"x": (-0.5, 0.5), "z": (0.1, 0.3), "pitch": (-0.2, 0.2), "yaw": (-3.0, 1.0)}
VELOCITY = {"y": (0.2, 0.4), "roll": (-1.0, 1.0)}


@pytest.fixture(scope="module")
def env() -> ConstrainedEnv:
  return make_env(num_envs=NUM_ENVS)


def state(env) -> torch.Tensor:
  env.sim.forward()
  qpos = env.sim.data.qpos[:].clone()
  qpos[:, :3] -= env.scene.env_origins
  return torch.cat((qpos, env.sim.data.qvel[:]), 1)


def knee(env) -> SceneEntityCfg:
  cfg = SceneEntityCfg("robot", joint_names=(".*_knee_joint", "waist_yaw_joint"))
  cfg.resolve(env.scene)
  return cfg


EVENTS = {
  "reset_root_state_uniform": lambda env: {
    "pose_range": POSE,
    "velocity_range": VELOCITY,
  },
  "reset_joints_by_offset": lambda env: {
    "position_range": (-0.3, 0.1),
    "velocity_range": (-1.0, 1.0),
    "asset_cfg": knee(env),
  },
  "push_by_setting_velocity": lambda env: {"velocity_range": VELOCITY},
  "reset_scene_to_default": lambda env: {},
}


@pytest.mark.parametrize("name", EVENTS)
def test_same_distribution_as_mjlab(env, name):
  """Means and spreads of every coordinate, over 512 environments each."""
  params = EVENTS[name](env)
  samples = []
  for event, everyone in (
    (getattr(stock, name), torch.arange(NUM_ENVS)),
    (getattr(mdp, name), torch.ones(NUM_ENVS, dtype=torch.bool)),
  ):
    env.reset(seed=4)
    event(env, everyone, **params)
    samples.append(state(env))
  theirs, ours = samples
  spread = theirs.std(0)
  # The mean of 512 draws has a standard error of spread / 22.6; two are compared.
  error = (theirs.mean(0) - ours.mean(0)).abs()
  assert (error <= 4 * math.sqrt(2 / NUM_ENVS) * spread + 1e-5).all()
  torch.testing.assert_close(ours.std(0), spread, rtol=0.2, atol=1e-5)
  assert mdp.MASKED_EVENTS[getattr(stock, name)] is getattr(mdp, name)


@pytest.mark.parametrize("name", EVENTS)
def test_only_the_masked_environments_change(env, name):
  mask = torch.arange(NUM_ENVS) % 3 == 0
  changed = []
  for selection in (mask, mask.nonzero().flatten()):
    env.reset(seed=4)
    env.step(torch.randn(NUM_ENVS, 29))
    before = state(env)
    getattr(mdp, name)(env, selection, **EVENTS[name](env))
    changed.append((state(env) != before).any(1))
  assert torch.equal(changed[0], mask)
  assert torch.equal(changed[1], mask)


def test_none_means_all(env):
  env.reset(seed=1)
  before = state(env)
  mdp.push_by_setting_velocity(env, None, {"x": (0.5, 0.5)})
  difference = state(env) - before
  assert torch.allclose(difference[:, 36], torch.tensor(0.5), atol=1e-5)


def test_push_adds_to_a_turned_robot(env):
  """World-frame velocity: linear adds up, the angular part is kept in the body."""
  env.reset(seed=2)
  env.step(torch.zeros(NUM_ENVS, 29))
  robot = env.scene["robot"]
  before = robot.data.root_link_vel_w.clone()
  mdp.push_by_setting_velocity(env, None, {"x": (0.3, 0.3), "yaw": (0.2, 0.2)})
  env.sim.forward()
  expected = before + torch.tensor([0.3, 0.0, 0.0, 0.0, 0.0, 0.2])
  torch.testing.assert_close(robot.data.root_link_vel_w, expected, atol=2e-4, rtol=1e-4)


def test_a_push_keeps_what_the_last_substep_did(env):
  """Physics may be ahead of the kinematics that mjlab's link velocity comes from."""
  env.reset(seed=2)
  env.sim.step_many(1)
  velocity = env.sim.data.qvel[:].clone()
  link = env.scene["robot"].data.root_link_vel_w[:, :3]
  assert (velocity[:, :3] - link).abs().max() > 0.01  # Gravity of 5 ms is 0.05 m/s.
  mdp.push_by_setting_velocity(env, None, {"x": (0.3, 0.3)})
  expected = velocity.clone()
  expected[:, 0] += 0.3
  torch.testing.assert_close(env.sim.data.qvel[:], expected)


def test_start_states_of_the_task(env):
  env.reset(seed=3)
  start = state(env)
  joint_vel = start[:, 36 + 6 :]
  assert start[:, :2].abs().max() <= 0.5
  assert start[:, 0].std().item() == pytest.approx(1 / math.sqrt(12), rel=0.1)
  assert joint_vel.abs().max() <= 1.0
  assert joint_vel.std().item() == pytest.approx(2 / math.sqrt(12), rel=0.02)
  default = env.scene["robot"].data.default_joint_pos
  torch.testing.assert_close(start[:, 7:36], default)


def test_torso_mass(env):
  """-1 to +3 kg on 7.818 kg; inertia in proportion; nothing else is touched."""
  body = env.sim.mj_model.body("robot/torso_link").id
  mass = env.sim.model.body_mass[:, body]
  added = mass - 7.818
  assert added.min() >= -1.0 - 1e-4
  assert added.max() <= 3.0 + 1e-4
  assert added.mean().item() == pytest.approx(1.0, abs=0.2)
  inertia = env.sim.model.body_inertia[:, body]
  default = torch.tensor(env.sim.mj_model.body_inertia[body], dtype=torch.float32)
  torch.testing.assert_close(inertia, default * (mass / 7.818).unsqueeze(1))
  others = [b for b in range(env.sim.mj_model.nbody) if b != body]
  expected = torch.tensor(env.sim.mj_model.body_mass[others], dtype=torch.float32)
  torch.testing.assert_close(
    env.sim.model.body_mass[:, others], expected.expand(NUM_ENVS, -1)
  )


def test_a_body_keeps_some_of_its_mass(env):
  """A negative mass would be simulated all the same."""
  torso = SceneEntityCfg("robot", body_names=("torso_link",))
  torso.resolve(env.scene)
  before = env.sim.model.body_mass[:].clone()
  with pytest.raises(ValueError, match="starts at -8 kg.* of a body of 7.82 kg"):
    mdp.add_body_mass(env, None, (-8.0, 3.0), torso)
  torch.testing.assert_close(env.sim.model.body_mass[:], before)


def test_friction_is_shared_by_both_feet(env):
  model = env.sim.mj_model
  feet = [g for g in range(model.ngeom) if "_foot" in model.geom(g).name]
  assert len(feet) == 14
  friction = env.sim.model.geom_friction[:, feet, 0]
  assert 0.3 <= friction.min() < 0.32
  assert 0.98 < friction.max() <= 1.0
  assert torch.equal(friction, friction[:, :1].expand(-1, 14))
