"""A small agent and a made-up rollout for it."""

from __future__ import annotations

import pytest
import torch

from decap.rl.build import build_algorithm
from decap.rl.config import AgentCfg, PolicyCfg, PpoCfg
from decap.rl.ppo import PPO

# Networks this small are slower on several threads.
torch.set_num_threads(1)

NUM_ENVS, NUM_STEPS, NUM_ACTIONS = 16, 6, 3
COST_NAMES = ("rate/upper", "rate/lower")


def make_obs(generator: torch.Generator) -> dict[str, torch.Tensor]:
  return {
    "actor": torch.randn(NUM_ENVS, 5, generator=generator),
    "critic": torch.randn(NUM_ENVS, 7, generator=generator),
  }


def make_step(generator: torch.Generator) -> tuple:
  """Observations, rewards, dones and extras of one made-up environment step."""

  def rand(*shape: int) -> torch.Tensor:
    return torch.rand(NUM_ENVS, *shape, generator=generator)

  extras = {
    "time_outs": rand() < 0.1,
    "constraints": {
      "delta": rand() * (rand() < 0.5),
      "costs": (rand(len(COST_NAMES)) < 0.3).float(),
    },
  }
  rewards = torch.randn(NUM_ENVS, generator=generator)
  return make_obs(generator), rewards, (rand() < 0.1) | extras["time_outs"], extras


class Agent:
  """Builds algorithms and feeds them rollouts that depend on the seed alone."""

  num_envs, num_steps, num_actions = NUM_ENVS, NUM_STEPS, NUM_ACTIONS
  cost_names = COST_NAMES

  @staticmethod
  def make_obs(seed: int) -> dict[str, torch.Tensor]:
    return make_obs(torch.Generator().manual_seed(seed))

  @staticmethod
  def make_step(seed: int) -> tuple:
    return make_step(torch.Generator().manual_seed(seed))

  @staticmethod
  def build(
    algorithm: PpoCfg | None = None, seed: int = 0, mirrors=None, **policy
  ) -> PPO:
    torch.manual_seed(seed)
    cfg = AgentCfg(
      num_steps_per_env=NUM_STEPS,
      policy=PolicyCfg(hidden_dims=(16, 8), **policy),
      algorithm=algorithm or PpoCfg(),
    )
    return build_algorithm(
      cfg,
      make_obs(torch.Generator().manual_seed(0)),
      NUM_ACTIONS,
      [f"joint_{i}" for i in range(NUM_ACTIONS)],
      COST_NAMES,
      NUM_ENVS,
      "cpu",
      action_groups={"upper": [0, 2], "lower": [1]},
      mirrors=mirrors,
    )

  @staticmethod
  def rollout(alg: PPO, seed: int = 0) -> dict[str, torch.Tensor]:
    """One rollout, up to and including the returns; gives the last observations."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    obs = make_obs(generator)
    for _ in range(NUM_STEPS):
      alg.act(obs)
      obs, rewards, dones, extras = make_step(generator)
      alg.process_env_step(obs, rewards, dones, extras)
    alg.compute_returns(obs)
    return obs

  @staticmethod
  def weights(alg: PPO) -> torch.Tensor:
    return torch.cat(
      [p.detach().flatten() for net in alg.networks.values() for p in net.parameters()]
    ).clone()


@pytest.fixture
def agent() -> type[Agent]:
  return Agent


@pytest.fixture
def bandit_problem():
  """A one-step problem with a known optimum: reward −(a − 1.5)², cost 1{a > 1}, σ = 0.5.

  Gives mean action and cost rate, both averaged over the last third of training.
  """
  return _solve_bandit


def _solve_bandit(algorithm: PpoCfg, iterations: int = 90) -> tuple[float, float]:
  torch.manual_seed(0)
  num_envs = 256
  obs = {"actor": torch.ones(num_envs, 1)}
  alg = build_algorithm(
    AgentCfg(
      num_steps_per_env=8,
      policy=PolicyCfg(
        hidden_dims=(8,), init_std=0.5, learn_std=False, obs_normalization=False
      ),
      algorithm=algorithm,
    ),
    obs,
    num_actions=1,
    action_names=["a"],
    cost_names=["above"],
    num_envs=num_envs,
    device="cpu",
  )
  means, rates = [], []
  for _ in range(iterations):
    for _ in range(8):
      actions = alg.act(obs).squeeze(-1)
      costs = (actions > 1.0).float().unsqueeze(-1)
      extras = {"constraints": {"costs": costs}}
      alg.process_env_step(obs, -((actions - 1.5) ** 2), torch.ones(num_envs), extras)
    alg.compute_returns(obs)
    means.append(alg.actor(obs).mean().item())
    rates.append(float(alg.update()["Cost/above"]))
  last = iterations // 3
  return sum(means[-last:]) / last, sum(rates[-last:]) / last
