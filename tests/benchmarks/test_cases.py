"""What is declared: cores and the page about laptops, and the methods."""

from pathlib import Path

import pytest

from benchmarks import cases
from benchmarks.cases import BENCHMARKS, CORES, METHOD, PLAIN_PPO
from benchmarks.report import Report, read_report, run
from decap.methods import METHODS

ROOT = Path(__file__).parents[2]


def test_hours_follow_from_the_speed():
  rows = [{"cores": 2, "num_envs": 256, "train_steps_per_s": 2500.0}]
  rows.append({"cores": 8, "num_envs": 256, "error": "out of memory"})
  lines = Report(CORES, {}, rows).markdown().splitlines()
  # 2500 · 3600 s are 9 million; 10.1376 million take 4055 s.
  assert lines[2] == "| 256 | 2 | 2,500 | 9 million | 1.1 h |"
  assert lines[3] == "| 256 | 8 | out of memory |  |  |"


def test_the_page_about_laptops_shows_what_was_measured():
  report = read_report(ROOT / "results/bench/cores.json", BENCHMARKS.values())
  assert report.markdown() in (ROOT / "docs" / "laptops.md").read_text("utf-8")


def test_one_core_is_measured():
  (row,) = run(CORES, "cpu", (4,), ("1",), seconds=0.01).rows
  assert row["error"] is None
  assert (row["cores"], row["num_envs"]) == ("1", 4) and row["train_steps_per_s"] > 0


def test_methods_are_measured_against_plain_ppo(monkeypatch):
  def ours(settings, method="decap", plain=False):
    assert plain == (method == "decap")
    return {"train_steps_per_s": 200.0 if plain else 190.0}

  monkeypatch.setattr(cases, "ours", ours)
  assert tuple(METHOD.cases) == (PLAIN_PPO, *METHODS)
  plain, lcp = run(METHOD, "cpu", cases=(PLAIN_PPO, "lcp")).complete()
  assert (plain["method"], plain["steps_per_s"], plain["relative"]) == (
    PLAIN_PPO,
    200,
    1,
  )
  assert (lcp["method"], lcp["num_envs"], lcp["relative"]) == ("lcp", 64, 0.95)


@pytest.mark.slow
def test_methods_train():
  for row in run(METHOD, "cpu", (4,), (PLAIN_PPO, "n-ipo"), seconds=0.01).rows:
    assert row["error"] is None and row["steps_per_s"] > 0.0
    assert (row["iterations"], row["captured"]) == (3, False)
