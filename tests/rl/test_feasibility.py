"""How much of the constraints is applied while a policy does not comply."""

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decap.constraints import BodyGroupCfg, Composition, decap_probability
from decap.rl.config import FeasibilityCfg
from decap.rl.feasibility import AnnealedLimit, Feasibility
from decap.rl.progress import Progress
from decap.testing import waits


def composition(limit: float = 10.0) -> Composition:
  groups = {"all": BodyGroupCfg((".*",), p_max=0.5)}
  return Composition({"rate": {"all": limit}}, groups, ("a", "b"))


def cap(budget: float, decay: float = 0.99) -> Feasibility:
  """A budget that stays, and limits as they are."""
  cfg = FeasibilityCfg(budget=budget, decay=decay, target=None, quantile=None)
  return Feasibility(cfg, composition())


def spend(
  aid: Feasibility, beyond: Sequence[float] = (), below: Sequence[float] = ()
) -> torch.Tensor:
  """What is applied of these δ̄, at steps beyond the limit of 10 and below it."""
  q = torch.tensor([[11.0, 0.0]] * len(beyond) + [[9.0, 9.9]] * len(below))
  return aid.apply({"rate": q}, torch.tensor([*beyond, *below]))


def test_the_population_is_scaled_to_the_budget():
  # Mean 0.5, so all are scaled by 0.1 / 0.5.
  scaled = spend(cap(0.1), beyond=[1.0, 0.5, 0.0])
  torch.testing.assert_close(scaled, torch.tensor([0.2, 0.1, 0.0]))
  scaled = spend(cap(0.1), below=[1.0, 0.5, 0.0])
  torch.testing.assert_close(scaled, torch.tensor([0.2, 0.1, 0.0]))


def test_the_barrier_gets_what_violations_leave():
  # Violations have a mean of 0.8 / 4 = 0.2, the barrier of 0.4 / 4 = 0.1.
  delta = {"beyond": [0.8, 0.0], "below": [0.4, 0.0]}
  for budget, expected in (
    (0.1, [0.4, 0.0, 0.0, 0.0]),
    (0.2, [0.8, 0.0, 0.0, 0.0]),
    (0.25, [0.8, 0.0, 0.2, 0.0]),
    (0.3, [0.8, 0.0, 0.4, 0.0]),
    (1.0, [0.8, 0.0, 0.4, 0.0]),
  ):
    aid = cap(budget)
    scaled = spend(aid, **delta)
    torch.testing.assert_close(scaled, torch.tensor(expected))
    shown = float(aid.metrics()["Constraint/barrier_applied"])
    assert shown == pytest.approx(expected[2] / 0.4, abs=1e-6)


def test_the_limit_itself_and_what_is_no_number_are_beyond_it():
  aid = cap(0.1)
  q = torch.tensor([[10.0, 0.0], [0.0, math.nan], [9.9, 9.9]])
  scaled = aid.apply({"rate": q}, torch.tensor([0.5, 1.0, 0.5]))
  torch.testing.assert_close(scaled, torch.tensor([0.1, 0.2, 0.0]))


def test_the_mean_is_a_running_one():
  aid = cap(0.1, decay=0.75)
  spend(aid, beyond=[0.8])
  # 0.75 · 0.8 + 0.25 · 0.4 = 0.7; 0.4 · 0.1 / 0.7.
  scaled = spend(aid, beyond=[0.4])
  torch.testing.assert_close(scaled, torch.tensor([0.4 * 0.1 / 0.7]))


def test_a_population_within_the_budget_has_the_papers_probabilities():
  aid = cap(0.04, decay=0.9)
  spend(aid, beyond=[1.0], below=[1.0])
  delta = {"beyond": [0.06], "below": [0.01]}  # mean 0.035
  whole = torch.tensor([0.06, 0.01])
  assert not torch.equal(spend(aid, **delta), whole)
  for _ in range(60):
    scaled = spend(aid, **delta)
  assert torch.equal(scaled, whole)
  assert torch.equal(spend(cap(0.04), below=[0.0, 0.0]), torch.zeros(2))
  assert cap(0.04).shares.tolist() == [1.0, 1.0]


@given(
  st.lists(st.lists(st.floats(0, 1), min_size=4, max_size=4), min_size=1, max_size=8),
  st.floats(0.01, 1.0),
)
def test_the_aid_only_lowers_and_gives_probabilities(steps, budget):
  aid = cap(budget, decay=0.5)
  for step in steps:
    scaled = spend(aid, beyond=step[:2], below=step[2:])
    assert ((scaled >= 0) & (scaled <= torch.tensor(step))).all()


def test_what_is_applied_comes_from_annealed_limits():
  cfg = FeasibilityCfg(budget=1.0, target=None, quantile=0.5, shrink=1.0)
  aid = Feasibility(cfg, composition())
  q = torch.zeros(4, 2)
  q[:, 0] = torch.tensor([40.0, 40.0, 40.0, 80.0])
  # The limit is the median, 40: at it δ is p_max, and the largest violation gives 1.
  applied = aid.apply({"rate": q}, torch.ones(4))
  torch.testing.assert_close(applied, torch.tensor([0.5, 0.5, 0.5, 1.0]))
  assert aid.composition.limit.tolist() == [10.0, 10.0]


def achieving(
  *values: float, best: float = 1.0, steady: bool = True, first: str = "band 0"
) -> Progress:
  progress = Progress([first, *(f"band {i}" for i in range(1, len(values) - 1))])
  progress.average[:, 0] = torch.tensor(values)
  progress.average[:, 1] = 1.0
  progress.best.fill_(best)
  progress.steady_iterations.fill_(float(steady))
  return progress


@pytest.mark.parametrize(
  ("progress", "factor"),
  [
    (achieving(1.0, 1.0), math.exp(0.1)),  # At least 0.05 above 0.9: full rate.
    (achieving(0.9, 0.9), 1.0),
    (achieving(0.925, 0.925), math.exp(0.05)),  # Half of the tolerance.
    (achieving(0.875, 0.875), math.exp(-0.15)),  # Three times as fast down.
    (achieving(0.0, 0.0), math.exp(-0.3)),
    # The weakest decides.
    (achieving(1.0, 0.0), math.exp(-0.3)),
    (achieving(1.0, 1.0, 0.9), 1.0),
    # Gentle steps may differ from the clock.
    (achieving(0.0, 0.9, 0.9, first="stepping"), 1.0),
    # Where 0.6 was the best, 0.95 · 0.6 = 0.57 is the target.
    (achieving(0.57, 0.57, best=0.6), 1.0),
    (achieving(0.62, 0.62, best=0.6), math.exp(0.1)),
    (achieving(1.0, 1.0, steady=False), 1.0),
    (achieving(0.0, 0.0, steady=False), 1.0),
  ],
)
def test_the_budget_moves_by_what_robots_achieve(progress, factor):
  cfg = FeasibilityCfg(budget=0.1, rate=0.1, quantile=None, target=0.9, keep=0.95)
  aid = Feasibility(cfg, composition())
  aid.between_iterations(progress)
  assert float(aid.budget) == pytest.approx(0.1 * factor, rel=1e-4)
  assert float(aid.metrics()["Constraint/budget"]) == float(aid.budget)
  stays = Feasibility(FeasibilityCfg(budget=0.1, target=None), composition())
  stays.between_iterations(progress)
  assert stays.budget == torch.tensor(0.1)


def test_what_is_never_asked_does_not_hold_the_budget_down():
  cfg = FeasibilityCfg(budget=0.1, rate=0.1, quantile=None, target=0.9, keep=0.95)
  progress = achieving(1.0, 0.0, 1.0)  # A task that is never told to go sideways.
  progress.average[1] = 0.0
  progress.best[1] = 0.0
  aid = Feasibility(cfg, composition())
  aid.between_iterations(progress)
  assert float(aid.budget) == pytest.approx(0.1 * math.exp(0.1), rel=1e-4)


def test_the_budget_stays_within_its_bounds():
  cfg = FeasibilityCfg(budget=0.1, budget_range=(0.02, 0.3), rate=0.5)
  aid = Feasibility(cfg, composition())
  for progress, bound in ((achieving(1.0), 0.3), (achieving(0.0), 0.02)):
    for _ in range(20):
      aid.between_iterations(progress)
    assert float(aid.budget) == pytest.approx(bound)


def test_a_limit_changed_in_place_changes_what_counts_as_a_violation():
  aid = Feasibility(FeasibilityCfg(), composition(limit=10.0))
  assert aid.scale.floor.tolist() == pytest.approx([0.1, 0.1])
  aid.composition.set_limit("rate/all", 20.0)
  aid.between_iterations(Progress(()))
  assert aid.scale.floor.tolist() == pytest.approx([0.2, 0.2])


def test_limits_start_below_the_policys_own_quantile():
  cfg = FeasibilityCfg(quantile=0.8, shrink=0.9)
  annealed = AnnealedLimit(torch.tensor([5.0, 5.0]), cfg)
  q = torch.tensor([[30.0, 1.0], [10.0, 2.0], [40.0, 3.0], [20.0, 4.0], [50.0, 4.5]])
  # Fourth of five: 40 → 0.9 · 40; the second joint complies: 0.9 · 4 < 5.
  torch.testing.assert_close(annealed.update(q), torch.tensor([36.0, 5.0]))


@pytest.mark.parametrize(
  ("quantile", "expected"),
  [
    (0.05, 1.0),  # The lowest: there is no sample number 0.
    (0.25, 2.0),  # 0.25 · 5 = 1.25, so the second, which 25 % are not above.
    (0.5, 3.0),
    (0.79, 4.0),
    (0.81, 5.0),
    (1.0, 5.0),
  ],
)
def test_a_quantile_is_the_least_sample_that_reaches_its_share(quantile, expected):
  annealed = AnnealedLimit(
    torch.tensor([0.5]), FeasibilityCfg(quantile=quantile, shrink=1.0)
  )
  q = torch.tensor([[4.0], [1.0], [5.0], [3.0], [2.0]])
  assert annealed.update(q).tolist() == [expected]


def test_limits_follow_the_average_of_the_quantile():
  cfg = FeasibilityCfg(decay=0.75, quantile=1.0, shrink=1.0)
  annealed = AnnealedLimit(torch.tensor([5.0]), cfg)
  annealed.update(torch.tensor([[40.0]]))
  # 0.75 · 40 + 0.25 · 20 = 35.
  effective = annealed.update(torch.tensor([[20.0]]))
  torch.testing.assert_close(effective, torch.tensor([35.0]))


def test_limits_are_themselves_once_the_policy_complies():
  limit = torch.tensor([5.0, 20.0])
  annealed = AnnealedLimit(limit, FeasibilityCfg(quantile=0.9, decay=0.9))
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


def test_a_quantile_that_is_not_finite_is_left_out():
  cfg = FeasibilityCfg(quantile=0.5, shrink=1.0)
  annealed = AnnealedLimit(torch.tensor([1.0]), cfg)
  bad = torch.tensor([[math.nan], [math.inf], [math.inf], [2.0]])
  assert annealed.update(bad).item() == 1.0
  # Half of the batch is finite: the median is the second of four.
  assert annealed.update(torch.tensor([[8.0], [3.0], [math.nan], [math.inf]])) == 8.0


def test_the_state_survives_bit_for_bit_and_nothing_waits():
  def step(aid: Feasibility, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    q = 30.0 * torch.rand(16, 2, generator=generator)
    delta = torch.rand(16, generator=generator)
    out = []
    assert waits(lambda: out.append(aid.apply({"rate": q}, delta))) == []
    return out[0]

  first = Feasibility(FeasibilityCfg(), composition())
  for seed in range(5):
    step(first, seed)
    first.between_iterations(achieving(1.0, 0.8))
  second = Feasibility(FeasibilityCfg(), composition())
  tensors = second.state_dict()
  second.load_state_dict({k: v.clone() for k, v in first.state_dict().items()})
  assert torch.equal(step(first, 9), step(second, 9))
  for name, value in second.state_dict().items():
    assert torch.equal(value, first.state_dict()[name]), name
    assert value is tensors[name]


def test_a_state_with_one_mean_for_all_steps_loads():
  aid = cap(0.1)
  aid.load_state_dict({**aid.state_dict(), "mean": torch.tensor(0.3)})
  assert aid.mean.tolist() == pytest.approx([0.3, 0.3])


@pytest.mark.parametrize(
  ("field", "value"),
  [
    ("decay", 1.0),
    ("budget", 0.0),
    ("budget", 1.5),
    ("budget_range", (0.01, 1.0)),  # Above the default budget.
    ("target", 1.1),
    ("keep", 0.0),
    ("tolerance", 0.0),
    ("rate", -1.0),
    ("quantile", 0.0),
    ("quantile", 1.1),
    ("shrink", math.nan),
  ],
)
def test_impossible_values_are_refused(field, value):
  with pytest.raises(ValueError, match=field):
    FeasibilityCfg(**{field: value})


def test_the_worst_row_decides_and_not_the_best():
  groups = {"a": BodyGroupCfg(("a",), 0.5), "b": BodyGroupCfg(("b",), 0.5)}
  rows = Composition({"rate": {"a": 10.0, "b": 10.0}}, groups, ("a", "b"))
  cfg = FeasibilityCfg(budget=1.0, target=None, quantile=0.5, shrink=1.0)
  quantities = {"rate": torch.tensor([[10.0, 0.0], [10.0, 0.0]])}
  applied = Feasibility(cfg, rows).apply(quantities, torch.zeros(2))
  assert applied.tolist() == pytest.approx([0.5, 0.5])


def test_many_environments_are_sampled_evenly():
  """Of three times 512, every third: 0, 3, 6, …"""
  cfg = FeasibilityCfg(quantile=1.0, shrink=1.0)
  annealed = AnnealedLimit(torch.tensor([1.0]), cfg)
  q = torch.arange(3.0 * 512).unsqueeze(1)
  assert annealed.update(q).tolist() == [3.0 * 511]
