import math

import pytest
import torch

from decap.constraints import (
  TerminationCfg,
  ViolationScale,
  barrier,
  cat_probability,
  decap_probability,
)

INF, NAN = math.inf, math.nan


def delta(q, limit=10.0, p_max=0.5, scale=4.0, rho=0.7, kappa=2.0, barrier=True):
  q = torch.as_tensor(q, dtype=torch.float32)
  return decap_probability(
    q, limit, p_max, scale, rho=rho, kappa=kappa, barrier=barrier
  )


def test_barrier_by_hand():
  # u = (0.85 − 0.7) / 0.3 = 0.5, φ = 1 − 0.5² = 0.75; u(0.76) = 0.2, φ = 0.36.
  phi = barrier(torch.tensor([0.0, 0.7, 0.76, 0.85, 1.0, 5.0]), rho=0.7, kappa=2.0)
  torch.testing.assert_close(phi, torch.tensor([0.0, 0.0, 0.36, 0.75, 1.0, 1.0]))


def test_barrier_is_the_saturated_log_barrier():
  u = torch.linspace(0.0, 0.99, 50, dtype=torch.float64)
  log_barrier = -torch.log(1.0 - u)
  expected = 1.0 - torch.exp(-3.0 * log_barrier)
  torch.testing.assert_close(barrier(0.6 + 0.4 * u, rho=0.6, kappa=3.0), expected)


@pytest.mark.parametrize("rho", [0.5, 0.7, 0.9])
@pytest.mark.parametrize("kappa", [1.0, 2.0, 3.0, 6.0])
def test_the_barriers_slope_is_that_of_equation_3(rho, kappa):
  c_hat = torch.linspace(rho + 1e-3, 1.0 - 1e-3, 40, dtype=torch.float64)
  c_hat.requires_grad_()
  (gradient,) = torch.autograd.grad(barrier(c_hat, rho, kappa).sum(), c_hat)
  u = (c_hat - rho) / (1.0 - rho)
  slope = kappa * (1.0 - u) ** (kappa - 1.0) / (1.0 - rho)
  torch.testing.assert_close(gradient, slope)


def test_probability_by_hand():
  # ε = 10, p_max = 0.5, c̄ = 4. ĉ = 0.85: 0.75 · 0.5. q = 12: 0.5 + 0.5 · 2/4.
  got = delta([0.0, 6.9, 8.5, 10.0, 12.0, 14.0, 99.0])
  expected = torch.tensor([0.0, 0.0, 0.375, 0.5, 0.75, 1.0, 1.0])
  torch.testing.assert_close(got, expected)


def test_probability_with_limits_per_joint():
  q = torch.tensor([[5.0, 17.0], [4.25, 30.0]])
  limit, p_max = torch.tensor([5.0, 20.0]), torch.tensor([0.5, 0.25])
  scale = torch.tensor([1.0, 20.0])
  got = decap_probability(q, limit, p_max, scale, rho=0.7, kappa=2.0)
  # 17/20 = 4.25/5 = 0.85: φ = 0.75. q = 30: 0.25 + 0.75 · 10/20.
  expected = torch.tensor([[0.5, 0.1875], [0.375, 0.625]])
  torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(
  ("rho", "kappa", "expected"),
  [
    (0.7, 3.0, 0.4375),  # u = 0.5: (1 − 0.5³) / 2
    (0.7, 6.0, 0.4921875),  # u = 0.5: (1 − 0.5⁶) / 2
    (0.9, 2.0, 0.0),  # 0.85 is below the onset
    (0.5, 2.0, 0.455),  # u = 0.7: (1 − 0.3²) / 2
  ],
)
def test_kappa_and_rho_variants(rho, kappa, expected):
  got = delta([8.5], rho=rho, kappa=kappa)
  torch.testing.assert_close(got, torch.tensor([expected]))


def test_zero_below_rho_and_continuous_at_it():
  onset = torch.tensor(7.0)
  below = torch.nextafter(onset, torch.tensor(0.0))
  assert delta(torch.stack([below * 0.5, below])).tolist() == [0.0, 0.0]
  assert 0.0 <= delta(onset + 1e-4).item() < 1e-4


def test_reaches_p_max_from_below_at_the_limit():
  just_below = delta([9.0, 9.9, 9.99, 9.999])
  assert (just_below.diff() > 0).all()
  assert (just_below < 0.5).all()
  torch.testing.assert_close(just_below[-1], torch.tensor(0.5), atol=1e-5, rtol=0)
  assert delta([10.0]).item() == 0.5


def test_without_barrier_nothing_happens_below_the_limit():
  q = torch.tensor([0.0, 8.5, 9.999, 10.0, 12.0])
  got = delta(q, barrier=False)
  torch.testing.assert_close(got, torch.tensor([0.0, 0.0, 0.0, 0.5, 0.75]))
  assert torch.equal(got[3:], delta(q[3:]))


def test_cat_rule_starts_from_zero_at_the_limit():
  q = torch.tensor([9.0, 10.0, 11.0, 14.0, 99.0])
  got = cat_probability(q, limit=10.0, p_max=0.25, scale=4.0)
  torch.testing.assert_close(got, torch.tensor([0.0, 0.0, 0.0625, 0.25, 0.25]))


@pytest.mark.parametrize("q", [INF, -INF, NAN])
def test_non_finite_quantities_give_one(q):
  assert delta([q]).item() == 1.0
  assert delta([q], barrier=False).item() == 1.0
  assert cat_probability(torch.tensor([q]), 10.0, 0.25, 4.0).item() == 1.0


def scale_of(joints=2, floor=0.1, decay=0.95):
  return ViolationScale((joints,), floor=torch.full((joints,), floor), decay=decay)


def test_scale_is_seeded_with_the_first_batch_and_then_averaged():
  scale = scale_of()
  scale.update(torch.tensor([[4.0, -1.0], [2.0, 1.0]]))
  torch.testing.assert_close(scale.value, torch.tensor([4.0, 1.0]))
  scale.update(torch.tensor([[8.0, -1.0], [2.0, 3.0]]))
  # 0.95 · 4 + 0.05 · 8 = 4.2 and 0.95 · 1 + 0.05 · 3 = 1.1.
  torch.testing.assert_close(scale.value, torch.tensor([4.2, 1.1]))


def test_floor_is_applied_before_the_average():
  scale = scale_of(joints=1, floor=0.1)
  scale.update(torch.tensor([[2.0]]))
  scale.update(torch.tensor([[-5.0]]))
  # The batch counts as 0.1: 0.95 · 2 + 0.05 · 0.1.
  torch.testing.assert_close(scale.value, torch.tensor([1.905]))


def test_batches_without_violation_seed_with_the_floor():
  scale = scale_of()
  scale.update(torch.zeros(3, 2))
  scale.update(torch.full((3, 2), -7.0))
  torch.testing.assert_close(scale.value, torch.tensor([0.1, 0.1]))


def test_non_finite_violations_never_enter_the_scale():
  scale = scale_of()
  scale.update(torch.tensor([[INF, NAN], [3.0, NAN], [NAN, -INF]]))
  # The second joint had nothing finite: its next batch is its first.
  torch.testing.assert_close(scale.value, torch.tensor([3.0, 0.1]))
  scale.update(torch.tensor([[INF, 5.0]]))
  torch.testing.assert_close(scale.value, torch.tensor([3.0, 5.0]))


def test_scale_is_updated_in_place():
  scale = scale_of()
  value, gain = scale.value, scale.gain
  scale.update(torch.ones(1, 2))
  assert scale.value is value and scale.gain is gain
  assert value.tolist() == [1.0, 1.0]


def test_scale_of_a_scalar_constraint():
  scale = ViolationScale((), floor=torch.tensor(0.01))
  scale.update(torch.tensor([0.2, 0.5]))
  assert scale.value.item() == 0.5


@pytest.mark.parametrize("floor", [0.0, -1.0, NAN, INF])
def test_scale_refuses_a_floor_that_could_divide_by_zero(floor):
  with pytest.raises(ValueError, match="floor"):
    scale_of(floor=floor)


def test_floor_is_a_share_of_the_limit_or_absolute():
  limit = torch.tensor([5.0, 20.0])
  torch.testing.assert_close(TerminationCfg().floor(limit), torch.tensor([0.05, 0.2]))
  exact = TerminationCfg(scale_floor_abs=1e-6).floor(limit)
  torch.testing.assert_close(exact, torch.tensor([1e-6, 1e-6]))


def test_config_defaults_are_the_papers():
  cfg = TerminationCfg()
  assert (cfg.rule, cfg.rho, cfg.kappa, cfg.barrier) == ("decap", 0.7, 2.0, True)
  assert (cfg.scale_decay, cfg.scale_floor, cfg.scale_floor_abs) == (0.95, 0.01, None)


@pytest.mark.parametrize(
  ("field", "value"),
  [
    ("rule", "ppo"),
    ("rho", 0.0),
    ("rho", 1.0),
    ("rho", NAN),
    ("kappa", 0.0),
    ("scale_decay", 1.0),
    ("scale_decay", -0.1),
    ("scale_floor", 0.0),
    ("scale_floor_abs", 0.0),
  ],
)
def test_config_refuses_impossible_values(field, value):
  with pytest.raises(ValueError, match=field):
    TerminationCfg(**{field: value})


def test_config_takes_its_bounds():
  TerminationCfg(scale_decay=0.0, kappa=0.5, rho=0.01, scale_floor=0.5)
  TerminationCfg(rho=0.99, scale_floor_abs=0.5)


def test_one_bad_floor_of_several_is_refused():
  with pytest.raises(ValueError, match="floor"):
    ViolationScale((2,), floor=torch.tensor([1.0, 0.0]))
