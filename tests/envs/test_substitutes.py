"""The twin of a task in stock mjlab: mjlab's own terms, same parameters."""

import pytest
import torch
from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from mjlab.envs import mdp as mjlab_mdp
from mjlab.managers import EventTermCfg
from mjlab.tasks.registry import load_env_cfg
from mjlab.tasks.velocity import mdp as velocity_mdp
from mjlab.tasks.velocity.mdp import UniformVelocityCommand

from decap.envs.constrained_env import ConstrainedEnv, constrain
from decap.envs.constraint_manager import ConstraintTermCfg
from decap.envs.masked import masked
from decap.envs.mdp import terrain_levels
from decap.envs.substitutes import stock_twin, substitute_terms
from decap.sim import simulation_backend
from decap.tasks import TASKS, env_cfg


def small_cfg(name: str):
  cfg = env_cfg(name)
  cfg.scene.num_envs = 4
  cfg.seed = 1
  return cfg


@pytest.mark.parametrize("name", TASKS)
def test_substitution_is_undone(name):
  cfg = small_cfg(name)
  expected = {n: (t.func, t.params) for n, t in cfg.events.items()}
  substitute_terms(cfg)
  twin = stock_twin(cfg)
  assert type(twin) is ManagerBasedRlEnvCfg
  assert "build" not in vars(twin.commands["twist"])
  found = {n: (t.func, t.params) for n, t in twin.events.items()}
  if name.endswith("rough"):
    # Of ours alone: it stays.
    func, params = found.pop("reset_base")
    ours, ours_params = expected.pop("reset_base")
    assert func is ours and params == ours_params
    levels = twin.curriculum["terrain_levels"]
    assert cfg.curriculum["terrain_levels"].func is terrain_levels
    assert levels.func is velocity_mdp.terrain_levels_vel
  assert found == expected
  actor = twin.observations["actor"].terms
  assert actor["projected_gravity"].func is mjlab_mdp.projected_gravity
  assert twin.rewards["orientation"].func is mjlab_mdp.flat_orientation_l2
  assert twin.terminations["tilted"].func is mjlab_mdp.bad_orientation
  # The original still has our terms.
  assert cfg.events["push"].func is not mjlab_mdp.push_by_setting_velocity


def test_the_twin_runs_and_looks_the_same():
  cfg = small_cfg("g1-flat")
  ours = ConstrainedEnv(cfg, "cpu")
  with simulation_backend("native"):
    twin = ManagerBasedRlEnv(stock_twin(cfg), "cpu")
  assert type(twin.command_manager.get_term("twist")) is UniformVelocityCommand
  assert twin.reward_manager.active_terms == ours.reward_manager.active_terms
  shapes = {name: obs.shape for name, obs in ours.reset()[0].items()}
  obs, _ = twin.reset()
  assert {name: value.shape for name, value in obs.items()} == shapes
  for _ in range(3):
    obs, reward, *_ = twin.step(torch.zeros(4, 29))
  assert torch.isfinite(reward).all()


def test_masked_terms_get_a_mask_made_of_indices():
  seen = []

  @masked
  def note(env, mask, value):
    seen.append((mask if mask is None else mask.tolist(), value))

  cfg = small_cfg("g1-flat")
  cfg.events["note"] = EventTermCfg(func=note, mode="reset", params={"value": 3})
  func = stock_twin(cfg).events["note"].func

  class Env:
    num_envs, device = 4, "cpu"

  func(Env(), torch.tensor([0, 2]), value=3)
  func(Env(), None, value=3)
  assert seen == [([True, False, True, False], 3), (None, 3)]


def test_a_stock_config_stays_as_it_is():
  cfg = load_env_cfg("Mjlab-Cartpole-Balance")
  cfg.scene.num_envs = 2
  limited = {"joint_vel": ConstraintTermCfg(func=made_up, limits=1.0)}
  constrained = constrain(cfg, constraints=limited, constrained_entity="cartpole")
  ConstrainedEnv(constrained, "cpu")
  ours, theirs = constrained.events["reset_slider"], cfg.events["reset_slider"]
  assert ours.func is not mjlab_mdp.reset_joints_by_offset
  assert theirs.func is mjlab_mdp.reset_joints_by_offset


def made_up(env) -> torch.Tensor:
  return torch.zeros(env.num_envs)
