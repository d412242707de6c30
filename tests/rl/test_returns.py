"""Survival-adjusted returns against values computed by hand."""

import pytest
import rsl_rl.algorithms
import torch
from rsl_rl.storage import RolloutStorage

from decap.rl import returns as returns_module
from decap.rl.returns import standardise, survival_gae

GAMMA, LAM = 0.9, 0.5


def column(*values: float) -> torch.Tensor:
  """Steps of one environment. # [T, 1]"""
  return torch.tensor(values).unsqueeze(-1)


def gae(delta, dones=(0.0, 0.0, 0.0)):
  returns, advantages = survival_gae(
    column(1.0, 2.0, 3.0),
    column(0.5, 1.0, 1.5),
    torch.tensor([2.0]),
    column(*dones),
    column(*delta),
    GAMMA,
    LAM,
  )
  return returns.squeeze(-1).tolist(), advantages.squeeze(-1).tolist()


def test_without_delta():
  # TD = 1 + 0.9·1 − 0.5 = 1.4;  2 + 0.9·1.5 − 1 = 2.35;  3 + 0.9·2 − 1.5 = 3.3
  # A2 = 3.3;  A1 = 2.35 + 0.45·3.3 = 3.835;  A0 = 1.4 + 0.45·3.835 = 3.12575
  returns, advantages = gae((0.0, 0.0, 0.0))
  assert advantages == pytest.approx([3.12575, 3.835, 3.3])
  assert returns == pytest.approx([3.62575, 4.835, 4.8])


def test_delta_scales_what_follows_and_not_its_own_reward():
  # δ̄_1 = 0.5: TD_1 = 2 + 0.45·1.5 − 1 = 1.675;  A1 = 1.675 + 0.225·3.3 = 2.4175
  # A0 = 1.4 + 0.45·2.4175 = 2.487875
  _, advantages = gae((0.0, 0.5, 0.0))
  assert advantages == pytest.approx([2.487875, 2.4175, 3.3])


def test_certain_termination_leaves_only_the_own_reward():
  returns, advantages = gae((0.0, 1.0, 0.0))
  assert returns[1] == pytest.approx(2.0)
  # A1 = 2 − 1 = 1;  A0 = 1.4 + 0.45·1 = 1.85
  assert advantages == pytest.approx([1.85, 1.0, 3.3])


def test_certain_termination_is_a_fall():
  assert gae((0.0, 1.0, 0.0)) == gae((0.0, 0.0, 0.0), dones=(0.0, 1.0, 0.0))


def test_trailing_costs_are_independent():
  torch.manual_seed(0)
  rewards, values = torch.rand(4, 3, 2), torch.rand(4, 3, 2)
  last, dones = torch.rand(3, 2), (torch.rand(4, 3) < 0.3).float()
  both = survival_gae(
    rewards, values, last, dones.unsqueeze(-1), torch.zeros(4, 3, 1), GAMMA, LAM
  )
  for k in range(2):
    one = survival_gae(
      rewards[..., k],
      values[..., k],
      last[:, k],
      dones,
      torch.zeros(4, 3),
      GAMMA,
      LAM,
    )
    for ours, expected in zip(both, one, strict=True):
      torch.testing.assert_close(ours[..., k], expected)


class ConstantCritic:
  """Stands at rsl_rl's critic, of which only the last values are asked."""

  def __init__(self, values):
    self.values = values

  def __call__(self, obs):
    return self.values.unsqueeze(-1)

  def get_hidden_state(self):
    return None

  def reset(self, hidden_state=None):
    pass


def test_without_delta_the_numbers_are_rsl_rls():
  torch.manual_seed(0)
  steps, envs = 24, 32
  rewards, values = torch.randn(steps, envs), torch.randn(steps, envs)
  dones, last = (torch.rand(steps, envs) < 0.1), torch.randn(envs)
  theirs = object.__new__(rsl_rl.algorithms.PPO)
  theirs.gamma, theirs.lam = 0.99, 0.95
  theirs.normalize_advantage_per_mini_batch = False
  theirs.critic = ConstantCritic(last)
  theirs.storage = RolloutStorage("rl", envs, steps, {}, [1])
  theirs.storage.rewards.copy_(rewards.unsqueeze(-1))
  theirs.storage.values.copy_(values.unsqueeze(-1))
  theirs.storage.dones.copy_(dones.unsqueeze(-1))
  theirs.compute_returns({})
  returns, advantages = survival_gae(
    rewards, values, last, dones, torch.zeros(steps, envs), 0.99, 0.95
  )
  torch.testing.assert_close(returns, theirs.storage.returns.squeeze(-1))
  torch.testing.assert_close(
    standardise(advantages), theirs.storage.advantages.squeeze(-1)
  )


def test_standardise_by_hand():
  # mean 2, deviation sqrt((1 + 1) / 1) = 1.41421
  out = standardise(torch.tensor([[1.0], [3.0]]))
  assert out.flatten().tolist() == pytest.approx([-0.70711, 0.70711], abs=1e-5)


def test_standardise_of_a_constant_is_zero():
  assert torch.equal(standardise(torch.full((3, 4), 7.0)), torch.zeros(3, 4))


def test_standardise_tells_a_tiny_deviation_from_none():
  # Deviation 1.414e-8 and 1e-8 beside it: ∓1 / 2.414.
  out = standardise(torch.tensor([[0.0], [2e-8]]))
  assert out.flatten().tolist() == pytest.approx([-0.41421, 0.41421], rel=1e-4)


def test_standardise_by_rows():
  # Means 2 and 20; deviations sqrt(2) and sqrt(200).
  out = standardise(torch.tensor([[1.0, 3.0], [10.0, 30.0]]), dims=(1,))
  expected = torch.tensor([[-0.70711, 0.70711], [-0.70711, 0.70711]])
  torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)


def test_standardise_over_processes(monkeypatch):
  """Two processes with 1 and 3 each: mean 2, deviation sqrt(4 · 1 / 3) = 1.1547."""
  collective = returns_module.collective
  monkeypatch.setattr(collective, "size", lambda: 2)
  monkeypatch.setattr(collective, "mean", lambda value: value)
  monkeypatch.setattr(collective, "total", lambda value: 2 * value)
  out = standardise(torch.tensor([[1.0], [3.0]]))
  assert out.flatten().tolist() == pytest.approx([-0.86603, 0.86603], rel=1e-4)
  rows = standardise(torch.tensor([[1.0, 3.0], [10.0, 30.0]]), dims=(1,))
  assert rows.flatten().tolist() == pytest.approx([-0.86603, 0.86603] * 2, rel=1e-4)
