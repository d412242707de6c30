"""Training on some of the cores: the table's arithmetic, and one small measurement."""

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import cores

REPORT = {
  "machine": {"cpu": "Abacus"},
  "results": [{"cores": 2, "train_steps_per_s": 2500.0}],
}


def test_hours_follow_from_the_speed(tmp_path):
  page, results = tmp_path / "page.md", tmp_path / "cores.json"
  page.write_text("Before\n<!-- cores -->\nold\n<!-- / -->\nafter\n")
  results.write_text(json.dumps(REPORT))
  cores.write_page(page, results)
  lines = page.read_text().splitlines()
  # 2500 · 3600 s are 9 million; 25 million take 10,000 s.
  assert lines[4] == "| 2 of Abacus | 2.5 k | 9 million | 2.8 h |"
  assert lines[:2] + lines[5:] == ["Before", "<!-- cores -->", "<!-- / -->", "after"]


def test_the_page_shows_what_was_measured():
  assert cores.MARKED.search(cores.PAGE.read_text("utf-8"))
  if cores.RESULTS.exists():
    assert cores.table(json.loads(cores.RESULTS.read_text())) in cores.PAGE.read_text()


def test_one_core_is_measured_and_all_are_given_back(tmp_path):
  before = os.sched_getaffinity(0)
  path = tmp_path / "cores.json"
  cores.bench_cores([1], num_envs=4, seconds=0.01, json_path=path)
  (row,) = json.loads(path.read_text())["results"]
  assert (row["cores"], row["num_envs"]) == (1, 4) and row["train_steps_per_s"] > 0
  assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize("counts", [[], [0], [10**6]])
def test_cores_that_are_not_there_are_named(counts):
  with pytest.raises(SystemExit, match="This machine has"):
    cores.bench_cores(counts)
