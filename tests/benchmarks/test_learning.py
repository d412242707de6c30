"""Learning curves of both loops, and the methods' speeds, on a few environments."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from decap.bench.report import read_report
from decap.errors import UserError

# On the path, and not loaded by hand: worker processes import it again.
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import figures
import learning
from methods import PLAIN_PPO, bench_methods

RESULTS = Path(__file__).parents[2] / "results" / "bench"


def test_both_loops_train_and_are_compared(tmp_path, capsys):
  curves = [learning.train(case, 1, "g1-flat", 4, "cpu", 2) for case in learning.CASES]
  for curve in curves:
    assert curve.samples == [96, 192]
    assert len(curve.reward) == len(curve.ended) == 2
  # The same task and σ: rewards of the first rollouts are alike, not equal.
  assert curves[0].reward != curves[1].reward
  assert abs(curves[0].reward[0] - curves[1].reward[0]) < 0.1
  lines = learning.table(curves)
  assert "stock" in lines[0] and "1 seeds" in lines[1]
  learning.plot(curves, tmp_path / "curves.png")
  assert (tmp_path / "curves.png").stat().st_size > 1000


def test_curves_survive_a_file(tmp_path):
  curve = learning.Curve("ours", 2, [10, 20], [0.1, 0.3], [0.0, 0.5], 1.0)
  assert curve.final("reward") == 0.3
  curves = [curve, dataclasses.replace(curve, case="stock")]
  learning._write_json(tmp_path / "l.json", curves, "g1-flat", 4)
  assert learning.read_json(tmp_path / "l.json") == curves


def test_a_file_without_one_of_the_loops_is_refused(tmp_path):
  learning._write_json(tmp_path / "l.json", [learning.Curve("ours", 1)], "g1-flat", 4)
  with pytest.raises(UserError, match=r"l\.json has no curve of stock"):
    learning.read_json(tmp_path / "l.json")


def test_methods_are_measured_against_plain_ppo(tmp_path):
  path = tmp_path / "methods.json"
  speeds = bench_methods(4, "cpu", methods=("lcp", "cat"), iterations=2, json_path=path)
  assert [s.method for s in speeds] == [PLAIN_PPO, "lcp", "cat"]
  assert speeds[0].relative == 1.0
  assert all(s.finite and s.iterations == 2 and not s.captured for s in speeds)
  assert len(json.loads(path.read_text())["results"]) == 3


def test_stored_speeds_are_drawn(tmp_path):
  known = {figures.BENCHMARK.name: figures.BENCHMARK}
  report = read_report(RESULTS / "throughput.json", known)
  figures.plot_speeds(report, tmp_path / "speeds.png")
  assert (tmp_path / "speeds.png").read_bytes().startswith(b"\x89PNG")
