"""Velocity commands by mask: options and shares as in mjlab's term."""

import math

import pytest
import torch
from mjlab.tasks.velocity.mdp import UniformVelocityCommandCfg

from decap.envs.constrained_env import ConstrainedEnv
from decap.envs.mdp import VelocityCommand, command_ranges
from tests.envs.robots import make_env

NUM_ENVS = 512
EVERYONE = torch.ones(NUM_ENVS, dtype=torch.bool)


@pytest.fixture(scope="module")
def env() -> ConstrainedEnv:
  env = make_env(num_envs=NUM_ENVS)
  env.reset()
  return env


def make(env, **options) -> VelocityCommand:
  cfg = UniformVelocityCommandCfg(
    entity_name="robot",
    resampling_time_range=(4.0, 6.0),
    ranges=UniformVelocityCommandCfg.Ranges(
      lin_vel_x=(-0.5, 1.0),
      lin_vel_y=(0.1, 0.3),
      ang_vel_z=(-0.2, 0.2),
      heading=(-math.pi, math.pi) if options.get("heading_command") else None,
    ),
    **options,
  )
  return VelocityCommand(cfg, env)


def test_the_task_uses_the_masked_term(env):
  term = env.command_manager.get_term("twist")
  assert type(term) is VelocityCommand
  low, high = term.ranges
  assert low.tolist() == pytest.approx([-0.5, -0.5, -0.5, 0.0])
  assert high.tolist() == pytest.approx([1.0, 0.5, 0.5, 0.0])


def test_resampling_stays_within_ranges_and_mask(env):
  term = make(env)
  mask = torch.arange(NUM_ENVS) % 2 == 0
  term.resample(mask)
  command = term.command
  assert (command[~mask] == 0).all()
  assert (term.time_left[~mask] == 0).all()
  assert ((term.time_left[mask] >= 4.0) & (term.time_left[mask] <= 6.0)).all()
  for column, (low, high) in enumerate(((-0.5, 1.0), (0.1, 0.3), (-0.2, 0.2))):
    drawn = command[mask, column]
    assert drawn.min() >= low
    assert drawn.max() <= high
    assert drawn.mean().item() == pytest.approx((low + high) / 2, abs=(high - low) / 8)
  assert term.command_counter.tolist() == mask.long().tolist()


def test_resampled_when_the_time_is_over(env):
  term = make(env)
  term.resample(EVERYONE)
  before = term.command.clone()
  term.time_left[:] = torch.where(torch.arange(NUM_ENVS) < 5, 0.01, 1.0)
  term.compute(dt=torch.full((NUM_ENVS,), 0.02))
  changed = (term.command != before).any(1)
  assert changed.nonzero().flatten().tolist() == [0, 1, 2, 3, 4]
  assert term.time_left[5].item() == pytest.approx(0.98)


def test_standing_share(env):
  term = make(env, rel_standing_envs=0.25)
  term.resample(EVERYONE)
  term.compute(dt=0.0)
  standing = (term.command == 0).all(1)
  assert torch.equal(standing, term.is_standing_env)
  assert standing.float().mean().item() == pytest.approx(0.25, abs=0.08)


def test_forward(env):
  term = make(env, rel_forward_envs=0.5)
  term.resample(EVERYONE)
  forward = term.command[term.is_forward_env]
  assert 0.4 < len(forward) / NUM_ENVS < 0.6
  assert (forward[:, 0] >= 0.3).all()
  assert (forward[:, 1:] == 0).all()
  assert (term.command[~term.is_forward_env, 1] > 0).all()


def test_heading(env):
  term = make(
    env, heading_command=True, rel_heading_envs=0.5, heading_control_stiffness=0.1
  )
  term.resample(EVERYONE)
  drawn = term.command[:, 2].clone()
  term.compute(dt=0.0)
  turn = term.heading_target - env.scene["robot"].data.heading_w
  turn = torch.atan2(turn.sin(), turn.cos())
  expected = (0.1 * turn).clamp(-0.2, 0.2)
  expected = torch.where(term.is_heading_env, expected, drawn)
  torch.testing.assert_close(term.command[:, 2], expected, atol=1e-5, rtol=0)
  assert 0.4 < term.is_heading_env.float().mean() < 0.6


def test_world_frame(env):
  term = make(env, rel_world_envs=1.0)
  term.resample(EVERYONE)
  world = term.vel_command_w.clone()
  term.compute(dt=0.0)
  heading = env.scene["robot"].data.heading_w
  # Rotated by the heading, the body-frame command is the world-frame one again.
  x, y = term.command[:, 0], term.command[:, 1]
  back = torch.stack(
    (heading.cos() * x - heading.sin() * y, heading.sin() * x + heading.cos() * y), 1
  )
  torch.testing.assert_close(back, world[:, :2], atol=1e-5, rtol=0)


def test_start_moving(env):
  env.reset(seed=0)
  term = make(env, init_velocity_prob=0.5)
  mask = torch.arange(NUM_ENVS) < 400
  before = env.sim.data.qvel[:, :6].clone()
  term.reset_masked(mask)
  env.sim.forward()
  moved = (env.sim.data.qvel[:, :6] != before).any(1)
  assert not moved[~mask].any()
  assert moved[mask].float().mean().item() == pytest.approx(0.5, abs=0.1)
  body = env.scene["robot"].data.root_link_lin_vel_b
  torch.testing.assert_close(
    body[moved, :2], term.command[moved, :2], atol=1e-4, rtol=0
  )


def test_metrics_are_episode_means(env):
  """At rest with commands of 0.3 and then 0.5 m/s, the mean error is 0.4 m/s."""
  env.reset(seed=0)
  env.sim.data.qvel[:] = 0.0
  env.sim.forward()
  term = make(env)
  term.time_left[:] = 100.0
  for x in (0.3, 0.5):
    term.vel_command_b[:] = torch.tensor([x, 0.0, 0.1])
    term.compute(dt=0.02)
  xy, yaw = term.metrics["error_vel_xy"], term.metrics["error_vel_yaw"]
  torch.testing.assert_close(xy, torch.full((NUM_ENVS,), 0.4), atol=1e-4, rtol=0)
  torch.testing.assert_close(yaw, torch.full((NUM_ENVS,), 0.1), atol=1e-4, rtol=0)
  term.reset_masked(torch.arange(NUM_ENVS) == 0)
  assert term.metrics["error_vel_xy"][0] == 0
  assert term.metrics["error_vel_xy"][1] > 0


def test_ranges_change_between_replays(env):
  """The tensor that a captured step reads is written in place."""
  term = env.command_manager.get_term("twist")
  address = term.ranges.data_ptr()
  stages = [{"step": 0, "lin_vel_x": (2.0, 2.5), "lin_vel_y": None, "ang_vel_z": None}]
  command_ranges(env, slice(None), "twist", stages)
  assert term.ranges.data_ptr() == address
  term.resample(EVERYONE)
  assert term.command[:, 0].min() >= 2.0
