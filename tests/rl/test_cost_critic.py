"""Costs that go on after a fall, their scale, and what is learnt from them."""

import pytest
import torch

from decap.rl.build import build_algorithm
from decap.rl.config import AgentCfg, LagrangianCfg, NIpoCfg, PolicyCfg
from decap.rl.cost_critic import cost_gae, endless_costs
from decap.rl.returns import standardise


def test_costs_by_hand():
  costs = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
  values = torch.tensor([[0.5, 0.2], [0.5, 0.2]])
  out = endless_costs(costs, values, torch.tensor([False, True]), 0.9)
  # Goes on: C. Ended: 1 + 0.9 · 0.5 = 1.45 and 0.9 · 0.2 = 0.18.
  torch.testing.assert_close(out, torch.tensor([[1.0, 0.0], [1.45, 0.18]]))


def test_returns_by_hand():
  """γ = 0.5, λ = 1, V = 0. TD 1, 0, 1, 0 of one robot; their mean 0.5 comes off.

  A₃ = −0.5, A₂ = 0.5 + 0.5 · A₃ = 0.25, A₁ = −0.5 + 0.5 · A₂ = −0.375,
  A₀ = 0.5 + 0.5 · A₁ = 0.3125; their mean is −0.078125.
  """
  costs = torch.tensor([1.0, 0.0, 1.0, 0.0]).reshape(4, 1, 1)
  zero = torch.zeros(4, 1, 1)
  returns, advantages = cost_gae(costs, zero, zero[0], zero, 0.5, 1.0)
  expected = torch.tensor([0.3125, -0.375, 0.25, -0.5]) + 0.078125
  torch.testing.assert_close(advantages.flatten(), expected)
  torch.testing.assert_close(returns, advantages)


@pytest.mark.parametrize("value", [10.0, 0.0, 3.0])
def test_a_fall_pays_nothing(value):
  """Two robots violate at every step and one falls: same advantage, zero.

  Whatever the critic thinks of both; 1 / (1 − γ) = 10 would be right.
  """
  steps, gamma = 4, 0.9
  costs, values = torch.ones(steps, 2, 1), torch.full((steps, 2, 1), value)
  dones = torch.zeros(steps, 2)
  dones[1, 0] = 1.0
  targets = torch.stack(
    [endless_costs(costs[t], values[t], dones[t], gamma) for t in range(steps)]
  )
  returns, advantages = cost_gae(
    targets, values, values[0], dones.unsqueeze(-1), gamma, 0.95
  )
  torch.testing.assert_close(advantages, torch.zeros(steps, 2, 1))
  torch.testing.assert_close(returns, values)


def _feed(agent, alg, dones, time_outs):
  """One rollout in which every cost occurs at every step."""
  obs = agent.make_obs(0)
  for _ in range(agent.num_steps):
    alg.act(obs)
    extras = {
      "time_outs": time_outs,
      "constraints": {"costs": torch.ones(agent.num_envs, len(agent.cost_names))},
    }
    alg.process_env_step(obs, torch.zeros(agent.num_envs), dones, extras)
  return obs


@pytest.mark.parametrize("cfg", [NIpoCfg(), LagrangianCfg()])
def test_a_fall_and_a_time_out_cost_the_same(agent, cfg):
  ended = torch.arange(agent.num_envs) % 2 == 0
  targets = []
  for time_outs in (ended, torch.zeros_like(ended)):
    alg = agent.build(cfg)
    _feed(agent, alg, ended, time_outs)
    targets.append(alg.storage.bootstrapped_costs.clone())
    # 1, and 0.99 times the value where it ended.
    expected = 1.0 + 0.99 * alg.storage.cost_values[:, ended]
    torch.testing.assert_close(targets[-1][:, ended], expected)
    assert (targets[-1][:, ~ended] == 1.0).all()
  assert torch.equal(*targets)


@pytest.mark.parametrize("cfg", [NIpoCfg(), LagrangianCfg()])
def test_cost_advantages_are_centred_and_keep_their_scale(agent, cfg):
  alg = agent.build(cfg)
  agent.rollout(alg)
  st = alg.storage
  torch.testing.assert_close(
    st.cost_advantages.mean(dim=(0, 1)), torch.zeros(2), rtol=0, atol=1e-6
  )
  # Twice the costs and values are twice the advantages.
  doubled = cost_gae(
    2.0 * st.bootstrapped_costs,
    2.0 * st.cost_values,
    2.0 * alg.cost_critic(agent.make_obs(1)).detach(),
    st.dones.unsqueeze(-1),
    0.99,
    0.95,
  )[1]
  single = cost_gae(
    st.bootstrapped_costs,
    st.cost_values,
    alg.cost_critic(agent.make_obs(1)).detach(),
    st.dones.unsqueeze(-1),
    0.99,
    0.95,
  )[1]
  torch.testing.assert_close(doubled, 2.0 * single)


def test_a_rollout_keeps_what_costs_are_learnt_from(agent):
  """Values of the cost critic, and what `cost_gae` makes of them, with other γ and λ."""
  alg = agent.build(LagrangianCfg(gamma=0.9, lam=0.8))
  last = agent.rollout(alg)
  st = alg.storage
  with torch.no_grad():
    for step in range(agent.num_steps):
      obs = {name: value[step] for name, value in st.observations.items()}
      torch.testing.assert_close(st.cost_values[step], alg.cost_critic(obs))
    returns, advantages = cost_gae(
      st.bootstrapped_costs,
      st.cost_values,
      alg.cost_critic(last),
      st.dones.unsqueeze(-1),
      0.9,
      0.8,
    )
  torch.testing.assert_close(st.cost_returns, returns)
  torch.testing.assert_close(st.cost_advantages, advantages)
  assert st.cost_advantages.abs().max() > 0.0


def test_the_cost_critic_learns_the_returns(agent):
  alg = agent.build(LagrangianCfg())
  agent.rollout(alg)
  alg.begin_update()
  batch = alg.samples()
  with torch.no_grad():
    loss = alg.losses(batch, alg.evaluate(batch))["cost_value"]
    predicted = alg.cost_critic.mlp(batch.inputs["cost_critic"])
  expected = ((predicted - batch.cost_returns) ** 2).mean()
  assert float(loss) == pytest.approx(float(expected), rel=1e-5)


def test_the_cost_critic_is_saved_and_loaded(agent):
  one, two = agent.build(LagrangianCfg(), seed=1), agent.build(LagrangianCfg(), seed=2)
  agent.rollout(one)
  one.update()
  assert not torch.equal(agent.weights(one), agent.weights(two))
  two.load_state_dict(one.state_dict())
  assert torch.equal(agent.weights(one), agent.weights(two))


def test_a_robot_that_ends_owes_what_would_follow():
  """Dones cut the value of the next state, not the trust in it: TD = 0 − 2 = −2."""
  values = torch.full((2, 1, 1), 2.0)
  dones = torch.tensor([1.0, 0.0]).reshape(2, 1, 1)
  _, advantages = cost_gae(torch.zeros(2, 1, 1), values, values[0], dones, 0.5, 1.0)
  # TD −2 and −1; off their mean ∓0.5, and nothing flows across the end.
  torch.testing.assert_close(advantages.flatten(), torch.tensor([-0.5, 0.5]))


def test_multipliers_are_prices_of_steps_above_the_limit(agent):
  """(A − λ A_C) / (1 + λ), with λ = 2 on one of two costs."""
  alg = agent.build(LagrangianCfg(cost_limit=1.0, multiplier_lr=1e-12))
  alg.multipliers.copy_(torch.tensor([2.0, 0.0]))
  agent.rollout(alg)
  st = alg.storage
  advantages = standardise(st.returns - st.values)
  expected = (advantages - 2.0 * st.cost_advantages[..., 0]) / 3.0
  torch.testing.assert_close(st.advantages, expected, rtol=1e-4, atol=1e-4)


def _fall_or_stay(cfg, iterations=40) -> float:
  """Share of falls learnt where a > 0 falls, every step violates and staying pays.

  A fallen robot stands up again at once, so falling saves no cost.
  """
  torch.manual_seed(0)
  num_envs = 128
  obs = {"actor": torch.ones(num_envs, 1)}
  alg = build_algorithm(
    AgentCfg(
      num_steps_per_env=16,
      policy=PolicyCfg(hidden_dims=(8,), init_std=0.5, obs_normalization=False),
      algorithm=cfg,
    ),
    obs,
    num_actions=1,
    action_names=["a"],
    cost_names=["always"],
    num_envs=num_envs,
    device="cpu",
  )
  falls = torch.zeros(num_envs, dtype=torch.bool)
  for _ in range(iterations):
    for _ in range(16):
      falls = alg.act(obs).squeeze(-1) > 0.0
      extras = {"constraints": {"costs": torch.ones(num_envs, 1)}}
      alg.process_env_step(obs, (~falls).float(), falls, extras)
    alg.compute_returns(obs)
    alg.update()
  return float(falls.float().mean())


@pytest.mark.parametrize(
  "cfg",
  [
    NIpoCfg(entropy_coef=0.0, barrier_t=50.0),
    LagrangianCfg(entropy_coef=0.0, multiplier_init=10.0, multiplier_lr=0.01),
  ],
)
def test_nobody_learns_to_fall(cfg):
  assert _fall_or_stay(cfg) < 0.1
