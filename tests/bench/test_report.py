"""One form of all benchmarks: files, tables, and what is stored of this project."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from decap.bench.report import Report, read_report, run_benchmark
from decap.cli.bench import CASES, benchmark
from decap.errors import UserError

RESULTS = Path(__file__).parents[2] / "results" / "bench"
KNOWN = {b.name: b for b in map(benchmark, CASES)}


def test_files_and_tables(tmp_path):
  training = benchmark("training")
  rows = [
    {"case": "stock", "num_envs": 64, "rollout_steps_per_s": 100.0},
    {"case": "physics", "num_envs": 4, "rollout_steps_per_s": 2e6},
  ]
  path = tmp_path / "new" / "bench.json"
  Report(training, {"task": "g1-flat", "seconds": 2.0}, rows).write(path)
  stored = json.loads(path.read_text())
  assert stored["machine"]["versions"]["torch"].split("+")[0] in torch.__version__
  assert {"driver", "load"} <= stored["machine"].keys()
  report = read_report(path, KNOWN)
  assert report.rows == [rows[1], rows[0]]  # By number of environments.
  lines = report.markdown().splitlines()
  assert lines[0].startswith("| environments | case | rollout, steps/s |")
  assert lines[2] == "| 4 | physics alone | 2,000,000 |  |  |  |  |  |"
  assert lines[3].startswith("| 64 | stock mjlab + rsl_rl | 100 |")


def test_rows_are_stored_as_they_come(tmp_path):
  path = tmp_path / "bench.json"
  seen = []

  def measure(settings):
    for case in settings.cases:
      seen.append(len(json.loads(path.read_text())["results"]) if seen else 0)
      yield {"case": case, "num_envs": settings.num_envs}

  made_up = dataclasses.replace(benchmark("training"), measure=measure)
  run_benchmark(made_up, "cpu", num_envs=(2, 3), cases=("stock",), json_path=path)
  assert seen == [0, 1]
  assert [r["num_envs"] for r in json.loads(path.read_text())["results"]] == [2, 3]


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda p: p.stem)
def test_what_is_stored_can_be_shown(path):
  data = json.loads(path.read_text())
  if data["benchmark"] not in KNOWN:  # Of a study in benchmarks/.
    assert data["benchmark"] in ("methods", "learning", "cores")
    return
  report = read_report(path, KNOWN)
  assert len(report.cells()) == len(data["results"])
  assert report.benchmark.notes(report.rows)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"benchmark": "methods"}'])
def test_other_files_are_refused(tmp_path, text):
  path = tmp_path / "other.json"
  path.write_text(text)
  with pytest.raises(UserError, match="other.json is no file of 'decap bench --json'"):
    read_report(path, KNOWN)


@pytest.mark.parametrize("what", CASES)
def test_the_command_knows_all_cases(what):
  assert tuple(benchmark(what).cases) == CASES[what]
