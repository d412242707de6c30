"""What goes on from a run: the same one, or another that starts with its policy."""

import dataclasses
import hashlib
import json
import os
import shutil

import pytest
import torch

from decap.cli import main
from decap.lock import one_writer
from decap.rl import checkpoint, checkpoint_files
from decap.runs import RUN_FILE, load_spec
from tests.cli.conftest import SMALL


def test_a_run_that_was_killed_before_its_bundle_gets_it(own_run):
  original = (own_run / "policy" / "policy.onnx").read_bytes()
  for leave in ((), ("policy.json",)):
    for path in (own_run / "policy").iterdir():
      if path.name not in leave:
        path.unlink()
    info = own_run / "policy" / "policy.json"
    if leave:  # That of an earlier end.
      info.write_text(json.dumps(json.loads(info.read_text()) | {"iteration": 1}))
    assert main(["train", "--resume", str(own_run), "--device", "cpu"]) == 0
    assert (own_run / "policy" / "policy.onnx").read_bytes() == original
    assert checkpoint_files.resolve(own_run).name == "model_2.pt"


def test_a_run_goes_on_to_a_larger_number_only(own_run, capsys):
  assert main(["train", "--resume", str(own_run), "--device", "cpu"]) == 2
  assert "is at iteration 2 of 2; give a larger" in capsys.readouterr().err
  options = ["--resume", str(own_run), "--iterations", "3", "--device", "cpu"]
  assert main(["train", *options]) == 0
  assert checkpoint_files.resolve(own_run).name == "model_3.pt"
  assert load_spec(own_run).iterations == 3
  # What is trained from an older one would be taken for old itself.
  older = str(checkpoint_files.path_for(own_run, 2))
  options = ["--resume", older, "--iterations", "9", "--device", "cpu"]
  capsys.readouterr()
  assert main(["train", *options]) == 2
  assert "model_2.pt is older than model_3.pt" in capsys.readouterr().err


def test_a_run_that_is_being_trained_is_not_continued(run, capsys):
  options = ["--resume", str(run), "--iterations", "9", "--device", "cpu"]
  with one_writer(run):
    assert main(["train", *options]) == 2
  captured = capsys.readouterr()
  assert f"{run} is being trained by process {os.getpid()} on" in captured.err
  assert "Building" not in captured.out


@pytest.mark.slow
def test_a_shaky_policy_is_a_start_for_another_method(run, tmp_path):
  options = ["--task", "g1-flat", "--method", "lcp", "--num-envs", "4", "--device"]
  options += ["cpu", "--iterations", "1", "--log-root", str(tmp_path)]
  shutil.copytree(run, tmp_path / "start")
  start = checkpoint_files.resolve(tmp_path / "start")
  argv = ["train", *options, "--init-from", str(tmp_path / "start"), *SMALL]
  assert main(argv) == 0
  (folder,) = (tmp_path / "g1-flat").iterdir()
  new, old = (
    checkpoint.load(checkpoint_files.resolve(f))["actor_state_dict"]["mlp.0.weight"]
    for f in (folder, run)
  )
  # One update away from where it started, and far from another initialisation.
  assert 0 < (new - old).abs().max() < 0.05
  # The run says where it comes from, and goes on without it.
  spec = load_spec(folder)
  assert spec.init_from == str(start)
  assert spec.init_sha256 == hashlib.sha256(start.read_bytes()).hexdigest()
  shutil.rmtree(tmp_path / "start")
  options = ["--resume", str(folder), "--iterations", "2", "--device", "cpu"]
  assert main(["train", *options]) == 0
  assert load_spec(folder).init_from == str(start)


def test_a_damaged_checkpoint_is_told_before_the_environment_is_built(own_run, capsys):
  path = checkpoint_files.resolve(own_run)
  for _, older in checkpoint_files.list_checkpoints(own_run)[:-1]:
    older.unlink()
  path.write_bytes(path.read_bytes()[:1000])
  options = ["--resume", str(own_run), "--iterations", "9", "--device", "cpu"]
  assert main(["train", *options]) == 2
  captured = capsys.readouterr()
  assert "is corrupt or not a checkpoint" in captured.err
  assert "Building" not in captured.out


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(own_run, capsys):
  folder = own_run
  good = checkpoint_files.resolve(folder)
  iteration = checkpoint_files.iteration_of(good)
  damaged = checkpoint_files.path_for(folder, iteration + 5)
  damaged.write_bytes(good.read_bytes()[:1000])
  total = str(iteration + 6)
  options = ["--resume", str(folder), "--iterations", total, "--device", "cpu"]
  assert main(["train", *options]) == 0
  out = capsys.readouterr().out
  assert f"{damaged.name} is corrupt or not a checkpoint at all; going on" in out
  assert f"going on from {good.name}" in out
  assert f"\n{iteration + 1}/{total}" in out
  assert damaged.with_name(f"{damaged.name}.damaged").is_file()
  # A quiet start: no tables of managers, no seeds, no devices.
  assert "Manager" not in out and "Setting seed" not in out and "Warp" not in out


def test_the_description_of_a_run_survives_json(run):
  spec = dataclasses.replace(load_spec(run), limits={"joint_vel": {"upper": 2.0}})
  assert type(spec).from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_a_run_of_an_earlier_decap_gets_one_sentence(own_run, capsys):
  path = checkpoint_files.resolve(own_run)
  state = torch.load(path, weights_only=True)
  # What they lack, and how their overrides were spelt.
  del state["progress"]
  torch.save({**state, "version": 1}, path)
  spec = json.loads((own_run / RUN_FILE).read_text())
  spec["overrides"] += ["--env.feasibility.budget", "0.01"]
  spec["feasibility"] = "anneal"
  (own_run / RUN_FILE).write_text(json.dumps(spec))
  options = ["--resume", str(own_run), "--iterations", "9", "--device", "cpu"]
  assert main(["train", *options]) == 2
  captured = capsys.readouterr()
  assert "was written by an earlier decap" in captured.err
  assert captured.err.count("\n") == 1 and "Building" not in captured.out
