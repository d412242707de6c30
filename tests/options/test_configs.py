"""Numbers of configs that make no sense are named; those of all tasks make sense."""

import math

import pytest

from decap.errors import UserError
from decap.methods import METHODS
from decap.options.configs import check_values
from decap.runs import RunSpec, build_configs, plain
from decap.tasks import TASKS

BAD = {
  "env.rewards.track_xy.params.variance": (0, -0.25),
  "env.rewards.track_xy_mean.params.time_s": (0,),
  "env.rewards.gait.params.period_s": (0, -1),
  "env.rewards.gait.params.stance_share": (0, 1, -0.1),
  "env.rewards.gait.params.command_threshold": (-0.1,),
  "env.rewards.foot_clearance.params.target_m": (-0.1,),
  "env.rewards.undesired_contacts.params.force_threshold": (-1,),
  "env.terminations.tilted.params.limit_angle": (0,),
  "env.observations.actor.history_length": (-1,),
  "env.observations.actor.terms.joint_pos.history_length": (-3,),
  "env.observations.actor.terms.joint_pos.delay_min_lag": (-1,),
  "env.observations.actor.terms.joint_pos.delay_max_lag": (-1,),
  "env.observations.actor.terms.joint_pos.delay_update_period": (-1,),
  "env.observations.actor.terms.joint_pos.delay_hold_prob": (1.5, -0.1),
  "env.events.push.min_step_count_between_reset": (-1,),
  "env.events.friction.params.ranges": ([-0.3, 1.0],),
  "env.scene.num_envs": (0, -1),
  "env.scene.env_spacing": (-1.0,),
  "env.decimation": (0,),
  "env.episode_length_s": (0.0, -1.0, math.nan, math.inf),
  "env.sim.mujoco.timestep": (0.0, -0.1),
  "env.sim.mujoco.iterations": (0,),
  "env.sim.mujoco.ls_iterations": (-1,),
  "env.sim.mujoco.impratio": (0.0,),
  "env.commands.twist.rel_standing_envs": (-0.1, 1.1),
  "env.commands.twist.resampling_time_range": ([0.0, 1.0],),
  "env.commands.twist.init_velocity_prob": (2.0,),
  "env.groups.upper.p_max": (0.0, 1.0),
  "env.constraints.tilt.limits": (0.0, -1.0),
  "env.constraints.joint_vel.limits.upper": (0.0, -1.0, math.nan),
  "env.following.settle_s": (-1.0,),
  "agent.policy.std_growth": (0.0,),
  "agent.algorithm.entropy_final": (-1.0,),
  "agent.algorithm.value_loss_coef": (-1.0,),
}


def nested(path, value):
  for key in reversed(path.split(".")):
    value = {key: value}
  return value


@pytest.mark.parametrize(
  ("path", "value"), [(path, value) for path, given in BAD.items() for value in given]
)
def test_what_makes_no_sense_is_named(path, value):
  option = "--" + path.replace("_", "-")
  with pytest.raises(UserError, match=rf"^{option} must be .*, not .*\.$"):
    check_values(nested(path, value), {}, ())


@pytest.mark.parametrize(
  "path", ["env.events.push.interval_range_s", "env.commands.twist.ranges.lin_vel_x"]
)
def test_ranges_go_upward(path):
  with pytest.raises(UserError, match=r"must go from low to high, not from 5.0 to 4.0"):
    check_values(nested(path, [5.0, 4.0]), {}, ())


def test_a_command_must_be_there():
  path = "env.rewards.track_xy.params.command_name"
  check_values(nested(path, "twist"), {}, ("twist",))
  with pytest.raises(UserError, match="Unknown command of .*command-name 'twits'"):
    check_values(nested(path, "twits"), {}, ("twist",))


@pytest.mark.parametrize(
  ("path", "value"),
  [
    ("env.observations.actor.history_length", 5),
    ("env.observations.actor.terms.joint_pos.delay_hold_prob", 1.0),
    ("env.rewards.track_xy.weight", -1.0),
    ("env.sim.mujoco.gravity", [0.0, 0.0, -9.81]),
    ("env.scale_rewards_by_dt", False),
    ("env.events.friction.params.ranges", [0.0, 0.5]),
  ],
)
def test_what_makes_sense_passes(path, value):
  check_values(nested(path, value), {}, ())


def test_an_infinity_of_the_defaults_may_stay():
  bands = nested("env.following.bands.fast", [0, 0.5, math.inf])
  check_values(bands, bands, ())


@pytest.mark.parametrize("task", TASKS)
def test_configs_of_all_tasks_and_methods_make_sense(task):
  """Checked as if every number had been given."""
  for method in METHODS:
    env, agent = build_configs(RunSpec(task=task, method=method))
    env.following = None  # Its bands reach to infinity.
    check_values(plain({"env": env, "agent": agent}), {}, env.commands)
