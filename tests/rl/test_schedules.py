"""Learning rates and p_max, by hand."""

import pytest
import torch

from decap.rl.schedules import adaptive_rate, fixed_rate, ramped


@pytest.mark.parametrize(
  "kl, factor",
  [
    *((0.021, 1 / 1.5), (0.02, 1.0)),  # Above twice 0.01, not at it.
    *((0.004, 1.5), (0.005, 1.0)),
    *((0.01, 1.0), (0.0, 1.0)),
  ],
)
def test_the_rate_follows_the_divergence(kl, factor):
  rate = adaptive_rate(torch.tensor(1e-3), torch.tensor(kl), 0.01)
  assert float(rate) == pytest.approx(1e-3 * factor)


def test_the_rate_stays_in_its_range():
  far, near = torch.tensor(1.0), torch.tensor(1e-6)
  assert float(adaptive_rate(torch.tensor(1.2e-5), far, 0.01)) == pytest.approx(1e-5)
  assert float(adaptive_rate(torch.tensor(9e-3), near, 0.01)) == pytest.approx(1e-2)


@pytest.mark.parametrize(
  "share, rate", [(0.0, 2.0), (0.5, 2.0), (0.75, 1.1), (1.0, 0.2)]
)
def test_a_fixed_rate_falls_linearly_from_the_middle_on(share, rate):
  assert fixed_rate(2.0, 0.1, share) == pytest.approx(rate)


@pytest.mark.parametrize(
  "share, p_max",
  # Half of the ramp: 1 / (20 + 0.5 · (4 − 20)) = 1/12.
  [(0.0, 0.05), (0.25, 1 / 12), (0.5, 0.25), (0.75, 0.25), (1.0, 0.25)],
)
def test_p_max_rises_linearly_in_expected_lifetime(share, p_max):
  now = ramped(torch.full((3,), 0.25), (0.2, 0.5), share)
  torch.testing.assert_close(now, torch.full((3,), p_max))
