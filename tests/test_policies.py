"""A quick look at every released policy; the full bounds are in the slow tests."""

import json
import re
from pathlib import Path

import pytest
import torch

from decap.cli import main
from decap.evaluation.policies import load_policy
from decap.evaluation.probe import Probe
from decap.rl import checkpoint, checkpoint_files
from decap.tasks import TASKS, env_cfg

POLICIES = sorted(
  p.parent for p in Path(__file__).parents[1].glob("policies/*/policy.json")
)
INFO = {path: json.loads((path / "policy.json").read_text()) for path in POLICIES}

ROBOTS, STEPS = 2, 150
"""Robots per command, and steps of 20 ms; the first second does not count."""


@pytest.fixture(scope="module")
def probes():
  """One environment per task, for all of its policies."""
  torch.set_num_threads(1)
  made: dict[str, Probe] = {}

  def get(task: str) -> Probe:
    if task not in made:
      robot = TASKS[task].describe()
      made[task] = Probe(env_cfg(task), robot, "cpu", robots=ROBOTS, steps=STEPS)
    return made[task]

  yield get
  for probe in made.values():
    probe.close()


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.name)
def test_it_walks_where_it_is_told(probes, path):
  # Where it falls on rough ground is in its bounds; flat ground asks for no fall.
  task = INFO[path]["task"].replace("-rough", "-flat")
  policy, probe = load_policy(str(path)), probes(task)
  assert policy.act is not None
  with torch.no_grad():
    found = probe(policy.act)
  assert found["falls"] == 0
  assert found["gait"] < -0.4 and found["flight"] < 0.02  # Feet take turns.
  assert found["drift"] < 0.05  # Told to stand, it does.
  for band in ("slow", "medium", "fast", "sideways"):
    assert found[f"followed/{band}"] > 0.5, band
  limited = {row: v for row, v in found.items() if row.startswith("violations/action")}
  assert len(limited) == 2
  if INFO[path]["method"].startswith("decap"):
    assert max(limited.values()) < 0.05, limited


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.name)
def test_training_goes_on_from_it(path, tmp_path):
  argv = ["train", "--task", INFO[path]["task"], "--method", INFO[path]["method"]]
  argv += ["--init-from", str(path), "--num-envs", "4", "--iterations", "2"]
  assert main([*argv, "--device", "cpu", "--log-root", str(tmp_path)]) == 0
  (folder,) = (tmp_path / INFO[path]["task"]).iterdir()
  new, old = (checkpoint.load(checkpoint_files.resolve(p)) for p in (folder, path))
  # Two updates away from where it started, and far from another initialisation. Bundles
  # hold the critic in half precision; what starts from them does not.
  for network, kind in (("actor", torch.float32), ("critic", torch.float16)):
    mine, start = (s[f"{network}_state_dict"]["mlp.0.weight"] for s in (new, old))
    assert mine.dtype == torch.float32 and start.dtype == kind
    assert 0 < (mine - start).abs().max() < 0.1
  # What it began with is told by its contents; the folder is this machine's.
  bundle = str(tmp_path / "bundle")
  assert main(["export", str(folder), "--output", bundle, "--weights"]) == 0
  run = checkpoint.load(tmp_path / "bundle" / "weights.pt")["run"]
  assert "init_sha256" in run and "init_from" not in run


def _measured(metrics: dict, name: str) -> float:
  """What a bound is about, such as "followed/forward 0.5" or "above/upper/joint_acc"."""
  kind, _, where = name.partition("/")
  if kind == "above":
    group, quantity = where.split("/")
    return metrics["violations"][group][quantity]["any_joint"]["mean"]
  if kind in ("action_rate", "joint_acc"):
    return metrics["smoothness"][where][kind]["mean"]
  places = metrics["commands"] | metrics.get("grounds", {}) | {"random": metrics}
  part = places[where]
  for section in ("tracking", "gait"):
    if kind in part.get(section, {}):
      part = part[section]
  value = part[kind]
  return value["mean"] if isinstance(value, dict) else value


def _broken_bounds(folder: Path, metrics: dict) -> list[str]:
  bounds = json.loads((folder / "bounds.json").read_text())
  assert len(bounds) > 5
  return [
    f"{name}: {_measured(metrics, name):.4f} not in [{low}, {high}]"
    for name, (low, high) in bounds.items()
    if not low <= _measured(metrics, name) <= high
  ]


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.name)
def test_its_numbers_keep_its_bounds(path):
  assert not _broken_bounds(
    path, json.loads((path / "metrics.json").read_text())["metrics"]
  )


@pytest.mark.slow
@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.name)
def test_another_full_evaluation_keeps_its_bounds(path, tmp_path):
  arguments = ["evaluate", str(path), "--seed", "11", "--output", str(tmp_path)]
  assert main([*arguments, "--trajectory", "0", "--device", "cpu"]) == 0
  (file,) = tmp_path.rglob("metrics.json")
  assert not _broken_bounds(path, json.loads(file.read_text())["metrics"])


def test_results_name_their_runs_within_the_project():
  root = Path(__file__).parents[1]
  files = [*root.glob("results/**/*.json"), *root.glob("policies/*/metrics.json")]
  sources = {
    source
    for file in files
    for source in re.findall(r'"source": "(.*?)"', file.read_text("utf-8")[:2000])
  }
  assert sources and not {s for s in sources if Path(s).is_absolute()}
