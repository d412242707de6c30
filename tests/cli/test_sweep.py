"""The command as a user calls it: real runs, tiny ones."""

import json
import re
import signal

import pytest

from decap.cli import main
from decap.sweep.scheduler import LocalScheduler

SWEEP = """
task: g1-flat
seed: 1
iterations: 2
num-envs: 4
device: cpu
evaluate: {rollouts: 2, envs: 2, steps: 60, trajectory: 0}
overrides: {agent.num-steps-per-env: 4}
runs:
  - {method: decap, grid: {env.termination.kappa: [2, 3]}}
  - {name: broken, method: cat, overrides: {agent.algorithm.gamma: much}}
"""


@pytest.fixture
def sweep_file(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "tiny.yaml").write_text(SWEEP)
  return "tiny.yaml"


@pytest.mark.slow
def test_dry_run_finds_a_wrong_option(sweep_file, capsys, tmp_path):
  assert main(["sweep", sweep_file, "--dry-run"]) == 2
  assert "g1-flat_cat_broken_s1" in capsys.readouterr().err
  text = SWEEP.replace("much", "0.9")
  (tmp_path / "tiny.yaml").write_text(text)
  assert main(["sweep", sweep_file, "--dry-run"]) == 0
  printed = capsys.readouterr().out
  assert "g1-flat_decap_kappa=3_s1  new" in printed
  assert "3 runs on cpu, one at a time; training takes about" in printed
  assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_runs_are_trained_evaluated_and_compared(
  sweep_file, capfd, tmp_path, monkeypatch
):
  start = LocalScheduler._start

  def start_and_interrupt(scheduler, job, slot):
    start(scheduler, job, slot)
    signal.raise_signal(signal.SIGINT)

  # The first run is cut off before it has finished anything.
  with monkeypatch.context() as patch:
    patch.setattr(LocalScheduler, "_start", start_and_interrupt)
    assert main(["sweep", sweep_file]) == 3
  assert "because it was interrupted: 2 waiting, 1 stopped" in capfd.readouterr().out

  assert main(["sweep", sweep_file, "--jobs", "2"]) == 1
  printed = capfd.readouterr().out
  assert "2 done, 1 failed" in printed
  assert "g1-flat_cat_broken_s1 failed: training:" in printed
  root = tmp_path / "runs" / "tiny"
  table = (root / "comparison-g1-flat.md").read_text()
  rows = set(re.findall(r"DeCap \([^)]*\)", table))
  assert len(rows) == 2 and any("κ 3" in row for row in rows)
  folders = sorted((root / "g1-flat").glob("*_decap_s1_kappa=*"))
  assert len(folders) == 2
  results = [json.loads((folder / "metrics.json").read_text()) for folder in folders]
  assert [r["protocol"]["steps"] for r in results] == [60, 60]

  # Again: what is done stays as it is; a repaired file goes on.
  before = [(folder / "metrics.json").stat().st_mtime_ns for folder in folders]
  (tmp_path / "tiny.yaml").write_text(SWEEP.replace("much", "0.9"))
  assert main(["sweep", sweep_file]) == 0
  assert "3 done" in capfd.readouterr().out
  after = [(folder / "metrics.json").stat().st_mtime_ns for folder in folders]
  assert before == after
