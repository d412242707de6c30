"""Metres done and metres asked, by hand."""

import math

import pytest
import torch

from decap.envs import mdp
from decap.envs.constrained_env import ConstrainedEnv
from decap.envs.following import FollowingCfg, followed
from decap.tasks.velocity import BANDS
from tests.envs.robots import make_env

COMMANDS = [
  (0.3, 0.0, 0.0),
  (1.0, 0.0, 0.0),
  (-0.4, 0.0, 0.0),
  (0.0, -0.3, 0.0),
  (0.0, 0.0, 0.5),
  (0.4, 0.2, -0.2),
]
VELOCITIES = [
  (0.15, 0.7, 0.0),
  (1.2, 0.0, 0.0),
  (0.1, 0.0, 0.0),
  (0.0, -0.1, 0.0),
  (0.0, 0.0, 0.25),
  (0.2, 0.2, 0.1),
]
EXPECTED = {
  # Done: 0.15 + 0.2 of 0.3 + 0.4, and so on; what goes the wrong way counts against.
  "slow": (0.35, 0.7),
  "fast": (1.2, 1.0),
  "backward": (-0.1, 0.4),
  "sideways": (0.1 + 0.2, 0.3 + 0.2),
  "turning": (0.25 - 0.1, 0.5 + 0.2),
}


@pytest.fixture(scope="module")
def env() -> ConstrainedEnv:
  env = make_env(num_envs=len(COMMANDS))
  env.reset(seed=1)
  return env


def place(env: ConstrainedEnv, yaw: float, time_left: float) -> None:
  """Robots that turned by `yaw`, with the velocities above in their own frame."""
  data = env.sim.data
  data.qpos[:, 3:7] = torch.tensor([math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)])
  velocity = torch.tensor(VELOCITIES)
  data.qvel[:] = 0.0
  data.qvel[:, 0] = velocity[:, 0] * math.cos(yaw) - velocity[:, 1] * math.sin(yaw)
  data.qvel[:, 1] = velocity[:, 0] * math.sin(yaw) + velocity[:, 1] * math.cos(yaw)
  data.qvel[:, 5] = velocity[:, 2]
  env.sim.forward()
  env.step_cache = {}
  term = env.command_manager.get_term("twist")
  term.vel_command_b[:] = torch.tensor(COMMANDS)
  term.time_left[:] = time_left


@pytest.mark.parametrize("yaw", [0.0, 2.0])
def test_what_is_done_and_what_is_asked(env, yaw):
  assert env.progress_names == (*EXPECTED, "stepping")
  assert tuple(EXPECTED) == tuple(BANDS)
  place(env, yaw, time_left=5.0)
  found = followed(env, env.cfg.following)[:-1]
  expected = torch.tensor(list(EXPECTED.values()))
  torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_the_first_second_of_a_command_does_not_count(env):
  place(env, 0.0, time_left=9.5)  # Commands last 10 s.
  assert not followed(env, env.cfg.following)[:-1].any()
  place(env, 0.0, time_left=8.9)
  assert followed(env, env.cfg.following)[:-1].any()


@pytest.mark.parametrize("step", [0, 8, 24])
def test_stepping_is_what_a_robot_that_stands_does_not_earn(env, step):
  place(env, 0.0, time_left=5.0)
  env.command_manager.get_term("twist").vel_command_b[2:4] = 0.0
  env.episode_length_buf[:] = step
  agreeing = mdp.gait(env, **env.cfg.following.gait)
  assert agreeing[2:4].tolist() == [0.0, 0.0]
  done, asked = followed(env, env.cfg.following)[-1].tolist()
  # Four of six robots are told to move; standing on both feet is right for 55 % of
  # the time, which counts as nothing.
  assert asked == pytest.approx(4 * 2 * 0.45)
  assert done == pytest.approx(float(agreeing.sum()) - 4 * 2 * 0.55, abs=1e-5)


def test_every_step_reports_it(env):
  action = torch.zeros(env.num_envs, env.action_manager.total_action_dim)
  *_, extras = env.step(action)
  assert extras["progress"].shape == (len(BANDS) + 1, 2)
  assert FollowingCfg().names == ()
