import dataclasses
import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from decap.cli import main, sim2sim
from decap.deploy import looks
from decap.deploy.bundle import load_bundle
from decap.deploy.grounds import TERRAINS
from decap.deploy.simulation import SimCfg
from decap.errors import UserError
from decap.evaluation import robot_tables, robustness
from decap.options import machine
from tests.deploy.robots import POLICY
from tests.deploy.test_measure import make_trace


def fails(capsys, *words: str) -> str:
  assert main(["sim2sim", *words]) == 2
  error = capsys.readouterr().err
  assert error.startswith("decap: ") and error.count("\n") == 1
  return error


def test_one_walk_is_reported(capsys, tmp_path):
  trace = tmp_path / "walk.npz"
  words = ["sim2sim", str(POLICY), "--seconds", "0.5", "--trace", str(trace)]
  assert main(words) == 0
  out = capsys.readouterr().out
  assert f"{POLICY.name} on flat: walked to the end after 0.5 s" in out
  assert "head" in out and "× real time" in out
  assert trace.stat().st_size > 10_000


def test_a_walk_that_never_began_gets_a_sentence_instead_of_a_video(tmp_path):
  video = tmp_path / "walk.gif"
  trace = dataclasses.replace(make_trace(0), stop_reason="tilt is above 1 rad")
  options = sim2sim.WalkArgs(video=str(video))
  with pytest.raises(UserError, match="p ended before its walk began .tilt is above"):
    sim2sim._record([("p", trace)], SimCfg(), options)
  assert not video.exists()


def test_a_walk_loads_nothing_that_deployment_does_not_have():
  code = (
    "import sys; from decap.cli import main; "
    f"assert main(['sim2sim', {str(POLICY)!r}, '--seconds', '0.1']) == 0; "
    "heavy = ('torch', 'mjlab', 'onnx', 'matplotlib', 'mediapy', 'viser'); "
    "print([name for name in heavy if name in sys.modules])"
  )
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
  assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


def test_two_policies_are_filmed_through_their_heads(capsys, tmp_path, monkeypatch):
  pytest.importorskip("mediapy")
  image = pytest.importorskip("PIL.Image")
  try:
    machine.check_renderer(draws=True)
  except UserError as error:
    pytest.skip(str(error))
  monkeypatch.setattr(looks, "_mesh_file", lambda: None)  # Meshes are slow to draw.
  file = tmp_path / "ego.gif"
  other = POLICY.with_name("g1-flat-smoothness-rewards")
  words = ["sim2sim", str(POLICY), str(other), "--seconds", "0.4", "--ego"]
  assert main([*words, "--terrain", "slope", "--video", str(file)]) == 0
  assert capsys.readouterr().out.count(" on slope: walked to the end") == 2
  with image.open(file) as film:
    assert film.size == (800, 300) and film.n_frames == 5  # 0.4 s · 12.5.
    film.seek(4)
    last = np.asarray(film.convert("L"), int)
  left, right = last[:, :400], last[:, 400:]
  assert left[40:260].std() > 5 and right[40:260].std() > 5  # Not one colour.
  assert np.abs(left - right)[40:260].mean() > 2  # Each its own view.
  assert (left[-8:, :20] > 250).any()  # The caption.


def test_the_renderer_that_starts_is_the_one_that_draws(monkeypatch):
  started = subprocess.CompletedProcess([], 0)
  monkeypatch.setattr(machine.subprocess, "run", lambda *_, **__: started)
  monkeypatch.setattr(machine.sys, "platform", "linux")
  for before, after in ((None, "egl"), ("osmesa", "osmesa")):
    monkeypatch.setattr(machine.os, "environ", {"MUJOCO_GL": before} if before else {})
    machine.check_renderer(draws=True)
    assert machine.os.environ == {"MUJOCO_GL": after}


def test_terrains_are_checked_before_mujoco_is_loaded():
  """It takes its renderer from the environment once, when it is loaded."""
  code = (
    "import sys; from decap.cli import main; "
    f"assert main(['sim2sim', {str(POLICY)!r}, '--terrain', 'lava']) == 2; "
    "print('mujoco' in sys.modules)"
  )
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
  assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize("command", ["sim2sim", "simulator"])
def test_terrains_are_in_the_help(command, capsys):
  with pytest.raises(SystemExit):
    main([command, "--help"])
  assert set(TERRAINS) <= set(re.findall(r"[\w-]+", capsys.readouterr().out))


def test_a_bundle_with_a_renamed_joint_is_refused(capsys, tmp_path):
  folder = tmp_path / "renamed"
  shutil.copytree(POLICY, folder)
  info = json.loads((folder / "policy.json").read_text())
  info["joint_names"][3] = "left_tail_joint"
  (folder / "policy.json").write_text(json.dumps(info))
  assert "joint_names is not what policy.onnx says" in fails(capsys, str(folder))


def test_table_writes_results_tables_and_figures(capsys, tmp_path, monkeypatch):
  few = robot_tables.cases()[:2]  # The identical walk, and flat ground.
  monkeypatch.setattr(robot_tables, "cases", lambda: few)
  short = robot_tables.straight(0.5, 0.4)
  for name in ("identical", "terrain"):
    monkeypatch.setitem(robot_tables.PLANS, name, short)
  words = ["sim2sim", "table", str(POLICY), "--repeats", "1"]
  words += ["--out", str(tmp_path), "--jobs", "2"]
  assert main(words) == 0
  results = robot_tables.load(tmp_path / f"{POLICY.name}.json")
  assert [walk["table"] for walk in results["walks"]] == ["identical", "terrain"]
  assert f"| {POLICY.name} | upper |" in (tmp_path / "tables.md").read_text()
  assert (tmp_path / "torso.svg").is_file()
  before = (tmp_path / f"{POLICY.name}.json").stat().st_mtime_ns
  capsys.readouterr()
  sweep = {
    "format": robustness.FORMAT,
    "policy": results["policy"],
    "axes": {"noise": []},
    "margins": {"noise": None},
  }
  (tmp_path / f"{POLICY.name}-sweep.json").write_text(json.dumps(sweep))
  assert main([*words, "--reuse"]) == 0
  assert f"| {POLICY.name} | none |" in (tmp_path / "tables.md").read_text()
  assert (tmp_path / f"{POLICY.name}.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "other"}'])
def test_a_damaged_sweep_is_found_before_the_walks(capsys, tmp_path, monkeypatch, text):
  walked = []
  monkeypatch.setattr(robot_tables, "measure_policy", lambda *_: walked.append(1))
  damaged = tmp_path / f"{POLICY.name}-sweep.json"
  damaged.write_text(text)
  assert str(damaged) in fails(capsys, "table", str(POLICY), "--out", str(tmp_path))
  assert not walked


def test_a_sweep_takes_what_is_there_of_the_same_policy(capsys, tmp_path, monkeypatch):
  stored = tmp_path / f"{POLICY.name}-sweep.json"
  policy = robot_tables.describe(load_bundle(POLICY))
  swept = []

  def sweep_policy(bundle, repeats, jobs, progress):
    swept.append(bundle.folder.name)
    return {"policy": {"name": "new"}, "repeats": repeats, "axes": {}, "margins": {}}

  monkeypatch.setattr(robustness, "sweep_policy", sweep_policy)
  monkeypatch.setattr(robustness, "margin_table", lambda sweeps: [str(sweeps)])
  monkeypatch.setattr(sim2sim, "_draw", lambda *_: None)
  words = ["sim2sim", "sweep", str(POLICY), "--repeats", "3", "--out", str(tmp_path)]
  for sha, repeats, more, again in (
    (policy["onnx_sha256"], 3, ["--reuse"], False),
    (policy["onnx_sha256"], 3, [], True),
    (policy["onnx_sha256"], 2, ["--reuse"], True),
    ("another", 3, ["--reuse"], True),
  ):
    old = {"format": robustness.FORMAT, "policy": {**policy, "onnx_sha256": sha}}
    stored.write_text(json.dumps({**old, "repeats": repeats, "axes": "old"}))
    swept.clear()
    assert main([*words, *more]) == 0
    assert bool(swept) is again
    assert ("'old'" in (tmp_path / "margins.md").read_text()) is not again
