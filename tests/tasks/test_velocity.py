"""What holds for every registered task, whatever its numbers."""

from dataclasses import replace

import pytest
import torch

from decap.envs.constrained_env import ConstrainedEnv
from decap.errors import UserError
from decap.methods import get_method
from decap.rl.config import AgentCfg
from decap.tasks import TASKS, env_cfg
from decap.tasks.velocity import velocity_env_cfg


@pytest.fixture(params=list(TASKS))
def name(request):
  return request.param


@pytest.fixture
def cfg(name):
  return env_cfg(name)


@pytest.mark.parametrize("terrain", ["flat", "rough"])
def test_a_g1_has_the_solver_of_the_stock_task(terrain):
  from mjlab.tasks.velocity.config.g1.env_cfgs import (
    unitree_g1_flat_env_cfg,
    unitree_g1_rough_env_cfg,
  )

  stock = unitree_g1_flat_env_cfg if terrain == "flat" else unitree_g1_rough_env_cfg
  assert env_cfg(f"g1-{terrain}").sim.mujoco == stock().sim.mujoco


def test_a_go1_has_the_solver_of_the_stock_task():
  from mjlab.tasks.velocity.config.go1.env_cfgs import unitree_go1_flat_env_cfg

  assert env_cfg("go1-flat").sim.mujoco == unitree_go1_flat_env_cfg().sim.mujoco


def test_limits_and_groups_are_the_robot_s(name, cfg):
  robot = TASKS[name].describe()
  for quantity, limits in robot.limits.items():
    assert cfg.constraints[quantity].limits == limits
  assert cfg.groups == robot.groups
  assert cfg.scene.entities["robot"] == robot.entity


def test_a_robot_may_have_limits_of_scalars():
  robot = TASKS["g1-flat"].describe()
  limits = {**robot.limits, "tilt": 0.5, "foot_force": 900.0}
  cfg = velocity_env_cfg(replace(robot, limits=limits))
  cfg.scene.num_envs = 2
  env = ConstrainedEnv(cfg, "cpu")
  env.reset(seed=0)
  constraints = env.step(torch.zeros(2, 29))[-1]["constraints"]
  assert env.constraint_manager.cost_names[-2:] == ("tilt", "foot_force")
  assert constraints["quantities"]["tilt"].shape == (2,)
  force = env.scene["feet_contact"].data.force.norm(dim=-1).amax(1)
  assert torch.equal(constraints["margins"]["foot_force"], force / 900.0)
  # A method adds its own beside them.
  get_method("decap-calm-torso").edit(cfg, AgentCfg())
  assert list(cfg.constraints)[-3:] == ["tilt", "foot_force", "torso_ang_vel"]


def test_a_limit_of_an_unknown_quantity_is_named():
  robot = TASKS["g1-flat"].describe()
  robot = replace(robot, limits={**robot.limits, "warmth": 60.0})
  with pytest.raises(UserError, match="'warmth' .*joint_vel, .*tilt"):
    velocity_env_cfg(robot)


def test_the_critic_sees_what_the_actor_does_without_noise(cfg):
  actor, critic = cfg.observations["actor"], cfg.observations["critic"]
  assert actor.enable_corruption and not critic.enable_corruption
  assert set(critic.terms) == {"base_lin_vel", *actor.terms}
  assert not any(term.noise for term in critic.terms.values())
  for group in (actor, critic):
    # What a graph could not record.
    assert not any(term.history_length or term.scale for term in group.terms.values())


def test_falls_end_episodes_and_time_truncates_them(cfg):
  rough = cfg.scene.terrain.terrain_type == "generator"
  truncations = {n for n, term in cfg.terminations.items() if term.time_out}
  assert truncations == ({"time_out", "left_terrain"} if rough else {"time_out"})
  assert set(cfg.terminations) == {"tilted", "fell"} | truncations


def test_rough_ground_has_levels(name, cfg):
  terrain = cfg.scene.terrain
  if TASKS[name].terrain == "flat":
    assert terrain.terrain_type == "plane"
    assert cfg.curriculum == {}
    return
  generator = terrain.terrain_generator
  assert generator.curriculum and generator.num_rows > 1
  assert list(cfg.curriculum) == ["terrain_levels"]
  for kind, opposite in (("slope", "inverse_slope"), ("stairs", "inverse_stairs")):
    assert {kind, opposite} <= set(generator.sub_terrains)


def test_play(name):
  cfg = env_cfg(name, play=True)
  assert cfg.scene.num_envs == 1
  assert cfg.episode_length_s >= 1e9
  assert "push" not in cfg.events
  assert cfg.curriculum == {}
  assert not cfg.observations["actor"].enable_corruption
  if TASKS[name].terrain == "rough":
    # Before the base is placed: it starts from the patch's origin.
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
  assert second.commands["twist"].ranges.lin_vel_x != (0.0, 0.0)
  assert second.scene.entities["robot"].init_state.pos[2] < 1.0
