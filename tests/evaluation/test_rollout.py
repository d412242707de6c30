"""Rollouts in the real environment, small."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from decap.envs.build import make_env
from decap.errors import UserError
from decap.evaluation.environment import (
  command_term,
  evaluation_cfg,
  hold_commands,
  last_sample,
  missing,
  tell_commands,
)
from decap.evaluation.metrics import measure
from decap.evaluation.policies import Policy, load_policy
from decap.evaluation.protocol import COMMANDS, SWITCHING_SCHEDULE, Protocol
from decap.evaluation.rollout import Rollout, describe_env, evaluate
from decap.tasks import env_cfg
from decap.testing import waits
from tests.evaluation import reference
from tests.evaluation.test_metrics import flatten

SMALL = Protocol(rollouts=2, envs=4, steps=70, warmup=5, per_command=0)


def noisy(protocol, size=1.0):
  """A policy of random actions: it falls within a second."""
  generator = torch.Generator().manual_seed(0)

  def act(obs):
    return size * torch.randn(protocol.num_envs, 29, generator=generator)

  return Policy(act, load_policy("stand").info)


@pytest.fixture(scope="module")
def evaluation():
  return evaluate(noisy(SMALL), SMALL, trajectory=100)  # As many as there are.


@pytest.fixture(scope="module")
def rollout():
  env = make_env(evaluation_cfg(SMALL), "cpu")
  yield Rollout(env, noisy(SMALL), SMALL)
  env.close()


def test_identical_seeds_give_identical_json(evaluation):
  again = evaluate(noisy(SMALL), SMALL)
  assert json.dumps(again.result.to_dict()) == json.dumps(evaluation.result.to_dict())


def test_an_independent_implementation_gets_the_same_figures(evaluation):
  trajectory = evaluation.trajectory
  assert trajectory.fell.any(), "the test needs a fall"
  ours = flatten(evaluation.result.metrics, segment="pelvis")
  theirs = reference.metrics(trajectory)
  assert theirs.keys() <= ours.keys()
  for name, value in theirs.items():
    assert ours[name] == pytest.approx(value, rel=1e-4, abs=1e-7), name


def test_a_trajectory_tells_steps_that_count(evaluation):
  trajectory = evaluation.trajectory
  age = reference.episode_steps(trajectory.fell, trajectory.timed_out)
  np.testing.assert_array_equal(trajectory.age, age)
  np.testing.assert_array_equal(trajectory.valid, age >= 5)
  assert trajectory.rollout == (0, 0, 0, 0, 1, 1, 1, 1)
  # Default pose: feet on the ground, head between 1.1 and 1.4 m.
  head = trajectory.skeleton["names"].index("torso_link/head")
  assert 1.1 < trajectory.points[0, :, head, 2].mean() < 1.4


def test_samples_are_what_the_constraints_of_training_see(rollout):
  """Also in the step that ends an episode: it is read before the reset."""
  env = rollout.env
  obs, _ = env.reset(seed=1)
  layout, scale = rollout.layout, torch.tensor(rollout.layout.action_scale)
  done = torch.ones(SMALL.num_envs, dtype=torch.bool)
  before, ends = None, 0
  for _ in range(40):
    obs, _, fell, late, extras = env.step(rollout.policy.act(obs))
    sample = last_sample(env, fell, late)
    seen = sample.quantities
    assert seen is extras["constraints"]["quantities"]
    # What a robot's log could tell.
    sample.quantities = {n: q for n, q in seen.items() if n not in reference.NAMES}
    first = done.unsqueeze(1)
    prev_action = (
      torch.where(first, sample.action, before.action) if before else sample.action
    )
    prev_vel = (
      torch.where(first, sample.joint_vel, before.joint_vel)
      if before
      else sample.joint_vel
    )
    values = measure(sample, prev_action, prev_vel, scale, layout)
    for name in reference.NAMES:
      torch.testing.assert_close(values[name], seen[name], rtol=1e-5, atol=1e-4)
    before, done = dataclasses.replace(sample), fell | late
    ends += int(done.sum())
  assert ends > 0


@pytest.mark.parametrize("task", ["g1-flat", "g1-rough"])
def test_a_step_never_waits_for_the_device(task, rollout):
  if task != SMALL.task:
    protocol = dataclasses.replace(SMALL, task=task)
    env = make_env(evaluation_cfg(protocol), "cpu")
    rollout = Rollout(env, noisy(protocol), protocol)
  env = rollout.env
  obs, _ = env.reset(seed=3)

  def step():
    _, _, fell, late, _ = env.step(rollout.policy.act(obs))
    rollout.metrics.accumulate(last_sample(env, fell, late))

  step()  # The first one makes constants.
  assert waits(step) == []
  assert env.waiting_terms == []


def test_base_velocity_is_in_the_yaw_frame(rollout):
  """A robot that faces +y and moves along +y moves forward."""
  env = rollout.env
  env.reset(seed=2)
  robot = env.scene["robot"]
  data, indexing = robot.data.data, robot.indexing
  quarter = torch.tensor([np.cos(np.pi / 4), 0.0, 0.0, np.sin(np.pi / 4)])
  data.qpos[:, indexing.free_joint_q_adr[3:7]] = quarter.float().expand(8, 4)
  velocity = torch.tensor([0.0, 0.7, 0.0, 0.0, 0.0, 0.3])
  data.qvel[:, indexing.free_joint_v_adr] = velocity.expand(8, 6)
  from decap.evaluation.environment import _base_velocity

  expected = torch.tensor([0.7, 0.0, 0.3]).expand(8, 3)
  torch.testing.assert_close(
    _base_velocity(data, indexing), expected, atol=1e-6, rtol=0
  )


def test_switching_follows_the_schedule(rollout):
  tell = tell_commands(rollout.env, dataclasses.replace(SMALL, commands="switching"))
  for step, row in ((0, 0), (249, 0), (250, 1), (999, 3), (1000, 0)):
    tell(step)
    command = command_term(rollout.env).command
    assert command.tolist() == torch.tensor([SWITCHING_SCHEDULE[row]] * 8).tolist()


def test_policies_of_other_robots_and_observations_are_refused(rollout):
  expected = describe_env(rollout.env, "g1-flat")
  policy = Policy(None, {"source": "runs/x"}, expected)
  policy.check(expected)
  joints = expected["joint_names"][:-1]
  policy.description = {**expected, "joint_names": joints}
  with pytest.raises(
    UserError, match="runs/x was not made for this task: its robot has"
  ):
    policy.check(expected)
  policy.description = {**expected, "observations": expected["observations"][1:]}
  with pytest.raises(UserError, match=r"it observes \[projected_gravity 3, command 3"):
    policy.check(expected)


def test_clean_protocols_have_neither_noise_nor_pushes():
  cfg = evaluation_cfg(SMALL)
  assert not cfg.observations["actor"].enable_corruption
  assert "push" not in cfg.events and "friction" in cfg.events
  assert cfg.scene.num_envs == 8


def test_disturbed_protocols_push_every_four_seconds():
  cfg = evaluation_cfg(dataclasses.replace(SMALL, disturbed=True))
  assert cfg.observations["actor"].enable_corruption
  assert cfg.events["push"].interval_range_s == (4.0, 4.0)


def test_fixed_commands_are_the_only_ones():
  fixed = dataclasses.replace(SMALL, commands="fixed", command=(0.5, 0.0, -0.1))
  command = evaluation_cfg(fixed).commands["twist"]
  assert command.ranges.lin_vel_x == (0.5, 0.5)
  assert command.ranges.ang_vel_z == (-0.1, -0.1)
  assert command.rel_standing_envs == 0.0
  assert command.resampling_time_range[0] > 1e6


def test_further_robots_are_told_one_thing_each_resets_included():
  """Robots 2 to 15 have the fourteen commands, though noise makes them fall."""
  protocol = Protocol(rollouts=1, envs=2, steps=40, warmup=5, per_command=1)
  env = make_env(evaluation_cfg(protocol), "cpu")
  rollout = Rollout(env, noisy(protocol), protocol)
  told = torch.tensor(list(COMMANDS.values()))
  obs, _ = env.reset(seed=0)
  fell = 0
  for _ in range(protocol.steps):
    obs, _, ended, late, _ = env.step(rollout.policy.act(obs))
    sample = last_sample(env, ended, late)
    rollout.metrics.add(sample)
    torch.testing.assert_close(sample.command[2:], told)
    torch.testing.assert_close(obs["actor"][2:, 6:9], told)
    fell += int(ended[2:].sum())
  env.close()
  assert fell > 0
  assert list(rollout.metrics.result()["commands"]) == list(COMMANDS)


def test_some_robots_walk_and_stop_in_turns():
  protocol = Protocol(rollouts=1, envs=2, steps=60, warmup=5, per_command=2)
  env = make_env(evaluation_cfg(protocol), "cpu")
  tell = hold_commands(env, 2)
  term = command_term(env)
  told = {}
  for t in (0, 1, 99, 100, 101, 199, 200, 300):  # Turns of 2 s.
    tell(t)
    env.step(torch.zeros(env.num_envs, 29))
    told[t] = term.command[-2:].tolist()
    assert not term.command[-4:-2].any()  # Those of "zero" stay where they are.
  env.close()
  walk, stop = [[0.5, 0.0, 0.0]] * 2, [[0.0] * 3] * 2
  expected = dict.fromkeys((0, 1, 99, 200), walk) | dict.fromkeys((100, 101, 199), stop)
  assert told == {**expected, 300: stop}


def test_feet_and_bodies_are_read_from_the_model(rollout):
  """A robot that stands: both feet down, head at its height, nothing turns.

  Turned by hand at 0.3 rad/s about the vertical, all of it turns as one.
  """
  env = rollout.env
  env.reset(seed=2)
  zero = torch.zeros(SMALL.num_envs, 29)
  for _ in range(15):
    _, _, fell, late, _ = env.step(zero)
  sample = last_sample(env, fell, late)
  assert sample.contact.all()
  assert sample.angular_velocity.shape == (8, len(rollout.layout.segments), 3)
  assert sample.angular_velocity.abs().max() < 1.5
  height = sample.head_position[:, 2] - sample.base_position[:, 2]
  assert ((0.4 < height) & (height < 0.6)).all()
  assert sample.base_position[:, :2].abs().max() < 1.0  # From its own origin.
  robot = env.scene["robot"]
  robot.data.data.qvel[:] = 0.0
  robot.data.data.qvel[:, robot.indexing.free_joint_v_adr[5]] = 0.3
  env.sim.forward()
  for read in env.before_reset:
    read(env)
  turning = last_sample(env, fell, late).angular_velocity.norm(dim=2)
  assert (turning - 0.3).abs().max() < 1e-4


def test_rough_ground_takes_every_level():
  cfg = evaluation_cfg(dataclasses.replace(SMALL, task="g1-rough"))
  assert not cfg.curriculum and next(iter(cfg.events)) == "patch"


def test_other_limits_can_be_counted_against():
  cfg = evaluation_cfg(SMALL, {"joint_vel": {"upper": 3.0}})
  assert cfg.constraints["joint_vel"].limits == {"upper": 3.0, "lower": 10.0}
  with pytest.raises(UserError, match="Unknown constraint in the limits: 'speed'"):
    evaluation_cfg(SMALL, {"speed": {"upper": 3.0}})
  with pytest.raises(UserError, match="limits of .*: .tail. .there are upper, lower"):
    evaluation_cfg(SMALL, {"joint_vel": {"tail": 3.0}})


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"warmup": 70}, "steps must be above 70"),
    ({"commands": "fixed"}, "fixed exactly when a command is given"),
    ({"command": (1.0, 0.0, 0.0)}, "fixed exactly when a command is given"),
  ],
)
def test_impossible_protocols_are_refused(changes, message):
  with pytest.raises(UserError, match=message):
    dataclasses.replace(SMALL, **changes)


def test_unknown_tasks_are_refused():
  with pytest.raises(UserError, match="Unknown task 'g2'"):
    evaluate("stand", dataclasses.replace(SMALL, task="g2"))


def test_labels_name_what_is_not_usual():
  fixed = dataclasses.replace(SMALL, commands="fixed", command=(0.5, 0.0, 0.0))
  assert (SMALL.label, fixed.label) == ("", "vx0.5")
  assert dataclasses.replace(fixed, disturbed=True).label == "vx0.5-disturbed"


def test_a_reward_for_tracking_without_a_variance_is_told():
  """It ended in a KeyError once the environment was built."""
  cfg = env_cfg("g1-flat")
  assert missing("g1-flat", cfg) == []
  del cfg.rewards["track_xy"].params["variance"]
  assert missing("g1-flat", cfg) == ["reward 'track_xy' with a 'variance'"]


def test_the_velocity_command_is_the_one_of_that_name():
  """A task of one's own may have another command of three numbers before it."""
  terms = {"pose": torch.zeros(1, 3), "twist": torch.ones(1, 3)}
  terms = {name: SimpleNamespace(command=told) for name, told in terms.items()}
  manager = SimpleNamespace(active_terms=list(terms), get_term=terms.get)
  assert command_term(SimpleNamespace(command_manager=manager)) is terms["twist"]
