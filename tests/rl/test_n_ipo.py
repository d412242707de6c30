"""N-IPO: thresholds, the log barrier and a problem with a known optimum."""

import math

import pytest
import torch

from decap.rl.config import NIpoCfg
from decap.rl.n_ipo import adaptive_thresholds, extended_log, log_barrier


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
    ratio,
    advantages,
    torch.tensor([0.25, 0.5]),
    torch.tensor([1.0, 2.0]),
    torch.tensor([0.1, 0.1]),
  )
  # −log(1 − 0.25 − 0.25) − log(2 − 0.5 − 0.5) = log 2
  assert float(barrier) == pytest.approx(math.log(2.0))


def test_below_the_margin_the_log_goes_on_as_its_tangent():
  # log 0.5 = −0.693, slope 1/0.5 = 2: at 0.4 −0.893, at −1 −3.693.
  x = torch.tensor([2.0, 0.5, 0.4, -1.0], requires_grad=True)
  out = extended_log(x, torch.tensor(0.5))
  half = math.log(0.5)
  expected = [math.log(2.0), half, half - 0.2, half - 3.0]
  assert out.tolist() == pytest.approx(expected)
  out.sum().backward()
  assert x.grad is not None
  assert x.grad[[0, 2, 3]].tolist() == pytest.approx([0.5, 2.0, 2.0])


def test_barrier_pulls_back_beyond_the_threshold():
  """Where the cost has risen past its threshold, a clamp would have no gradient."""
  ratio = torch.tensor([2.0], requires_grad=True)
  barrier = log_barrier(
    ratio,
    torch.tensor([[3.0]]),
    torch.tensor([0.9]),
    torch.ones(1),
    torch.tensor([0.1]),
  )
  barrier.backward()
  # Slope 1/0.1 times an advantage of 3.
  assert ratio.grad is not None and ratio.grad.tolist() == pytest.approx([30.0])


def test_an_infeasible_cost_weighs_as_much_as_the_published_constants_say(agent):
  """1/(t α d) with d = D / (1 − γ): 1/(50 · 0.02 · 1) = 1 per discounted cost."""
  cfg = NIpoCfg(barrier_t=50.0)
  rate = torch.tensor([0.6])
  limit = torch.tensor([cfg.cost_limit])
  thresholds = adaptive_thresholds(rate, limit, cfg.threshold_margin)
  ratio = torch.ones(1, requires_grad=True)
  advantage = torch.tensor([[0.7]])  # of the discounted cost
  margin = cfg.threshold_margin * limit
  scaled = (1.0 - cfg.gamma) * advantage
  (log_barrier(ratio, scaled, rate, thresholds, margin) / cfg.barrier_t).backward()
  assert ratio.grad is not None
  assert ratio.grad.tolist() == pytest.approx([0.7], rel=1e-3)


def test_barrier_gradient_against_finite_differences():
  torch.manual_seed(0)
  log_ratio = (0.1 * torch.randn(7, dtype=torch.double)).requires_grad_()
  advantages = torch.randn(7, 3, dtype=torch.double)
  cost = torch.tensor([0.2, 0.5, 4.0], dtype=torch.double)
  thresholds = adaptive_thresholds(cost, torch.ones(3, dtype=torch.double), 0.3)

  def barrier(log_ratio):
    margin = torch.full((3,), 0.3, dtype=torch.double)
    return log_barrier(log_ratio.exp(), advantages, cost, thresholds, margin)

  assert torch.autograd.gradcheck(barrier, (log_ratio,))


def test_finds_the_constrained_optimum(bandit_problem):
  """At most 20 % of steps above 1 at σ = 0.5 means μ = 1 − 0.5 z_0.8 = 0.579."""
  cfg = NIpoCfg(
    cost_limit=0.2,
    # α D = 0.0002, as with the default limit of 1 %.
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
    # Above it by α D = 0.02 · 0.01.
    assert float(metrics[f"Threshold/{name}"]) == pytest.approx(float(rate) + 0.0002)
