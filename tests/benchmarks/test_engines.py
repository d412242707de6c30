"""The two physics engines: ratios, and one small measurement."""

import pytest

from benchmarks.cases import ENGINES
from benchmarks.report import Report, run


def test_ratios_are_over_warp():
  def row(case: str, num_envs: int, whole: float, physics: float) -> dict:
    speeds = {"env_steps_per_s": whole, "physics_per_s": physics}
    return {"case": case, "num_envs": num_envs, **speeds}

  rows = [
    row("decap", 64, 3300.0, 8000.0),
    row("warp", 64, 300.0, 400.0),
    row("decap", 8, 30.0, 80.0),
  ]
  first, second, alone = Report(ENGINES, {}, rows).complete()
  assert (first["env_ratio"], first["physics_ratio"]) == (11.0, 20.0)
  assert second["env_ratio"] == 1.0
  assert "env_ratio" not in alone


@pytest.mark.slow
def test_all_cases_are_measured():
  report = run(ENGINES, "cpu", (4,), seconds=0.2)
  assert [row["case"] for row in report.rows] == list(ENGINES.cases)
  for row in report.rows:
    assert row["physics_per_s"] > row["env_steps_per_s"] > 0.0
  assert report.complete()[0]["physics_ratio"] > 1.0
