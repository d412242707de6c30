"""The two physics engines: ratios, and one small measurement."""

import json

import pytest

from decap.bench import engines
from decap.bench.engines import BENCHMARK, CASES
from decap.bench.report import run_benchmark


def test_ratios_are_over_warp():
  rows = [
    {
      "case": "decap",
      "num_envs": 64,
      "env_steps_per_s": 3300.0,
      "physics_per_s": 8000.0,
    },
    {"case": "warp", "num_envs": 64, "env_steps_per_s": 300.0, "physics_per_s": 400.0},
    {"case": "decap", "num_envs": 8, "env_steps_per_s": 30.0, "physics_per_s": 80.0},
  ]
  assert engines.summary(rows) == {"64": {"env": 11.0, "physics": 20.0}}
  first, second, alone = engines.with_ratios(rows)
  assert (first["env_ratio"], first["physics_ratio"]) == (11.0, 20.0)
  assert second["env_ratio"] == 1.0
  assert "env_ratio" not in alone
  assert "11.0 × mjlab on MuJoCo Warp" in engines.notes(rows)[0]


@pytest.mark.slow
def test_all_cases_are_measured(tmp_path):
  path = tmp_path / "engines.json"
  report = run_benchmark(BENCHMARK, "cpu", num_envs=(4,), seconds=0.2, json_path=path)
  stored = json.loads(path.read_text())
  assert [row["case"] for row in report.rows] == list(CASES)
  assert stored["machine"]["versions"]["mjbatch"] == "0.1.0"
  for row in stored["results"]:
    assert row["physics_per_s"] > row["env_steps_per_s"] > 0.0
  assert stored["summary"]["4"]["physics"] > 1.0
