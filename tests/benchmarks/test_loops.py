"""Speed of training: its arithmetic, and one small measurement of each loop."""

import os

import pytest
import torch

from benchmarks import loops
from benchmarks.cases import TRAINING
from benchmarks.loops import Clock
from benchmarks.machine import busy, memory_gb
from benchmarks.report import Settings, run
from decap.rl.display import Stopwatch


def test_rates_follow_from_times_after_the_warm_up():
  clock = Clock(Settings(100, seconds=2.0))
  for _ in range(3):
    assert not clock(50.0, 50.0)
  # 0.6 and 1.0 s make 1.6 s; three iterations, and 2 s, are needed.
  assert [clock(*times) for times in ((0.4, 0.2), (0.6, 0.4))] == [False, False]
  assert clock(0.5, 0.3)
  row = clock.row(24)
  assert row["rollout_steps_per_s"] == pytest.approx(2400 / 0.5)
  assert row["train_steps_per_s"] == pytest.approx(2400 / 0.8)
  assert row["collect_ms"] == pytest.approx(500.0)
  assert row["update_ms"] == pytest.approx(300.0)
  assert (row["iterations"], row["busy"], row["memory_gb"]) == (3, None, None)


def test_the_gpu_counts_where_there_is_one(monkeypatch):
  shares = iter((0.0, 0.0, 0.0, 0.5, 1.0, None))
  monkeypatch.setattr(loops, "busy", lambda device: next(shares))
  clock = Clock(Settings(1, seconds=0.1))
  assert [clock(1.0) for _ in range(6)] == [False] * 5 + [True]
  # Of the three that count, one has no reading.
  assert clock.row(1)["busy"] == 0.75


def test_physics_has_no_training_rate():
  clock = Clock(Settings(100))
  while not clock(0.5):
    pass
  row = clock.row(24)
  assert row["rollout_steps_per_s"] == 4800
  assert row["train_steps_per_s"] is None and row["update_ms"] is None


def test_without_a_gpu_nothing_is_said_about_it():
  assert busy("cpu") is None and memory_gb("cpu") is None


def test_some_cores_are_measured_and_all_are_given_back(monkeypatch):
  before, seen = os.sched_getaffinity(0), []
  monkeypatch.setattr(loops, "ours", lambda settings: seen.append(_cores()) or {})
  loops.on_cores(1, Settings(4))
  assert seen == [1] and os.sched_getaffinity(0) == before


def _cores() -> int:
  return len(os.sched_getaffinity(0))


@pytest.mark.slow
def test_every_case_of_a_cpu_is_measured():
  rows = run(TRAINING, "cpu", (4,), seconds=0.1).rows
  assert [row["case"] for row in rows] == ["stock", "eager", "unconstrained", "physics"]
  assert [row["error"] for row in rows] == [None] * 4
  for row in rows:
    assert row["iterations"] >= 3
    assert row["rollout_steps_per_s"] == pytest.approx(4 * 24 / row["collect_ms"] * 1e3)
  fastest = max(row["rollout_steps_per_s"] for row in rows[:-1])
  assert rows[-1]["rollout_steps_per_s"] > fastest


@pytest.mark.gpu
def test_every_case_of_a_gpu_is_measured():
  rows = run(TRAINING, "cuda:0", (64,), seconds=1.0).rows
  assert [row["error"] for row in rows] == [None] * len(rows)
  assert all(row["memory_gb"] > 0 for row in rows)
  assert all(0.0 < row["busy"] <= 1.0 for row in rows)


@pytest.mark.gpu
def test_a_lap_waits_for_the_gpu():
  watch = Stopwatch("cuda:0")
  x = torch.randn(8192, 8192, device="cuda:0")
  watch.lap()
  for _ in range(20):
    x = x @ x
  assert watch.lap() > 0.01  # 2 · 20 · 8192³ operations, at 2 · 10¹⁵ per second
