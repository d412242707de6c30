"""The gradient penalty and its own gradient."""

import pytest
import torch
from torch import nn

from decap.rl.config import LcpCfg, PpoCfg
from decap.rl.lcp import gradient_penalty
from decap.rl.modules import Gaussian


def test_penalty_of_a_linear_policy_by_hand():
  # log π = −(a − w·x)² / (2 σ²) + …, so ∇ log π = (a − w·x) w / σ².
  # a − w·x = 2 − (1 + 0) = 1, w = (1, 2), σ = 0.5: ∇ = (4, 8), squared 80;
  # and for a = 1: a − w·x = 0. Mean: 40.
  weight = torch.tensor([1.0, 2.0])
  x = torch.tensor([[1.0, 0.0], [1.0, 0.0]], requires_grad=True)
  gaussian = Gaussian(1, init_std=[0.5])
  gaussian.update((x @ weight).unsqueeze(-1))
  log_prob = gaussian.log_prob(torch.tensor([[2.0], [1.0]]))
  assert gradient_penalty(log_prob, x).item() == pytest.approx(40.0)


def test_second_order_gradient_against_finite_differences():
  torch.manual_seed(0)
  net = nn.Sequential(nn.Linear(3, 6), nn.ELU(), nn.Linear(6, 2)).double()
  gaussian = Gaussian(2, init_std=(0.4, 0.7)).double()
  x = torch.randn(5, 3, dtype=torch.double)
  actions = torch.randn(5, 2, dtype=torch.double)
  parameters = [*net.parameters(), *gaussian.parameters()]

  def penalty() -> torch.Tensor:
    policy_input = x.clone().requires_grad_()
    gaussian.update(net(policy_input))
    return gradient_penalty(gaussian.log_prob(actions), policy_input)

  penalty().backward()
  eps = 1e-6
  for parameter in parameters:
    analytic = parameter.grad
    assert analytic is not None
    assert analytic.abs().max() > 1e-3
    flat = parameter.data.view(-1)
    for i in range(flat.numel()):
      value = float(flat[i])
      flat[i] = value + eps
      above = penalty().item()
      flat[i] = value - eps
      below = penalty().item()
      flat[i] = value
      numeric = (above - below) / (2 * eps)
      assert float(analytic.view(-1)[i]) == pytest.approx(numeric, rel=1e-5, abs=1e-7)


def updated_weights(agent, cfg):
  alg = agent.build(cfg)
  agent.rollout(alg)
  alg.update()
  return agent.weights(alg)


def test_coefficient_zero_is_plain_ppo_to_the_last_bit(agent):
  plain = updated_weights(agent, PpoCfg())
  assert torch.equal(updated_weights(agent, LcpCfg(gradient_penalty_coef=0.0)), plain)
  assert not torch.equal(updated_weights(agent, LcpCfg()), plain)


def test_a_large_coefficient_flattens_the_policy(agent):
  def penalty(coefficient):
    cfg = LcpCfg(
      gradient_penalty_coef=coefficient, schedule="fixed", learning_rate=3e-3
    )
    alg = agent.build(cfg)
    for iteration in range(10):
      agent.rollout(alg, seed=iteration)
      metrics = alg.update()
    return float(metrics["Loss/gradient_penalty"])

  assert penalty(1.0) < 0.3 * penalty(1e-6)
