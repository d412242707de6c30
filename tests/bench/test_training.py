"""The benchmark of training: its arithmetic, its rows, and one small measurement."""

import json

import pytest
import torch

from decap.bench import training
from decap.bench.machine import BusyMeter, is_out_of_memory, memory_gb
from decap.bench.report import Report, Settings, run_benchmark
from decap.bench.training import BENCHMARK, CASES, measure_case, speeds
from decap.rl.display import Stopwatch

SETTINGS = Settings("g1-flat", num_envs=100, device="cpu", seconds=0.1)


def speed(case: str, rollout: float, train: float | None, num_envs: int = 64) -> dict:
  row = {"case": case, "num_envs": num_envs, "rollout_steps_per_s": rollout}
  return {**row, "train_steps_per_s": train}


def test_rates_follow_from_times(monkeypatch):
  row = speeds([(0.4, 0.2), (0.6, 0.4)], 2400, 0.25, "cpu")
  monkeypatch.setitem(CASES, "eager", ("ours", lambda settings: row))
  row = measure_case("eager", SETTINGS)
  assert row["rollout_steps_per_s"] == pytest.approx(2400 / 0.5)
  assert row["train_steps_per_s"] == pytest.approx(2400 / 0.8)
  assert row["collect_ms"] == pytest.approx(500.0)
  assert row["update_ms"] == pytest.approx(300.0)
  assert (row["num_envs"], row["iterations"], row["busy"]) == (100, 2, 0.25)


def test_physics_has_no_training_rate():
  row = speeds([(0.5, 0.0)], 2400, None, "cpu")
  assert row["rollout_steps_per_s"] == 4800
  assert row["train_steps_per_s"] is None and row["update_ms"] is None


@pytest.mark.parametrize(
  ("problem", "text"),
  [
    (torch.cuda.OutOfMemoryError("CUDA out of memory."), "out of memory"),
    (RuntimeError("Failed to allocate 80 bytes on device 'cuda:0'"), "out of memory"),
    (ValueError("no such term\nmore"), "ValueError: no such term"),
  ],
)
def test_what_goes_wrong_is_a_row(monkeypatch, problem, text):
  def fail(settings):
    raise problem

  monkeypatch.setitem(CASES, "stock", ("stock", fail))
  row = measure_case("stock", SETTINGS)
  assert row["error"] == text
  assert "train_steps_per_s" not in row
  report = Report(BENCHMARK, {}, [row])
  assert text in report.cells()[0]
  assert report.broken() == (text != "out of memory")


def test_ratios():
  speeds = [
    speed("stock", 100.0, 50.0),
    speed("eager", 150.0, 100.0),
    speed("captured", 400.0, 196.0),
    speed("unconstrained", 410.0, 200.0),
    speed("physics", 500.0, None),
    # Only eager rows here: the ratios are theirs.
    speed("stock", 10.0, 5.0, num_envs=8),
    speed("eager", 20.0, 15.0, num_envs=8),
    {"case": "captured", "num_envs": 8, "error": "out of memory"},
  ]
  ratios = training.summary(speeds)
  assert ratios["64"] == pytest.approx(
    {
      "training_over_stock": 3.92,
      "rollout_over_stock": 4.0,
      "rollout_over_physics": 0.8,
      "constraint_overhead": 0.02,
    }
  )
  assert ratios["8"] == {"training_over_stock": 3.0, "rollout_over_stock": 2.0}
  assert "constraints cost 2.0%" in training.notes(speeds)[0]


def test_only_memory_errors_are_memory_errors():
  assert not is_out_of_memory(RuntimeError("shapes differ"))
  assert not is_out_of_memory(ValueError("out of memory"))


def test_without_a_gpu_nothing_is_said_about_it():
  with BusyMeter("cpu") as meter:
    pass
  assert meter.share is None
  assert memory_gb("cpu") is None


@pytest.mark.slow
def test_every_case_of_a_cpu_is_measured(tmp_path):
  path = tmp_path / "bench.json"
  report = run_benchmark(BENCHMARK, "cpu", num_envs=(4,), seconds=0.1, json_path=path)
  rows = report.rows
  assert [row["case"] for row in rows] == list(training.CPU_CASES)
  assert [row["error"] for row in rows] == [None] * 4
  for row in rows:
    assert row["iterations"] >= 3
    assert row["rollout_steps_per_s"] == pytest.approx(4 * 24 / row["collect_ms"] * 1e3)
  fastest = max(row["rollout_steps_per_s"] for row in rows[:-1])
  assert rows[-1]["rollout_steps_per_s"] > fastest
  assert len(json.loads(path.read_text())["results"]) == 4


@pytest.mark.gpu
def test_every_case_of_a_gpu_is_measured():
  rows = run_benchmark(BENCHMARK, "cuda:0", num_envs=(64,), seconds=1.0).rows
  assert [row["error"] for row in rows] == [None] * len(rows)
  assert all(row["memory_gb"] > 0 for row in rows)


@pytest.mark.gpu
def test_a_lap_waits_for_the_gpu():
  watch = Stopwatch("cuda:0")
  x = torch.randn(8192, 8192, device="cuda:0")
  watch.lap()
  for _ in range(20):
    x = x @ x
  assert watch.lap() > 0.01  # 2 · 20 · 8192³ operations, at 2 · 10¹⁵ per second
