"""Learning rates, by hand."""

import pytest
import torch

from decap.rl.schedules import adaptive_rate, fixed_rate


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
