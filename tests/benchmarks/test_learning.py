"""Learning curves of both loops, on a few environments."""

import pytest

from benchmarks import learning
from benchmarks.cases import LEARNING
from benchmarks.figures import draw
from benchmarks.report import Report, Settings


def test_both_loops_train_and_are_compared(tmp_path):
  rows = [
    {"case": case, "num_envs": 4, **learning.measure(case, Settings(4, iterations=2))}
    for case in LEARNING.cases
  ]
  for row in rows:
    assert row["seed"] == 1 and row["samples"] == [96, 192]
    assert len(row["reward"]) == len(row["ended"]) == 2
  # The same task and σ: rewards of the first rollouts are alike, not equal.
  stock, ours = rows
  assert stock["reward"] != ours["reward"]
  assert abs(stock["reward"][0] - ours["reward"][0]) < 0.1
  draw(Report(LEARNING, {"task": "g1-flat"}, rows), tmp_path / "curves.png")
  assert (tmp_path / "curves.png").stat().st_size > 1000


def test_ends_of_curves_are_compared_over_seeds():
  # Ten iterations: the last one counts.
  curves = [{"samples": [10, 20], "reward": [0.0] * 9 + [x]} for x in (0.1, 0.3)]
  rows = [{"case": "ours", **curve, "ended": [0.0, 0.5]} for curve in curves]
  rows.insert(1, {"case": "ours", "error": "ValueError: no"})
  first, broken, second = learning.with_ends(rows)
  assert first["reward_end"] == first["mean"] == 0.1 and first["deviation"] is None
  assert broken == rows[1]
  assert second["mean"] == pytest.approx(0.2)
  # Both are 0.1 from it: √(2 · 0.01 / 1).
  assert second["deviation"] == pytest.approx(0.02**0.5)
