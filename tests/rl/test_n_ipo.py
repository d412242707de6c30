"""N-IPO: thresholds, the log barrier and a problem with a known optimum."""

import math

import pytest
import torch

from decap.rl.config import NIpoCfg
from decap.rl.n_ipo import adaptive_thresholds, log_barrier


def test_thresholds_by_hand():
  # d = 1, α = 0.02. Far above: 30 + 0.02. Just below: 0.99 + 0.02 = 1.01. Well below: 1.
  cost, limit = torch.tensor([30.0, 0.99, 0.2]), torch.ones(3)
  assert adaptive_thresholds(cost, limit, 0.02).tolist() == pytest.approx(
    [30.02, 1.01, 1.0]
  )


def test_barrier_by_hand():
  # E[(ratio − 1) A] = (0.5·1 + 0·(−1)) / 2 = 0.25; 0.5·2/2 − 0 = 0.5 for the second.
  ratio = torch.tensor([1.5, 1.0])
  advantages = torch.tensor([[1.0, 2.0], [-1.0, -2.0]])
  barrier = log_barrier(
    ratio, advantages, torch.tensor([0.25, 0.5]), torch.tensor([1.0, 2.0])
  )
  # −log(1 − 0.25 − 0.25) − log(2 − 0.5 − 0.5) = log 2
  assert float(barrier) == pytest.approx(math.log(2.0))


def test_barrier_stays_finite_beyond_the_threshold():
  barrier = log_barrier(
    torch.tensor([2.0]), torch.tensor([[3.0]]), torch.tensor([0.9]), torch.ones(1)
  )
  assert float(barrier) == pytest.approx(-math.log(1e-8))


def test_barrier_gradient_against_finite_differences():
  torch.manual_seed(0)
  log_ratio = (0.1 * torch.randn(7, dtype=torch.double)).requires_grad_()
  advantages = torch.randn(7, 3, dtype=torch.double)
  cost = torch.tensor([0.2, 0.5, 4.0], dtype=torch.double)
  thresholds = adaptive_thresholds(cost, torch.ones(3, dtype=torch.double), 0.3)

  def barrier(log_ratio):
    return log_barrier(log_ratio.exp(), advantages, cost, thresholds)

  assert torch.autograd.gradcheck(barrier, (log_ratio,))


def test_finds_the_constrained_optimum(bandit_problem):
  """At most 20 % of steps above 1 at σ = 0.5 means μ = 1 − 0.5 z_0.8 = 0.579."""
  cfg = NIpoCfg(
    cost_limit=0.2,
    # α d = 0.02, as with the default limit of 1 %.
    threshold_margin=0.001,
    barrier_t=10.0,
    entropy_coef=0.0,
    schedule="fixed",
    learning_rate=3e-4,
  )
  mean, rate = bandit_problem(cfg)
  assert rate == pytest.approx(0.2, abs=0.03)
  assert mean == pytest.approx(1.0 - 0.5 * 0.8416, abs=0.05)


def test_metrics_tell_each_cost_and_threshold(agent):
  alg = agent.build(NIpoCfg())
  agent.rollout(alg)
  expected = alg.storage.costs.mean(dim=(0, 1))
  metrics = alg.update()
  for name, rate in zip(agent.cost_names, expected, strict=True):
    assert float(metrics[f"Cost/{name}"]) == pytest.approx(float(rate))
    # d = 0.01 / 0.01 = 1; J = rate / 0.01, above it by α d = 0.02.
    assert float(metrics[f"Threshold/{name}"]) == pytest.approx(
      float(rate) / 0.01 + 0.02, rel=1e-4
    )
