"""The figure of docs/methods.md: points of its curves by hand."""

import math
import sys
from pathlib import Path

import pytest

# No package; last, since it has a site.py.
sys.path.append(str(Path(__file__).parents[1] / "docs" / "tools"))

from barrier import barrier_figure


def _curves(axes) -> dict[str, tuple]:
  return {
    line.get_label(): line.get_data()
    for line in axes.get_lines()
    if not line.get_label().startswith("_")
  }


def _at(curve, x: float) -> float:
  """Value of the point that is nearest to x."""
  xs, ys = curve
  return float(min(zip(xs, ys, strict=True), key=lambda point: abs(point[0] - x))[1])


def test_curves_are_the_papers():
  left, right = barrier_figure().axes
  barriers, deltas = _curves(left), _curves(right)
  # Halfway through the barrier, at ĉ = 0.85, u = 0.5.
  for kappa in (2, 3, 6):
    phi = barriers[f"soft barrier φ, κ = {kappa}"]
    assert _at(phi, 0.85) == pytest.approx(1 - 0.5**kappa, abs=1e-3)
    assert _at(phi, 0.65) == 0.0 and _at(phi, 1.05) == 1.0
  log_barrier = barriers["log barrier −log(1 − u)"]
  assert _at(log_barrier, 0.85) == pytest.approx(math.log(2), abs=1e-3)
  assert max(log_barrier[0]) < 1.0
  # Halfway to a violation of c̄ = 0.2: clip(c/c̄) = 0.5.
  upper = deltas["DeCap, upper: p_max = 0.5"]
  lower = deltas["DeCap, lower: p_max = 0.25"]
  bare, cat = deltas["lower, without barrier"], deltas["CaT, p_max = 0.25"]
  assert _at(upper, 0.85) == pytest.approx(0.75 * 0.5, abs=1e-3)
  assert _at(upper, 1.1) == pytest.approx(0.5 + 0.5 * 0.5, abs=2e-3)
  assert _at(lower, 1.1) == pytest.approx(0.25 + 0.75 * 0.5, abs=2e-3)
  assert _at(bare, 0.85) == 0.0 and _at(bare, 1.1) == _at(lower, 1.1)
  assert _at(cat, 0.85) == 0.0
  assert _at(cat, 1.1) == pytest.approx(0.5 * 0.25, abs=1e-3)
