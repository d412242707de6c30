"""The file for SkyPilot: its YAML, and the sweep that it would start."""

import subprocess
from pathlib import Path

import yaml

from decap.sweep.plan import make_plan
from decap.tasks import ITERATIONS

FILE = Path(__file__).parents[2] / "examples" / "skypilot.yaml"


def test_what_it_runs_is_a_sweep(tmp_path):
  data = yaml.safe_load(FILE.read_text())
  assert data["file_mounts"]["/runs"]["mode"] == "MOUNT"
  # Everything but the last line, which trains; the path is where it is looked for.
  script = data["run"].strip().splitlines()
  assert script[-1].startswith("decap sweep ~/run.yaml --output /runs/")
  env = {**data["envs"], "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
  subprocess.run(["bash", "-ec", "\n".join(script[:-1])], env=env, check=True)
  plan = make_plan(yaml.safe_load((tmp_path / "run.yaml").read_text()))
  assert [run.name for run in plan.runs] == ["g1-flat_decap_s1"]
  assert plan.runs[0].iterations == ITERATIONS
