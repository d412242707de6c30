"""Every weight, range and limit of the G1's tasks, written out."""

import math

import pytest

from decap.tasks import env_cfg

WEIGHTS = {
  "track_xy": 1.5,
  "track_yaw": 1.0,
  "vertical_velocity": -2.0,
  "roll_pitch_rate": -0.05,
  "base_height": -10.0,
  "waist_deviation": -1.0,
  "hip_deviation": -1.0,
  "foot_slide": -0.2,
  "foot_clearance": 1.0,
  "alive": 0.15,
  "orientation": -5.0,
  "joint_limits": -5.0,
  "arm_deviation": -0.1,
  "gait": 0.5,
  "undesired_contacts": -1.0,
}

REWARD_PARAMS = {
  ("track_xy", "variance"): 0.25,
  ("track_yaw", "variance"): 0.25,
  ("base_height", "target_m"): 0.78,
  ("foot_clearance", "target_m"): 0.1,
  ("foot_clearance", "variance"): 0.05,
  ("foot_clearance", "speed_gain"): 2.0,
  ("gait", "period_s"): 0.8,
  ("gait", "offsets"): (0.0, 0.5),
  ("gait", "stance_share"): 0.55,
  ("gait", "command_threshold"): 0.1,
  ("undesired_contacts", "force_threshold"): 1.0,
}

DEVIATING_JOINTS = {
  "waist_deviation": ("waist_.*",),
  "hip_deviation": (".*_hip_roll_joint", ".*_hip_yaw_joint"),
  "arm_deviation": (".*_shoulder_.*", ".*_elbow_.*", ".*_wrist_.*"),
}

NOISE = {
  "base_ang_vel": 0.2,
  "projected_gravity": 0.05,
  "command": None,
  "joint_pos": 0.01,
  "joint_vel": 1.5,
  "actions": None,
  "clock": None,
}

LIMITS = {
  "action_rate": {"upper": 5.0, "lower": 20.0},
  "joint_acc": {"upper": 20.0, "lower": 600.0},
  "joint_torque": {"upper": 4.0, "lower": 20.0},
  "joint_vel": {"upper": 1.5, "lower": 10.0},
}


@pytest.fixture(params=["g1-flat", "g1-rough", "g1-23dof-flat", "g1-23dof-rough"])
def name(request):
  return request.param


@pytest.fixture
def cfg(name):
  return env_cfg(name)


def test_rates(cfg):
  assert cfg.sim.mujoco.timestep == 0.005
  assert cfg.decimation == 4
  assert cfg.episode_length_s == 20.0
  assert cfg.scene.num_envs == 4096
  assert cfg.scale_rewards_by_dt


def test_solver_is_that_of_the_stock_task(cfg):
  from mjlab.tasks.velocity.config.g1.env_cfgs import (
    unitree_g1_flat_env_cfg,
    unitree_g1_rough_env_cfg,
  )

  flat = cfg.scene.terrain.terrain_type == "plane"
  stock = unitree_g1_flat_env_cfg() if flat else unitree_g1_rough_env_cfg()
  assert cfg.sim.mujoco == stock.sim.mujoco


def test_reward_weights(cfg):
  assert {n: term.weight for n, term in cfg.rewards.items()} == WEIGHTS


def test_reward_parameters(cfg):
  for (term, parameter), value in REWARD_PARAMS.items():
    assert cfg.rewards[term].params[parameter] == value, (term, parameter)
  for term, joints in DEVIATING_JOINTS.items():
    assert cfg.rewards[term].params["asset_cfg"].joint_names == joints


def test_limits_and_groups(cfg):
  assert {n: term.limits for n, term in cfg.constraints.items()} == LIMITS
  assert {n: group.p_max for n, group in cfg.groups.items()} == {
    "upper": 0.5,
    "lower": 0.25,
  }
  assert (cfg.termination.rho, cfg.termination.kappa) == (0.7, 2.0)


def test_commands(cfg):
  command = cfg.commands["twist"]
  assert command.ranges.lin_vel_x == (-0.5, 1.0)
  assert command.ranges.lin_vel_y == (-0.3, 0.3)
  assert command.ranges.ang_vel_z == (-0.5, 0.5)
  assert command.resampling_time_range == (10.0, 10.0)
  assert command.rel_standing_envs == 0.02
  assert not command.heading_command
  assert command.rel_world_envs == command.rel_forward_envs == 0.0


def test_observations(cfg):
  actor, critic = cfg.observations["actor"], cfg.observations["critic"]
  assert list(actor.terms) == list(NOISE)
  for term, size in NOISE.items():
    noise = actor.terms[term].noise
    assert (noise and (noise.n_min, noise.n_max)) == (size and (-size, size)), term
  assert actor.enable_corruption
  assert set(critic.terms) == {"base_lin_vel", *NOISE}
  assert not critic.enable_corruption
  assert not any(term.noise for term in critic.terms.values())
  for group in (actor, critic):
    assert not any(term.history_length or term.scale for term in group.terms.values())


def test_falls(cfg):
  assert cfg.terminations["tilted"].params == {"limit_angle": 0.8}
  assert cfg.terminations["fell"].params == {"minimum_m": 0.2}
  truncations = {n for n, term in cfg.terminations.items() if term.time_out}
  rough = cfg.scene.terrain.terrain_type == "generator"
  assert truncations == ({"time_out", "left_terrain"} if rough else {"time_out"})
  assert set(cfg.terminations) == {"tilted", "fell"} | truncations


def test_randomisation(cfg):
  events = cfg.events
  assert set(events) == {"reset_base", "reset_joints", "push", "friction", "torso_mass"}
  assert events["reset_base"].params == {
    "pose_range": {"x": (-0.5, 0.5), "y": (-0.5, 0.5), "yaw": (-math.pi, math.pi)}
  }
  assert events["reset_joints"].params == {
    "position_range": (0.0, 0.0),
    "velocity_range": (-1.0, 1.0),
  }
  assert events["push"].mode == "interval"
  assert events["push"].interval_range_s == (5.0, 5.0)
  assert events["push"].params == {
    "velocity_range": {"x": (-0.5, 0.5), "y": (-0.5, 0.5)}
  }
  assert events["friction"].mode == "startup"
  assert events["friction"].params["ranges"] == (0.3, 1.0)
  assert events["friction"].params["operation"] == "abs"
  assert events["torso_mass"].mode == "startup"
  assert events["torso_mass"].params["range_kg"] == (-1.0, 3.0)
  assert events["torso_mass"].params["asset_cfg"].body_names == ("torso_link",)


def test_robot(name, cfg):
  joints = 23 if "23dof" in name else 29
  spec = cfg.scene.entities["robot"].spec_fn()
  assert len(spec.joints) == joints + 1  # The floating base.


def test_rough_ground(name, cfg):
  terrain = cfg.scene.terrain
  if name.endswith("flat"):
    assert terrain.terrain_type == "plane"
    assert cfg.curriculum == {}
    return
  generator = terrain.terrain_generator
  assert generator.num_rows == 10
  assert generator.curriculum
  kinds = generator.sub_terrains
  assert list(kinds) == [
    "slope",
    "inverse_slope",
    "random_rough",
    "stairs",
    "inverse_stairs",
  ]
  assert kinds["slope"].slope_range == kinds["inverse_slope"].slope_range == (0.0, 0.4)
  assert kinds["inverse_slope"].inverted
  assert kinds["random_rough"].noise_range == (0.0, 0.08)
  assert kinds["stairs"].step_height_range == (0.0, 0.1)
  assert kinds["inverse_stairs"].step_height_range == (0.0, 0.1)
  assert list(cfg.curriculum) == ["terrain_levels"]


def test_play(name):
  cfg = env_cfg(name, play=True)
  assert cfg.scene.num_envs == 1
  assert cfg.episode_length_s >= 1e9
  assert "push" not in cfg.events
  assert cfg.curriculum == {}
  assert not cfg.observations["actor"].enable_corruption
  if name.endswith("rough"):
    assert next(iter(cfg.events)) == "patch"
    assert not cfg.scene.terrain.terrain_generator.curriculum


def test_configs_are_independent():
  first, second = env_cfg("g1-flat"), env_cfg("g1-flat")
  first.rewards["alive"].weight = 7.0
  first.groups["upper"].p_max = 0.9
  first.rewards["track_xy"].params["variance"] = 9.0
  first.commands["twist"].ranges.lin_vel_x = (0.0, 0.0)
  first.scene.entities["robot"].init_state.pos = (0.0, 0.0, 9.0)
  assert second.rewards["alive"].weight == 0.15
  assert first.rewards["track_yaw"].params["variance"] == 0.25
  assert second.groups["upper"].p_max == 0.5
  assert second.commands["twist"].ranges.lin_vel_x == (-0.5, 1.0)
  assert second.scene.entities["robot"].init_state.pos[2] < 1.0
