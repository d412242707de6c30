"""Trajectory files come back as written, and broken ones are refused in one sentence."""

import json

import numpy as np
import pytest

from decap.errors import UserError
from decap.evaluation.trajectory import load_trajectory
from tests.evaluation.synthetic import make_trajectory


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  path = tmp_path_factory.mktemp("trajectory") / "trajectory.npz"
  make_trajectory(steps=20).save(path)
  assert load_trajectory(path).num_steps == 20
  return path.read_bytes()


@pytest.mark.parametrize("damage", ["half", "empty", "text", "changed"])
def test_damaged_files_are_refused(whole, tmp_path, damage):
  path = tmp_path / "trajectory.npz"
  changed = whole[:3000] + bytes(200) + whole[3200:]
  contents = {"half": whole[: len(whole) // 2], "empty": b"", "text": b"hello"}
  path.write_bytes({**contents, "changed": changed}[damage])
  with pytest.raises(UserError, match="is not a trajectory file"):
    load_trajectory(path)


@pytest.mark.parametrize("meta", [{}, [], {"schema": 2}, {"schema": "x"}, None])
def test_files_without_a_description_are_refused(tmp_path, meta):
  path = tmp_path / "trajectory.npz"
  with path.open("wb") as file:
    if meta is None:
      np.save(file, np.zeros(3))
    else:
      np.savez(file, meta=np.array(json.dumps(meta)))
  with pytest.raises(UserError, match="is not a trajectory file"):
    load_trajectory(path)


def test_a_newer_schema_is_refused(tmp_path):
  path = tmp_path / "trajectory.npz"
  np.savez(path, meta=np.array(json.dumps({"schema": 99})))
  with pytest.raises(UserError, match="has trajectory schema 99, newer than"):
    load_trajectory(path)
