"""Closed forms of diagonal Gaussians against torch.distributions."""

import math

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from decap.rl import gaussian

STD, OLD_STD = torch.tensor([0.06, 0.6, 2.0]), torch.tensor([0.05, 0.7, 2.0])


def samples(seed: int) -> torch.Tensor:
  return torch.randn(50, 3, generator=torch.Generator().manual_seed(seed))


def test_log_prob_by_hand():
  # z = 2: −2²/2 − log 0.5 − log √(2π)
  found = gaussian.log_prob(
    torch.tensor([[2.0]]), torch.tensor([[1.0]]), torch.tensor([0.5])
  )
  assert float(found) == pytest.approx(-2.0 + math.log(2.0) - 0.918939)


def test_log_prob_and_entropy_are_torchs():
  mean = samples(0)
  x = mean + STD * samples(1)
  normal = Normal(mean, STD)
  torch.testing.assert_close(
    gaussian.log_prob(x, mean, STD), normal.log_prob(x).sum(dim=-1)
  )
  expected = normal.entropy().sum(dim=-1)
  torch.testing.assert_close(gaussian.entropy(STD).expand(50), expected)


def test_kl_is_torchs_mean_over_samples():
  old_mean, mean = samples(0), samples(0) + 0.1 * samples(1)
  found = gaussian.kl_divergence(old_mean, OLD_STD, mean, STD)
  expected = kl_divergence(Normal(old_mean, OLD_STD), Normal(mean, STD)).mean(dim=0)
  torch.testing.assert_close(found, expected)
  assert gaussian.kl_divergence(mean, STD, mean, STD).tolist() == [0.0, 0.0, 0.0]


def test_gradients_are_torchs():
  actions = samples(2)

  def gradients(log_prob) -> list[torch.Tensor]:
    mean, std = samples(0).requires_grad_(), STD.clone().requires_grad_()
    return list(torch.autograd.grad(log_prob(mean, std).square().mean(), (mean, std)))

  ours = gradients(lambda mean, std: gaussian.log_prob(actions, mean, std))
  theirs = gradients(lambda mean, std: Normal(mean, std).log_prob(actions).sum(dim=-1))
  for found, expected in zip(ours, theirs, strict=True):
    torch.testing.assert_close(found, expected)
