"""The gait's clock, and the angular speed of bodies, by hand."""

import math

import pytest
import torch
from mjlab.managers import SceneEntityCfg

from decap.deploy.observation import clock
from decap.envs import mdp
from decap.envs.constrained_env import ConstrainedEnv
from tests.envs.robots import make_env

PARAMS = {"command_name": "twist", "period_s": 0.8, "command_threshold": 0.1}


@pytest.fixture(scope="module")
def env() -> ConstrainedEnv:
  env = make_env(num_envs=4)
  env.reset(seed=1)
  return env


def tell(env: ConstrainedEnv, *command: float) -> None:
  env.command_manager.get_term("twist").vel_command_b[:] = torch.tensor(command)


def test_the_clock_turns_once_in_a_period(env):
  tell(env, 0.5, 0.0, 0.0)
  # 0.8 s are 40 steps of 0.02 s: a quarter is 10.
  env.episode_length_buf[:] = torch.tensor([0, 10, 20, 45])
  eighth = math.sqrt(0.5)
  expected = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, -1.0], [eighth, eighth]])
  torch.testing.assert_close(
    mdp.gait_clock(env, **PARAMS), expected, atol=1e-6, rtol=0.0
  )


def test_half_a_period_later_it_is_the_mirror_image(env):
  tell(env, 0.5, 0.0, 0.0)
  env.episode_length_buf[:] = torch.tensor([3, 23, 17, 37])
  now = mdp.gait_clock(env, **PARAMS)
  torch.testing.assert_close(now[[0, 2]], -now[[1, 3]], atol=1e-6, rtol=0.0)


@pytest.mark.parametrize(
  ("command", "moves"),
  [
    ((0.0, 0.0, 0.0), False),
    ((0.06, 0.06, 0.0), False),  # A norm of 0.085.
    ((0.08, 0.08, 0.0), True),  # 0.113.
    ((0.0, 0.0, -0.2), True),
  ],
)
def test_the_clock_is_zero_when_told_to_stand(env, command, moves):
  tell(env, *command)
  env.episode_length_buf[:] = 5
  assert bool(mdp.gait_clock(env, **PARAMS).any()) is moves


def test_observation_reward_and_robot_have_one_phase(env):
  """A foot is due while the sine of its clock says so, as the gait reward pays."""
  tell(env, 0.5, 0.0, 0.0)
  terms = env.observation_manager.get_term_cfg("actor", "clock").params
  paid = env.reward_manager.get_term_cfg("gait").params
  for name in ("period_s", "command_threshold", "command_name"):
    assert terms[name] == paid[name]
  for steps in (0, 1, 13, 39, 40, 333):
    env.episode_length_buf[:] = steps
    seen = mdp.gait_clock(env, **terms)
    expected = torch.tensor(clock(steps, env.step_dt, terms["period_s"]))
    torch.testing.assert_close(seen[0], expected.float(), atol=1e-4, rtol=0.0)
    # Both feet on the ground: paid where the phase is in stance, the first 55 %.
    env.step_cache = None
    phase = math.atan2(*seen[0].tolist()) / (2 * math.pi) % 1.0
    stance = [(phase + offset + 1e-6) % 1.0 < 0.55 for offset in paid["offsets"]]
    touching = mdp.rewards.in_contact(env, paid["sensor_name"])
    agrees = (touching == torch.tensor(stance)).sum(1).float()
    assert torch.equal(mdp.gait(env, **paid), agrees), steps


def test_the_angular_speed_of_bodies_is_that_of_the_fastest(env):
  env.sim.data.qpos[:, 7:] = 0.0
  env.sim.data.qvel[:] = 0.0
  env.sim.data.qvel[0, 3:6] = torch.tensor([0.3, 0.0, 0.4])
  waist = env.scene["robot"].joint_names.index("waist_yaw_joint")
  env.sim.data.qvel[1, 6 + waist] = 2.0
  env.sim.forward()
  bodies = SceneEntityCfg("robot", body_names=("pelvis", "torso_link"))
  bodies.resolve(env.scene)
  speed = mdp.body_angular_speed(env, bodies)
  # √(0.3² + 0.4²) for all of the first robot, and only the second's torso turns.
  torch.testing.assert_close(
    speed, torch.tensor([0.5, 2.0, 0.0, 0.0]), atol=1e-4, rtol=1e-4
  )
