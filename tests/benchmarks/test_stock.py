"""The twin of a task in stock mjlab: mjlab's own terms, same parameters."""

import pytest
import torch
from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from mjlab.envs import mdp as mjlab_mdp
from mjlab.tasks.velocity import mdp as velocity_mdp
from mjlab.tasks.velocity.mdp import UniformVelocityCommand

from benchmarks.stock import stock_twin
from decap.envs.constrained_env import ConstrainedEnv
from decap.envs.mdp import terrain_levels
from decap.envs.substitutes import substitute_terms
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
