"""One form of all benchmarks: files, tables, and what is stored of this project."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from benchmarks.cases import BENCHMARKS, TRAINING
from benchmarks.report import Report, Settings, measure, read_report, run
from decap.errors import UserError

RESULTS = Path(__file__).parents[2] / "results" / "bench"


def speed(case: str, rollout: float, train: float | None, num_envs: int = 64) -> dict:
  row = {"case": case, "num_envs": num_envs, "rollout_steps_per_s": rollout}
  return {**row, "train_steps_per_s": train}


def test_files_and_tables(tmp_path):
  rows = [speed("stock", 100.0, None), speed("physics", 2e6, None, num_envs=4)]
  path = tmp_path / "new" / "bench.json"
  Report(TRAINING, {"task": "g1-flat", "seconds": 2.0}, rows).write(path)
  stored = json.loads(path.read_text())
  assert stored["benchmark"] == "throughput" and stored["seconds"] == 2.0
  assert stored["machine"]["versions"]["torch"].split("+")[0] in torch.__version__
  assert {"driver", "load"} <= stored["machine"].keys()
  report = read_report(path, BENCHMARKS.values())
  assert report.rows == [rows[1], rows[0]]  # By number of environments.
  lines = report.markdown().splitlines()
  assert lines[0].startswith("| environments | case | rollout, steps/s |")
  assert lines[2] == "| 4 | physics alone | 2,000,000 |  |  |  |  |  |"
  assert lines[3].startswith("| 64 | stock mjlab + rsl_rl | 100 |")


def test_rows_are_stored_as_they_come(tmp_path):
  path = tmp_path / "bench.json"
  seen = []

  def made_up(case, settings):
    seen.append(len(json.loads(path.read_text())["results"]) if seen else 0)
    return {"told": (settings.num_envs, settings.seed, settings.task)}

  benchmark = dataclasses.replace(TRAINING, measure=made_up, seeds=(1, 2))
  run(benchmark, "cpu", (2, 3), ("stock",), path, task="g1-rough")
  assert seen == [0, 1, 2, 3]
  stored = json.loads(path.read_text())
  expected = [[n, seed, "g1-rough"] for n in (2, 3) for seed in (1, 2)]
  assert [row["told"] for row in stored["results"]] == expected
  assert stored["task"] == "g1-rough"


@pytest.mark.parametrize(
  ("problem", "text"),
  [
    (torch.cuda.OutOfMemoryError("CUDA out of memory."), "out of memory"),
    (RuntimeError("Failed to allocate 80 bytes on device 'cuda:0'"), "out of memory"),
    (ValueError("no such term\nmore"), "ValueError: no such term"),
  ],
)
def test_what_goes_wrong_is_a_row(problem, text):
  def fail(case, settings):
    raise problem

  benchmark = dataclasses.replace(TRAINING, measure=fail)
  row = measure(benchmark, "stock", Settings(4))
  assert row["error"] == text and row["seconds"] >= 0.0
  report = Report(benchmark, {}, [row])
  assert text in report.cells()[1]
  assert report.broken() == (text != "out of memory")


def test_ratios_and_what_is_said_of_them():
  rows = [
    speed("stock", 100.0, 50.0),
    speed("eager", 150.0, 100.0),
    speed("captured", 400.0, 196.0),
    speed("unconstrained", 410.0, 200.0),
    speed("physics", 500.0, None),
    # No captured row here: the sentence is about the eager one.
    speed("stock", 10.0, 5.0, num_envs=8),
    speed("eager", 20.0, 15.0, num_envs=8),
    {"case": "physics", "num_envs": 8, "error": "out of memory"},
  ]
  report = Report(TRAINING, {}, rows)
  assert report.complete()[2]["over_stock"] == pytest.approx(3.92)
  assert report.notes() == [
    "64 environments: training 3.92 × stock, rollout 4.00 × stock, rollout 80% of "
    "physics alone, training 98.0% of what it is without constraints",
    "8 environments: training 3.00 × stock, rollout 2.00 × stock",
  ]


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda p: p.stem)
def test_what_is_stored_can_be_shown(path):
  report = read_report(path, BENCHMARKS.values())
  titles, *lines = report.cells()
  assert len(lines) == len(report.rows) > 1
  for line in lines:
    assert len(line) == len(titles) and all(line[:3])


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"benchmark": "methods"}'])
def test_other_files_are_refused(tmp_path, text):
  path = tmp_path / "other.json"
  path.write_text(text)
  with pytest.raises(
    UserError, match="other.json is no file of 'python -m benchmarks'"
  ):
    read_report(path, BENCHMARKS.values())
