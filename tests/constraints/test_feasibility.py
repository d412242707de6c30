import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decap.constraints import (
  AnnealedLimit,
  Feasibility,
  FeasibilityCfg,
  decap_probability,
)
from decap.constraints.feasibility import GUARD_ITERATIONS, RewardGuard


def test_cap_scales_the_population_to_the_budget():
  cap = Feasibility(FeasibilityCfg(budget=0.1))
  # Mean 0.5, so all are scaled by 0.1 / 0.5.
  scaled = cap.scale(torch.tensor([1.0, 0.5, 0.0]))
  torch.testing.assert_close(scaled, torch.tensor([0.2, 0.1, 0.0]))


def test_cap_follows_the_running_mean():
  cap = Feasibility(FeasibilityCfg(budget=0.1, decay=0.75))
  cap.scale(torch.tensor([0.8]))
  # 0.75 · 0.8 + 0.25 · 0.4 = 0.7; 0.4 · 0.1 / 0.7.
  scaled = cap.scale(torch.tensor([0.4]))
  torch.testing.assert_close(scaled, torch.tensor([0.4 * 0.1 / 0.7]))


def test_cap_is_the_identity_once_the_mean_is_within_the_budget():
  cap = Feasibility(FeasibilityCfg(budget=0.04, decay=0.9))
  cap.scale(torch.tensor([1.0, 1.0]))
  delta = torch.tensor([0.06, 0.0])  # mean 0.03
  assert not torch.equal(cap.scale(delta), delta)
  for _ in range(60):
    scaled = cap.scale(delta)
  assert torch.equal(scaled, delta)


def guarded(keep: float, *rewards: float) -> RewardGuard:
  """A guard that has heard one reward per iteration, long enough to count its best."""
  guard = RewardGuard(keep)
  for reward in rewards:
    for _ in range(GUARD_ITERATIONS * 20):
      guard.hear(torch.tensor([reward, reward]))
      guard.share()
  return guard


@pytest.mark.parametrize(
  ("rewards", "share"),
  [
    ((2.0,), 1.0),
    ((2.0, 1.9), 0.5),
    ((2.0, 1.8), 0.0),
    ((2.0, 0.0), 0.0),
    ((2.0, 1.8, 2.0), 1.0),
    ((2.0, 4.0), 1.0),
    ((0.0,), 1.0),
    ((-3.0,), 1.0),
    ((-3.0, -3.15), 0.5),
  ],
)
def test_a_guard_affords_less_as_the_reward_falls_below_its_best(rewards, share):
  guard = guarded(0.9, *rewards)
  guard.hear(torch.full((3,), rewards[-1]))
  assert guard.share() == pytest.approx(share, abs=1e-3)


def test_a_guard_does_not_count_how_episodes_start():
  guard = RewardGuard(0.9)
  for step in range(2 * GUARD_ITERATIONS):
    guard.hear(torch.ones(2) if step == 0 else 0.2 * torch.ones(2))
    share = guard.share()
  assert float(guard.best) < 0.25
  assert share > 0.0


def test_the_budget_is_what_the_guard_affords():
  cap = Feasibility(FeasibilityCfg(budget=0.1, keep=0.9))
  cap.guard = guarded(0.9, 2.0, 1.9)
  cap.guard.hear(torch.full((4,), 1.9))
  cap.between_iterations()
  ones = torch.ones(4)
  assert torch.allclose(cap.scale(ones), 0.05 * ones, atol=1e-4)
  # A policy that complies has the paper's probabilities, whatever it earns.
  cap.guard = guarded(0.9, 2.0, 0.0)
  cap.between_iterations()
  cap.mean.zero_()
  assert torch.equal(cap.scale(0.0 * ones), 0.0 * ones)


def test_cap_by_row_leaves_rows_within_the_budget_alone():
  cap = Feasibility(FeasibilityCfg(budget=0.1, scope="row"), num_rows=2)
  # Means 0.5 and 0.05: the first row is scaled by 0.1 / 0.5, the second not.
  scaled = cap.scale(torch.tensor([[1.0, 0.1], [0.0, 0.0]]))
  torch.testing.assert_close(scaled, torch.tensor([[0.2, 0.1], [0.0, 0.0]]))


def test_cap_of_a_population_without_violations_is_zero():
  cap = Feasibility(FeasibilityCfg())
  assert torch.equal(cap.scale(torch.zeros(4)), torch.zeros(4))


@given(
  st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=8),
  st.floats(0.01, 1.0),
)
def test_cap_only_lowers_and_stays_a_probability(steps, budget):
  cap = Feasibility(FeasibilityCfg(budget=budget, decay=0.5))
  for step in steps:
    delta = torch.tensor(step)
    scaled = cap.scale(delta)
    assert ((scaled >= 0) & (scaled <= delta)).all()


def test_annealed_limit_starts_below_the_policys_own_quantile():
  cfg = FeasibilityCfg(quantile=0.8, shrink=0.9)
  annealed = AnnealedLimit(torch.tensor([5.0, 5.0]), cfg)
  q = torch.tensor([[30.0, 1.0], [10.0, 2.0], [40.0, 3.0], [20.0, 4.0], [50.0, 4.5]])
  # Fourth of five: 40 → 0.9 · 40; the second joint complies: 0.9 · 4 < 5.
  torch.testing.assert_close(annealed.update(q), torch.tensor([36.0, 5.0]))


def test_annealed_limit_follows_the_average_of_the_quantile():
  cfg = FeasibilityCfg(decay=0.75, quantile=1.0, shrink=1.0)
  annealed = AnnealedLimit(torch.tensor([5.0]), cfg)
  annealed.update(torch.tensor([[40.0]]))
  # 0.75 · 40 + 0.25 · 20 = 35.
  effective = annealed.update(torch.tensor([[20.0]]))
  torch.testing.assert_close(effective, torch.tensor([35.0]))


def test_annealed_limit_is_the_limit_once_the_policy_complies():
  limit = torch.tensor([5.0, 20.0])
  cfg = FeasibilityCfg(quantile=0.9, decay=0.9)
  annealed = AnnealedLimit(limit, cfg)
  annealed.update(torch.full((10, 2), 100.0))
  q = torch.rand(10, 2) * limit
  for _ in range(60):
    effective = annealed.update(q)
  assert torch.equal(effective, limit)
  arguments = {"p_max": 0.5, "scale": 1.0, "rho": 0.7, "kappa": 2.0}
  assert torch.equal(
    decap_probability(q, effective, **arguments),
    decap_probability(q, limit, **arguments),
  )


def test_annealed_limit_ignores_a_quantile_that_is_not_finite():
  cfg = FeasibilityCfg(quantile=0.5, shrink=1.0)
  annealed = AnnealedLimit(torch.tensor([1.0]), cfg)
  bad = torch.tensor([[math.nan], [math.inf], [math.inf], [2.0]])
  assert annealed.update(bad).item() == 1.0
  # Half of the batch is finite: the median is the second of four.
  assert annealed.update(torch.tensor([[8.0], [3.0], [math.nan], [math.inf]])) == 8.0


def test_annealed_limit_follows_a_limit_changed_in_place():
  limit = torch.tensor([5.0])
  annealed = AnnealedLimit(limit, FeasibilityCfg(quantile=0.9))
  limit.fill_(7.0)
  assert annealed.update(torch.ones(4, 1)).item() == 7.0


def test_state_is_written_in_place():
  cap = Feasibility(FeasibilityCfg())
  annealed = AnnealedLimit(torch.ones(2), FeasibilityCfg(quantile=0.9))
  state = (cap.mean, cap.gain, annealed.average, annealed.gain)
  cap.scale(torch.ones(3))
  annealed.update(torch.full((3, 2), 9.0))
  assert cap.mean is state[0] and cap.gain is state[1]
  assert annealed.average is state[2] and annealed.gain is state[3]
  assert cap.mean.item() == 1.0 and annealed.average.tolist() == [9.0, 9.0]


@pytest.mark.parametrize(
  ("field", "value"),
  [
    ("scope", "none"),
    ("decay", 1.0),
    ("budget", 0.0),
    ("keep", 1.0),
    ("quantile", 0.0),
    ("quantile", 1.1),
    ("shrink", math.nan),
  ],
)
def test_config_refuses_impossible_values(field, value):
  with pytest.raises(ValueError, match=field):
    FeasibilityCfg(**{field: value})
