from __future__ import annotations

import json

import pytest

from decap.bench.engines import CASES, EngineSpeed, bench_engines, speed_ratios
from decap.errors import UserError


def test_ratios_are_over_warp():
  speeds = [
    EngineSpeed("decap", 64, 3300.0, 8000.0, 1.0),
    EngineSpeed("warp", 64, 300.0, 400.0, 60.0),
  ]
  ratios = speed_ratios(speeds)[64]
  assert ratios["decap"] == {"environment": 11.0, "physics": 20.0}
  assert ratios["warp"] == {"environment": 1.0, "physics": 1.0}


@pytest.mark.parametrize(
  ("arguments", "sentence"),
  [
    (([0], 5), "numbers of environments must be positive"),
    (([], 5), "numbers of environments must be positive"),
    (([2], 0), "number of steps must be positive"),
    (([2], 5, "/dev/null/engines.json"), "Cannot write to the output folder /dev/null"),
  ],
)
def test_impossible_requests_are_refused_before_any_work(arguments, sentence):
  with pytest.raises(UserError, match=sentence):
    bench_engines(*arguments)


@pytest.mark.slow
def test_all_cases_are_measured(tmp_path, capsys):
  path = tmp_path / "engines.json"
  speeds = bench_engines([4], 4, path)
  report = json.loads(path.read_text())
  assert [s.case for s in speeds] == list(CASES)
  assert report["machine"]["versions"]["mjbatch"] == "0.1.0"
  for result in report["results"]:
    assert result["physics_per_s"] > result["env_steps_per_s"] > 0.0
  for case in ("decap", "native"):
    assert report["ratios"]["4"][case]["physics"] > 1.0
  assert "ratio" in capsys.readouterr().out
