"""Checkpoints survive kills and say what is wrong with a bad file."""

import errno
import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch

from decap.errors import UserError
from decap.rl import checkpoint, checkpoint_files


def test_what_is_saved_is_loaded(tmp_path):
  path = tmp_path / "checkpoints" / "model_3.pt"
  state = {"iter": 3, "weights": torch.arange(4.0), "nested": {"a": [1, 2.5, "x"]}}
  checkpoint.save(path, state)
  loaded = checkpoint.load(path)
  assert loaded["iter"] == 3 and loaded["nested"] == {"a": [1, 2.5, "x"]}
  assert torch.equal(loaded["weights"], torch.arange(4.0))
  assert [p.name for p in path.parent.iterdir()] == ["model_3.pt"]


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing(tmp_path, monkeypatch):
  path = tmp_path / "model_1.pt"
  checkpoint.save(path, {"iter": 1})

  def full(descriptor):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  monkeypatch.setattr(os, "fsync", full)
  with pytest.raises(UserError, match="model_1.pt: No space left on device"):
    checkpoint.save(path, {"iter": 2})
  assert checkpoint.load(path)["iter"] == 1
  assert len(list(tmp_path.iterdir())) == 1


def test_a_kill_while_writing_leaves_the_last_good_checkpoint(tmp_path):
  script = textwrap.dedent(f"""
    import torch
    from pathlib import Path
    from decap.rl import checkpoint
    folder = Path({str(tmp_path)!r})
    path = folder / "model_1.pt"
    big = torch.zeros(2_000_000)
    for i in range(10_000):
      checkpoint.save(path, {{"iter": i, "big": big + i}})
      print(i, flush=True)
  """)
  process = subprocess.Popen(
    [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
  )
  assert process.stdout is not None
  for _ in range(5):
    last = int(process.stdout.readline())
  process.send_signal(signal.SIGKILL)
  rest = process.communicate()[0].split()
  last = int(rest[-1]) if rest else last
  state = checkpoint.load(tmp_path / "model_1.pt")
  assert state["iter"] >= last
  assert torch.equal(state["big"], torch.full((2_000_000,), float(state["iter"])))


def test_bad_files_get_a_sentence(tmp_path):
  good = tmp_path / "model_1.pt"
  checkpoint.save(good, {"iter": 1, "weights": torch.zeros(1000)})
  truncated = tmp_path / "truncated.pt"
  truncated.write_bytes(good.read_bytes()[:2000])
  text = tmp_path / "text.pt"
  text.write_text("not a checkpoint")
  empty = tmp_path / "empty.pt"
  empty.touch()
  # Read as a pickle: one ends a list that never began, one lacks half of a number.
  pops, half = tmp_path / "pops.pt", tmp_path / "half.pt"
  pops.write_bytes(b"\x80\x02a.")
  half.write_bytes(b"\x80\x02J\x01")
  for path in (truncated, text, empty, pops, half):
    with pytest.raises(UserError, match="corrupt or not a checkpoint"):
      checkpoint.load(path)
  foreign = tmp_path / "foreign.pt"
  torch.save({"model_state_dict": {}, "iter": 5}, foreign)
  with pytest.raises(UserError, match="not written by decap"):
    checkpoint.load(foreign)
  objects = tmp_path / "objects.pt"
  torch.save({"cfg": subprocess.Popen}, objects)
  with pytest.raises(UserError, match="not written by decap"):
    checkpoint.load(objects)
  with pytest.raises(UserError, match="There is no checkpoint"):
    checkpoint.load(tmp_path / "missing.pt")


@pytest.mark.parametrize(
  ("part", "value"),
  [
    ("version", "two"),
    ("policy", None),
    ("actor_state_dict", None),
    ("critic_state_dict", {"mlp.0.weight": [1.0]}),
  ],
)
def test_our_mark_on_other_contents_gets_a_sentence(part, value, tmp_path):
  path = tmp_path / "model_1.pt"
  checkpoint.save(path, {"iter": 1, part: value})
  with pytest.raises(UserError, match="model_1.pt is damaged"):
    checkpoint.load(path)


def test_a_newer_format_is_refused(tmp_path, monkeypatch):
  path = tmp_path / "model_1.pt"
  monkeypatch.setattr(checkpoint, "VERSION", checkpoint.VERSION + 1)
  checkpoint.save(path, {"iter": 1})
  monkeypatch.undo()
  with pytest.raises(UserError, match="newer decap"):
    checkpoint.load(path)


def test_the_latest_checkpoint_is_found_by_number_and_old_ones_go(tmp_path):
  for iteration in (9, 100, 20):
    checkpoint.save(checkpoint_files.path_for(tmp_path, iteration), {})
  names = (".model_101.pt.x7", ".77.model_101.pt", ".77.best.pt")
  leftovers = [tmp_path / "checkpoints" / name for name in names]
  for leftover in leftovers:
    leftover.touch()
  latest = checkpoint_files.path_for(tmp_path, 100)
  assert checkpoint_files.resolve(tmp_path) == latest
  assert checkpoint_files.resolve(latest) == latest
  checkpoint_files.prune(tmp_path, keep=2)
  assert [i for i, _ in checkpoint_files.list_checkpoints(tmp_path)] == [20, 100]
  assert not any(leftover.exists() for leftover in leftovers)
  with pytest.raises(UserError, match="no run folder"):
    checkpoint_files.resolve(tmp_path / "other")
  with pytest.raises(UserError, match="has no checkpoint"):
    checkpoint_files.resolve(tmp_path / "checkpoints")


def test_random_numbers_go_on_where_they_stopped(tmp_path):
  def draw():
    return torch.rand(2).tolist(), np.random.normal(), random.gauss(0.0, 1.0)

  draw()
  path = tmp_path / "model_1.pt"
  checkpoint.save(path, {"rng": checkpoint.rng_state()})
  expected = draw(), draw()
  draw()
  checkpoint.set_rng_state(checkpoint.load(path)["rng"])
  assert (draw(), draw()) == expected


def test_weights_of_another_robot_or_network_are_named():
  names = ["hip", "knee"]
  state = {"policy": {"joint_names": names}}
  path = Path("run/model_1.pt")
  checkpoint.require_joints(state, path, names)
  checkpoint.require_joints({}, path, names)  # An older one does not say.
  with pytest.raises(UserError, match="with these joints in another order"):
    checkpoint.require_joints(state, path, ["knee", "hip"])
  with pytest.raises(UserError, match="with 2 joints, this task's has 1: .* in knee"):
    checkpoint.require_joints(state, path, ["hip"])

  network = torch.nn.Linear(2, 3)
  for weights, problem in (
    ({"weight": torch.zeros(3, 2), "bias": torch.zeros(4)}, "bias .* is 4, not 3"),
    ({"weight": torch.zeros(3, 2)}, "bias of its actor is missing, not 3"),
    ({**network.state_dict(), "gain": torch.ones(())}, "is a number, not missing"),
    (None, "it has no actor"),
  ):
    with pytest.raises(UserError, match=problem):
      state = {"actor_state_dict": weights}
      checkpoint.require_shapes(state, path, {"actor": network})
