"""Figures of methods and seeds: every point is where its numbers say."""

import copy
import sys
from pathlib import Path

import numpy as np
import pytest

from decap.evaluation.results import Result
from decap.evaluation.tables import MethodResults
from tests.evaluation.synthetic import make_trajectory, metrics_of_trajectory

# No package; last, since it has a site.py.
sys.path.append(str(Path(__file__).parents[1] / "docs" / "tools"))

from paper_figures import learning_curves, mean_line, trade_off


@pytest.fixture(scope="module")
def template():
  trajectory = make_trajectory()
  metrics = metrics_of_trajectory(trajectory)
  metrics["gait"] = {}
  metrics["falls_per_minute"]["mean"] = 0.0
  return Result({}, trajectory.protocol, trajectory.layout, metrics)


def method(template, label, points):
  """Seeds with what they follow and their acceleration, the same in both groups."""
  results = []
  for followed, rough in points:
    result = copy.deepcopy(template)
    result.metrics["tracking"]["followed"] = {"mean": followed}
    for group in ("upper", "lower"):
      result.metrics["smoothness"][group]["joint_acc"] = {"mean": rough}
    results.append(result)
  return MethodResults(label, results)


def points(ax) -> dict[str, list[tuple[float, float]]]:
  return {
    line.get_label(): [tuple(p) for p in line.get_xydata().tolist()]
    for line in ax.lines
    if line.get_linestyle() == "None"
  }


def test_large_points_are_means_and_small_ones_seeds(template):
  walks = method(template, "walks", [(0.9, 2.0), (1.0, 4.0)])
  stands = method(template, "stands", [(0.3, 1.0)])
  fig = trade_off([walks, stands])
  assert [ax.get_title(loc="left") for ax in fig.axes] == ["upper body", "lower body"]
  for ax in fig.axes:
    found = points(ax)
    assert found["walks"] == [pytest.approx((95.0, 3.0))]
    assert found["stands [stands]"] == [pytest.approx((30.0, 1.0))]
    (seeds,) = [line for name, line in found.items() if name.startswith("_")]
    assert seeds == [pytest.approx((90.0, 2.0)), pytest.approx((100.0, 4.0))]
    hollow = {line.get_label(): line.get_markerfacecolor() for line in ax.lines}
    assert hollow["stands [stands]"] == "white" != hollow["walks"]
    low, high = ax.get_ylim()
    assert high / low >= 12.0 - 1e-9


def test_a_method_looks_alike_in_all_figures(template):
  walks = method(template, "walks", [(0.9, 2.0)])
  again = [method(template, f"again {i}", [(0.9, 3.0)]) for i in range(3)]
  for m in (walks, *again):
    m.results[0].policy = {"method": "decap"}
  first = method(template, "first", [(0.9, 3.0)])
  first.results[0].policy = {"method": "whole-body-rl"}
  nobody = method(template, "nobody", [(0.9, 4.0)])
  axes = trade_off([first, walks, *again, nobody]).axes
  colours = {line.get_label(): line.get_color() for line in axes[0].lines}
  assert len({colours[m.label] for m in (first, walks, *again, nobody)}) == 6
  curve = {
    "samples": np.array([1.0, 2.0]),
    "seconds": np.array([1.0, 2.0]),
    "followed_fast": np.array([0.5, 0.5]),
  }
  (line,) = learning_curves({"DeCap": [curve]}).axes[0].lines
  assert line.get_color() == colours["walks"]


def test_seeds_that_end_early_end_the_mean():
  long = (np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0, 3.0]))
  short = (np.array([0.5, 2.5]), np.array([5.0, 5.0]))
  x, y = mean_line([long, short])
  assert x.tolist() == [1.0, 2.0]
  assert y.tolist() == [3.0, 3.5]


def test_curves_are_shown_over_samples_and_over_minutes():
  curve = {
    "samples": np.array([1e6, 2e6]),
    "seconds": np.array([60.0, 180.0]),
    "followed_fast": np.array([0.2, 0.4]),
    "followed_slow": np.array([0.4, 0.8]),
  }
  other = {
    **curve,
    "violation_joint_acc_upper": np.array([0.5, 0.25]),
    "delta": np.array([0.5, 0.2]),
    "delta_applied": np.array([0.005, 0.001]),
  }
  fig = learning_curves({"a": [curve], "b": [other, other]})
  axes = np.array(fig.axes).reshape(3, 2)
  for ax, x in zip(axes[0], ([1.0, 2.0], [1.0, 3.0]), strict=True):
    (line,) = [line for line in ax.lines if line.get_label() == "a"]
    np.testing.assert_allclose(line.get_xdata(), x)
    np.testing.assert_allclose(line.get_ydata(), [30.0, 60.0])
  # Two thin lines and their mean; the other method did not log it.
  assert [line.get_label() for line in axes[1, 0].lines][-1] == "b"
  assert len(axes[1, 0].lines) == 3
  np.testing.assert_allclose(axes[1, 0].lines[-1].get_ydata(), [50.0, 25.0])
  assert len(axes[2, 0].lines) == 3
  np.testing.assert_allclose(axes[2, 0].lines[-1].get_ydata(), [1.0, 0.5])
