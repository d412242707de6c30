"""PPO-Lagrangian: multipliers, mixed advantages and a problem with a known optimum."""

import pytest
import torch

from decap.rl.build import build_algorithm
from decap.rl.config import AgentCfg, LagrangianCfg, PolicyCfg, PpoCfg
from decap.rl.lagrangian import lagrangian_advantages


def test_mixed_advantages_by_hand():
  # (2 − 0.5·1 − 1.5·(−1)) / (1 + 2) = 1
  mixed = lagrangian_advantages(
    torch.tensor([[2.0]]), torch.tensor([[[1.0, -1.0]]]), torch.tensor([0.5, 1.5])
  )
  assert float(mixed) == pytest.approx(1.0)


def test_multipliers_rise_where_violated_and_never_fall_below_zero(agent):
  alg = agent.build(LagrangianCfg(cost_limit=0.3, multiplier_lr=0.1))
  alg.multipliers.copy_(torch.tensor([0.5, 0.05]))
  alg.cost_rates.copy_(torch.tensor([0.9, 0.1]))
  alg._update_multipliers()
  # Adam's first step has the length of the learning rate.
  assert alg.multipliers.tolist() == pytest.approx([0.6, 0.0])


def test_multipliers_have_an_upper_bound(agent):
  alg = agent.build(LagrangianCfg(multiplier_lr=5.0, multiplier_max=2.0))
  alg.cost_rates.fill_(1.0)
  alg._update_multipliers()
  assert alg.multipliers.tolist() == [2.0, 2.0]


def test_satisfied_costs_leave_ppo_alone(agent):
  plain, lagrangian = agent.build(PpoCfg()), agent.build(LagrangianCfg(cost_limit=1.0))
  lagrangian.actor.load_state_dict(plain.actor.state_dict())
  lagrangian.critic.load_state_dict(plain.critic.state_dict())
  for alg in (plain, lagrangian):
    agent.rollout(alg)
    torch.manual_seed(0)
    alg.update()
  for ours, expected in zip(
    lagrangian.actor.parameters(), plain.actor.parameters(), strict=True
  ):
    assert torch.equal(ours, expected)


def test_finds_the_constrained_optimum(bandit_problem):
  """At most 20 % of steps above 1 at σ = 0.5 means μ = 1 − 0.5 z_0.8 = 0.579."""
  mean, rate = bandit_problem(
    LagrangianCfg(
      cost_limit=0.2, entropy_coef=0.0, schedule="fixed", multiplier_lr=0.05
    ),
    iterations=120,
  )
  assert rate == pytest.approx(0.2, abs=0.05)
  assert mean == pytest.approx(1.0 - 0.5 * 0.8416, abs=0.08)


def test_without_constraints_it_is_refused():
  with pytest.raises(ValueError, match="needs at least one constraint"):
    build_algorithm(
      AgentCfg(algorithm=LagrangianCfg(), policy=PolicyCfg()),
      {"actor": torch.zeros(2, 3)},
      1,
      ["joint"],
      [],
      2,
      "cpu",
    )
