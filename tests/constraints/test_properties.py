"""Properties that hold for any limits, shapes and values, infinities and NaN included."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from decap.constraints import ViolationScale, cat_probability, decap_probability

any_float = st.floats(width=32)
positive = st.floats(2.0**-20, 2.0**20, width=32)
share = st.floats(2.0**-7, 1.0 - 2.0**-7, width=32)


@st.composite
def problems(draw, values=any_float):
  """A batch of quantities with limits, p_max and scales per joint, and ρ and κ."""
  batch, joints = draw(st.integers(1, 5)), draw(st.integers(1, 4))

  def vector(elements, size):
    return torch.tensor(draw(st.lists(elements, min_size=size, max_size=size)))

  return {
    "q": vector(values, batch * joints).reshape(batch, joints),
    "limit": vector(positive, joints),
    "p_max": vector(share, joints),
    "scale": vector(positive, joints),
    "rho": draw(share),
    "kappa": draw(st.floats(0.25, 8.0)),
    "barrier": draw(st.booleans()),
  }


def core(problem):
  return {k: problem[k] for k in ("q", "limit", "p_max", "scale")}


@given(problems())
def test_probabilities_stay_in_the_unit_interval(problem):
  for delta in (decap_probability(**problem), cat_probability(**core(problem))):
    assert delta.shape == problem["q"].shape
    assert ((delta >= 0) & (delta <= 1)).all()
    assert (delta[~problem["q"].isfinite()] == 1).all()


@given(problems())
def test_regions_of_the_probability(problem):
  q, limit = problem["q"], problem["limit"]
  p_max = problem["p_max"].expand_as(q)
  delta = decap_probability(**problem)
  finite = q.isfinite()
  assert (delta[finite & (q / limit < problem["rho"])] == 0).all()
  below, above = finite & (q < limit), finite & (q >= limit)
  assert (delta[below] <= p_max[below]).all()
  assert (delta[above] >= p_max[above]).all()


@given(problems())
def test_the_limit_itself_gives_p_max(problem):
  problem["q"] = problem["limit"].expand_as(problem["q"])
  delta = decap_probability(**problem)
  assert torch.equal(delta, problem["p_max"].expand_as(delta))


@given(problems(), st.lists(st.floats(0.0, 4.0), min_size=2, max_size=40))
def test_probability_is_monotone_in_the_quantity(problem, c_hat):
  """Around the limit, where it moves; extreme values are in the unit interval test."""
  problem["q"] = torch.tensor(sorted(c_hat))[:, None] * problem["limit"]
  # Powers and interpolation are monotone up to their rounding in float32.
  assert (decap_probability(**problem).diff(dim=0) >= -1e-6).all()
  problem["kappa"] = 2.0
  assert (decap_probability(**problem).diff(dim=0) >= -(2.0**-24)).all()
  assert (cat_probability(**core(problem)).diff(dim=0) >= 0).all()


@given(problems())
def test_the_barrier_only_adds(problem):
  with_barrier = decap_probability(**{**problem, "barrier": True})
  without = decap_probability(**{**problem, "barrier": False})
  assert (with_barrier >= without).all()


@given(st.lists(problems(), min_size=1, max_size=4), positive)
def test_scale_is_a_finite_mean_of_what_entered_it(batches, floor):
  joints = batches[0]["q"].shape[1]
  scale = ViolationScale((joints,), floor=torch.full((joints,), floor))
  largest = torch.full((joints,), floor)
  for problem in batches:
    violation = problem["q"][:, :1].expand(-1, joints)
    scale.update(violation)
    finite = violation.masked_fill(~violation.isfinite(), -torch.inf)
    largest = torch.maximum(largest, finite.amax(0))
    assert scale.value.isfinite().all()
    tolerance = 1e-6 * largest
    assert (scale.value >= scale.floor - tolerance).all()
    assert (scale.value <= largest + tolerance).all()
