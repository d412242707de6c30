"""Observations joined first, noise second: what mjlab's manager computes."""

import math

import pytest
import torch
from mjlab.managers.observation_manager import ObservationManager
from mjlab.utils.noise import GaussianNoiseCfg, UniformNoiseCfg

from decap.envs.constrained_env import ConstrainedEnv
from decap.tasks import env_cfg
from decap.testing import waits

NUM_ENVS = 512


@pytest.fixture
def env() -> ConstrainedEnv:
  cfg = env_cfg("g1-flat")
  cfg.scene.num_envs = NUM_ENVS
  cfg.seed = 0
  actor = cfg.observations["actor"].terms
  actor["projected_gravity"].noise = UniformNoiseCfg(
    n_min=(0.1, 0.2, 0.3), n_max=(0.2, 0.4, 0.6)
  )
  env = ConstrainedEnv(cfg, "cpu")
  env.reset()
  return env


def by_mjlab(env, group: str) -> torch.Tensor:
  return ObservationManager.compute_group(env.observation_manager, group)


def ours(env, group: str) -> torch.Tensor:
  return env.observation_manager.compute_group(group)


def test_without_noise_it_is_the_same(env):
  assert torch.equal(ours(env, "critic"), by_mjlab(env, "critic"))


def test_noise_is_that_of_each_term(env):
  exact = by_mjlab(env, "critic")[:, 3:]  # The critic sees the velocity, too.
  noise = ours(env, "actor") - exact
  width = torch.tensor([0.4] * 3 + [0.1, 0.2, 0.3] + [0] * 3 + [0.02] * 29 + [3.0] * 29)
  centre = torch.tensor([0.0] * 3 + [0.15, 0.3, 0.45] + [0.0] * 61)
  noise, silent = noise[:, :67], noise[:, 67:]
  assert (silent == 0).all() and (noise[:, 6:9] == 0).all()
  assert ((noise - centre).abs() <= width / 2 + 1e-5).all()
  spread = width / math.sqrt(12)
  # Five standard errors of a mean of 512.
  error = 5 * spread / math.sqrt(NUM_ENVS)
  assert ((noise.mean(0) - centre).abs() <= error + 1e-6).all()
  torch.testing.assert_close(noise.std(0), spread, rtol=0.12, atol=1e-6)
  mixed = noise[:, [0, 1, 3, 9, 10, 40]].T.corrcoef()
  assert (mixed - torch.eye(6)).abs().max() < 0.25
  assert not torch.equal(ours(env, "actor"), ours(env, "actor"))


def test_changed_noise_takes_effect(env):
  terms = env.observation_manager._group_obs_term_cfgs["actor"]
  ours(env, "actor")
  for term in terms:
    term.noise = None
  assert torch.equal(ours(env, "actor"), by_mjlab(env, "critic")[:, 3:])


def test_bounds_may_be_lists(env):
  term = env.observation_manager.get_term_cfg("actor", "projected_gravity")
  term.noise = UniformNoiseCfg(n_min=[1.1, 2.1, 3.1], n_max=[1.5, 2.5, 3.5])  # ty: ignore
  noise = ours(env, "actor")[:, 3:6] - by_mjlab(env, "critic")[:, 6:9]
  assert noise.floor().tolist() == [[1.0, 2.0, 3.0]] * NUM_ENVS


@pytest.mark.parametrize(
  "edit",
  [
    {"scale": torch.tensor(2.0)},
    {"clip": (-0.1, 0.1)},
    {"noise": GaussianNoiseCfg(std=1.0)},
    {"noise": UniformNoiseCfg(n_min=0.5, n_max=2.0, operation="scale")},
  ],
)
def test_anything_else_is_left_to_mjlab(env, edit):
  term = env.observation_manager.get_term_cfg("actor", "joint_pos")
  for name, value in edit.items():
    setattr(term, name, value)
  torch.manual_seed(1)
  expected = by_mjlab(env, "actor")
  torch.manual_seed(1)
  assert torch.equal(ours(env, "actor"), expected)


def test_it_does_not_wait(env):
  ours(env, "actor")
  assert waits(lambda: ours(env, "actor")) == []
