"""Bundles: the exported network is the trained one, and bad bundles are refused."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from decap.deploy.bundle import (
  bundle_folder,
  bundle_name,
  load_bundle,
  write_bundle,
)
from decap.errors import UserError
from decap.export import OPSET, actor_to_onnx
from decap.rl.modules import Model

JOINTS = ("left_hip", "right_hip", "elbow")
DIM = 3 + 2 * len(JOINTS)


def _actor(activation="elu", hidden=(64, 32), normalised=True) -> Model:
  torch.manual_seed(3)
  obs = {"actor": torch.zeros(1, DIM)}
  model = Model(
    obs,
    "actor",
    len(JOINTS),
    hidden_dims=hidden,
    activation=activation,
    obs_normalization=normalised,
  )
  if normalised:
    model.obs_normalizer.update(torch.randn(500, DIM) * torch.linspace(0.1, 9, DIM) + 2)
  return model.eval()


def _info() -> dict:
  per_joint = [0.1, 0.2, 1 / 3]
  return {
    "task": "test",
    "method": "decap",
    "robot": {"name": "test"},
    "joint_names": list(JOINTS),
    "default_joint_pos": per_joint,
    "stiffness": per_joint,
    "damping": per_joint,
    "action_scale": per_joint,
    "observations": [
      {"name": "gravity", "dim": 3, "scale": [1.0] * 3, "clip": None, "meaning": "g"},
      {"name": "joints", "dim": 6, "scale": [0.5] * 6, "clip": [-1, 1], "meaning": "q"},
    ],
    "control_dt_s": 0.02,
    "command_ranges": {},
    "constraints": {},
    "versions": {},
  }


def _write(folder, **changes) -> None:
  onnx = actor_to_onnx(_actor().state_dict(), "elu", 1e-2)
  write_bundle(folder, onnx, {**_info(), **changes})


@pytest.mark.parametrize("activation", ["elu", "relu", "tanh", "selu"])
@pytest.mark.parametrize("normalised", [True, False])
def test_onnx_equals_torch_on_1000_observations(tmp_path, activation, normalised):
  actor = _actor(activation, normalised=normalised)
  onnx = actor_to_onnx(actor.state_dict(), activation, 1e-2)
  write_bundle(tmp_path / "policy", onnx, _info())
  obs = torch.randn(1000, DIM) * 5
  with torch.no_grad():
    expected = actor({"actor": obs}).numpy()
  actual = load_bundle(tmp_path / "policy").act(obs.numpy())
  np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
  assert np.abs(expected).max() > 0.1


def test_opset_is_one_that_robots_can_run():
  import onnx

  model = onnx.load_from_string(actor_to_onnx(_actor().state_dict(), "elu", 1e-2))
  assert model.opset_import[0].version == OPSET <= 18
  assert model.graph.input[0].name == "obs" and model.graph.output[0].name == "actions"
  assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"


def test_a_bundle_keeps_full_precision_and_gives_targets(tmp_path):
  _write(tmp_path / "policy")
  bundle = load_bundle(tmp_path / "policy")
  assert bundle.joint_names == JOINTS
  for found in (bundle.action_scale, bundle.stiffness, bundle.damping):
    assert found.tolist() == [0.1, 0.2, 1 / 3]  # Exactly.
  np.testing.assert_allclose(
    bundle.targets(np.array([[1.0, -1.0, 3.0]])), [[0.2, 0.0, 4 / 3]]
  )
  assert [(t.name, t.dim, t.clip) for t in bundle.observations] == [
    ("gravity", 3, None),
    ("joints", 6, (-1, 1)),
  ]


def test_a_bundle_is_replaced_as_a_whole_but_other_folders_are_not(tmp_path):
  folder = tmp_path / "policy"
  _write(folder)
  (folder / "notes.txt").write_text("mine")
  _write(folder, task="other")
  assert load_bundle(folder).info["task"] == "other"
  assert (folder / "notes.txt").read_text() == "mine"
  assert sorted(p.name for p in tmp_path.iterdir()) == ["policy"]
  (tmp_path / "empty").mkdir()
  for name in ("empty", "new/folder/policy"):
    _write(tmp_path / name)
    assert load_bundle(tmp_path / name).info["task"] == "test"
  holiday = tmp_path / "photos"
  holiday.mkdir()
  (holiday / "beach.jpg").touch()
  with pytest.raises(UserError, match="holds other files"):
    _write(holiday)
  assert [p.name for p in holiday.iterdir()] == ["beach.jpg"]


def test_what_belongs_to_a_bundle_comes_with_it(tmp_path):
  folder = tmp_path / "policy"
  onnx = actor_to_onnx(_actor().state_dict(), "elu", 1e-2)
  for text in ("first", "second"):
    write_bundle(folder, onnx, _info(), {"deploy.yaml": text})
    assert (folder / "deploy.yaml").read_text() == text
  assert len(list(folder.iterdir())) == 3


def _edit(folder, **changes) -> None:
  path = folder / "policy.json"
  info = {**json.loads(path.read_text()), **changes}
  path.write_text(json.dumps({k: v for k, v in info.items() if v is not None}))


def _term(without="", **changes) -> dict:
  """Changes of a bundle: its first observation is another one."""
  term = {**_info()["observations"][0], **changes}
  kept = {k: v for k, v in term.items() if k != without and (v or k != "name")}
  return {"observations": [kept, _info()["observations"][1]]}


@pytest.mark.parametrize(
  "changes, message",
  [
    ({"format": "other"}, "not a decap policy"),
    ({"schema": 3}, "schema 3; this decap reads schemas 1 and 2"),
    ({"stiffness": None}, "lacks stiffness"),
    ({"stiffness": 5}, "is damaged"),
    ({"damping": ["a", "b", "c"]}, "is damaged"),
    ({"observations": [{}]}, "observation 1 lacks name, dim, scale, clip, meaning"),
    (_term(name=None), "observation 1 lacks name"),
    (_term("clip"), "observation 1 lacks clip"),
    (_term(scale=[1.0]), "observation 'gravity' has 3 entries but 1 scales"),
    (_term(name=["gravity"]), "is damaged: the name of observation 1 is no text"),
    (_term(dim=3.0), "'gravity' must have a positive number of entries, not 3.0"),
    (_term(dim=0, scale=[]), "'gravity' must have a positive number of entries"),
    (_term(scale=[1.0, 2.0, float("nan")]), "scale of 'gravity' has .* not finite"),
    (_term(clip=[1.0, -1.0]), "clip of 'gravity' must be null or two rising numbers"),
    (_term(clip=[1.0, float("inf")]), "clip of 'gravity' has .* not finite"),
    (_term(clip=[]), "clip of 'gravity' must be null or two rising numbers"),
    (_term(clip=5), "clip of 'gravity' must be null or two rising numbers"),
    (_term(period_s="slow"), "is damaged: the period_s of 'gravity' holds str"),
    ({"observations": [5]}, "is damaged"),
    ({"observations": {"a": 1}}, "is damaged: 'observations' is no list"),
    ({"control_dt_s": "fast"}, "is damaged: 'control_dt_s' holds str"),
    ({"control_dt_s": float("nan")}, "'control_dt_s' has a value that is not finite"),
    ({"stiffness": [10**400, 1, 1]}, "'stiffness' has a value that is not finite"),
    ({"stiffness": [1e39, 1, 1]}, "'stiffness' has a value that is not finite"),
    ({"stiffness": [True, 1, 1]}, "is damaged: 'stiffness' holds bool"),
    ({"effort_limit": [1.0, 2.0, float("nan")]}, "'effort_limit' has .* not finite"),
    ({"effort_limit": [1.0]}, "'effort_limit' has 1 values for 3 joints"),
    ({"joint_names": [["a"], "b", "c"]}, "is damaged: 'joint_names' is no list of na"),
    ({"joint_names": "abc"}, "is damaged: 'joint_names' is no list of names"),
    ({"command_ranges": [1]}, "is damaged: 'command_ranges' is no table of ranges"),
    ({"command_ranges": {"twist": 3}}, "is damaged: 'command_ranges' is no table"),
    ({"command_ranges": {"twist": {"vx": 3}}}, "range of 'vx' must be two rising num"),
    (
      {"command_ranges": {"twist": {"vx": [0.0, float("nan")]}}},
      "range of 'vx' has a value that is not finite",
    ),
    ({"damping": [1.0]}, "'damping' has 1 values for 3 joints"),
    ({"action_scale": [1.0, 2.0, float("nan")]}, "not finite"),
    ({"onnx_sha256": "0" * 64}, "does not match the checksum"),
    (
      {
        "joint_names": ["a", "b"],
        **dict.fromkeys(
          ("default_joint_pos", "stiffness", "damping", "action_scale"), [1.0, 1.0]
        ),
      },
      "to 3 actions, but policy.json describes 9 and 2",
    ),
  ],
)
def test_bad_bundles_get_a_sentence(tmp_path, changes, message):
  folder = tmp_path / "policy"
  _write(folder)
  _edit(folder, **changes)
  with pytest.raises(UserError, match=message):
    load_bundle(folder)


@pytest.mark.parametrize(
  ("changes", "error"),
  [
    ({"damping": [1.0]}, "'damping' has 1 values for 3 joints"),
    ({"constraints": {"joint_vel": float("nan")}}, "not JSON compliant"),
  ],
)
def test_a_wrong_description_is_not_written(tmp_path, changes, error):
  with pytest.raises((UserError, ValueError), match=error):
    _write(tmp_path / "policy", **changes)
  assert not list(tmp_path.iterdir())


def test_a_runs_bundle_is_beside_its_checkpoints(tmp_path):
  run = tmp_path / "run"
  _write(run / "policy")
  assert bundle_folder(str(run)) == run / "policy"
  assert bundle_folder(run / "policy") == run / "policy"
  # What is no bundle is named as it was given.
  assert bundle_folder(tmp_path) == tmp_path
  _write(run / "policy" / "policy")
  assert bundle_folder(run / "policy") == run / "policy"


def test_bundles_of_runs_are_called_by_their_runs(tmp_path, monkeypatch):
  _write(tmp_path / "mine")
  assert bundle_name(tmp_path / "mine") == "mine"
  for run in ("a", "b"):
    _write(tmp_path / run / "policy")
    (tmp_path / run / "params").mkdir()
    assert bundle_name(tmp_path / run / "policy") == f"{run}-policy"
    assert load_bundle(tmp_path / run / "policy").name == f"{run}-policy"
    assert bundle_name(tmp_path / run) == run
  monkeypatch.chdir(tmp_path / "a")
  assert bundle_name(Path("policy")) == "a-policy"
  assert bundle_name(Path("stand")) == "stand"  # No bundle.


def test_damaged_files_get_a_sentence(tmp_path):
  with pytest.raises(UserError, match="is not a policy bundle"):
    load_bundle(tmp_path)
  folder = tmp_path / "policy"
  _write(folder)
  onnx = folder / "policy.onnx"
  onnx.write_bytes(onnx.read_bytes()[:-1] + b"x")
  with pytest.raises(UserError, match="does not match the checksum"):
    load_bundle(folder)
  onnx.unlink()
  with pytest.raises(UserError, match="Cannot read"):
    load_bundle(folder)
  (folder / "policy.json").write_text("{")
  with pytest.raises(UserError, match="not valid JSON"):
    load_bundle(folder)


def test_the_checksum_is_that_of_the_file(tmp_path):
  _write(tmp_path / "policy")
  digest = hashlib.sha256((tmp_path / "policy" / "policy.onnx").read_bytes())
  text = (tmp_path / "policy" / "policy.json").read_text()
  assert text.startswith('{\n  "format": "decap-policy",\n')
  info = json.loads(text)
  assert info["onnx_sha256"] == digest.hexdigest()


def test_an_activation_without_an_operator_is_refused():
  with pytest.raises(UserError, match="'crelu' cannot be exported"):
    actor_to_onnx(_actor().state_dict(), "crelu", 1e-2)


def test_a_robot_needs_neither_torch_nor_mjlab():
  code = (
    "import sys, decap.deploy.bundle, decap.deploy.robot_io, decap.robots.g1_motors; "
    "heavy = 'torch', 'mjlab', 'mujoco', 'warp', 'rsl_rl'; "
    "print([m for m in heavy if m in sys.modules])"
  )
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, check=True
  )
  assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_policy_that_diverged_is_neither_written_nor_loaded(tmp_path, value):
  actor = _actor()
  with torch.no_grad():
    actor.mlp[2].weight[3, 1] = value
  with pytest.raises(UserError, match=r"not exported: mlp.2.weight is not finite"):
    actor_to_onnx(actor.state_dict(), "elu", 1e-2)
  # One that someone else wrote, with a checksum that fits.
  import onnx

  model = onnx.load_from_string(actor_to_onnx(_actor().state_dict(), "elu", 1e-2))
  constant = next(c for c in model.graph.initializer if c.name == "w2")
  weights = onnx.numpy_helper.to_array(constant).copy()
  weights[3, 1] = value
  constant.CopyFrom(onnx.numpy_helper.from_array(weights, "w2"))
  write_bundle(tmp_path / "policy", model.SerializeToString(), _info())
  with pytest.raises(UserError, match="policy that diverged: w2 is not finite"):
    load_bundle(tmp_path / "policy")


def test_a_network_that_answers_nan_is_refused(tmp_path):
  """All constants are finite, and 1e38 · 1e38 is not; one joint is enough."""
  actor = _actor(activation="relu", normalised=False)
  with torch.no_grad():
    for parameter in actor.parameters():
      parameter.fill_(0.0)
    actor.mlp[0].weight.fill_(1e38)
    actor.mlp[2].bias.fill_(1.0)
    actor.mlp[-1].weight[1].fill_(1e38)
  onnx = actor_to_onnx(actor.state_dict(), "relu", 1e-2)
  write_bundle(tmp_path / "policy", onnx, _info())
  with pytest.raises(UserError, match="answers zeros with numbers that are not finite"):
    load_bundle(tmp_path / "policy")
  # What it does far from all that it was trained with is not judged.
  with torch.no_grad():
    actor.mlp[2].weight.fill_(1e38)
    actor.mlp[2].bias.fill_(0.0)
  onnx = actor_to_onnx(actor.state_dict(), "relu", 1e-2)
  write_bundle(tmp_path / "policy", onnx, _info())
  assert not np.isfinite(load_bundle(tmp_path / "policy").act(np.ones((1, DIM)))).all()


def test_a_network_for_one_robot_at_a_time(tmp_path, capfd):
  """As other exporters write it, and with a constant that nobody uses."""
  import onnx

  model = onnx.load_from_string(actor_to_onnx(_actor().state_dict(), "elu", 1e-2))
  for tensor in (*model.graph.input, *model.graph.output):
    tensor.type.tensor_type.shape.dim[0].dim_value = 1
  unused = onnx.numpy_helper.from_array(np.zeros(1, np.float32), "unused")
  model.graph.initializer.append(unused)
  write_bundle(tmp_path / "policy", model.SerializeToString(), _info())
  bundle = load_bundle(tmp_path / "policy")
  assert bundle.act(np.zeros((1, DIM))).shape == (1, len(JOINTS))
  assert bundle._session.get_session_options().intra_op_num_threads == 1
  captured = capfd.readouterr()
  assert captured.err == "" and captured.out == ""


def test_null_for_ranges_is_refused(tmp_path):
  with pytest.raises(UserError, match="is damaged: 'command_ranges' is no table"):
    _write(tmp_path / "policy", command_ranges=None)
  _write(tmp_path / "policy")
  path = tmp_path / "policy" / "policy.json"
  path.write_text(path.read_text().replace("{}", "null"))
  with pytest.raises(UserError, match="is damaged: 'command_ranges' is no table"):
    load_bundle(tmp_path / "policy")


def _network(inputs=("obs",), kind="FLOAT", rows=True) -> bytes:
  """Sums of observations; one that is unlike what bundles say, if need be."""
  from onnx import TensorProto, helper, numpy_helper

  numbers = getattr(TensorProto, kind)
  dtype = np.float32 if kind == "FLOAT" else np.float64
  weights = numpy_helper.from_array(np.ones((DIM, len(JOINTS)), dtype), "w")
  nodes = [helper.make_node("MatMul", [inputs[0], "w"], ["sums"])]
  if rows:
    nodes.append(helper.make_node("Identity", ["sums"], ["actions"]))
  else:
    nodes.append(helper.make_node("Concat", ["sums", "sums"], ["actions"], axis=0))
  graph = helper.make_graph(
    nodes,
    "policy",
    [helper.make_tensor_value_info(name, numbers, ["N", DIM]) for name in inputs],
    [helper.make_tensor_value_info("actions", numbers, ["M", len(JOINTS)])],
    [weights],
  )
  opset = helper.make_opsetid("", OPSET)
  return helper.make_model(
    graph, opset_imports=[opset], ir_version=8
  ).SerializeToString()


@pytest.mark.parametrize(
  ("network", "message"),
  [
    ({"inputs": ("x",)}, "must take one input 'obs' of float32, not x"),
    (
      {"inputs": ("obs", "memory")},
      "must take one input 'obs' of float32, not obs of .*, memory",
    ),
    ({"kind": "DOUBLE"}, "must take one input 'obs' of float32, not obs of .*double"),
    ({"rows": False}, r"answers one observation with actions of shape \(2, 3\)"),
  ],
)
def test_a_network_that_does_not_take_observations_is_refused(
  tmp_path, network, message
):
  write_bundle(tmp_path / "good", _network(), _info())
  assert load_bundle(tmp_path / "good").act(np.zeros((1, DIM))).shape == (1, 3)
  write_bundle(tmp_path / "bad", _network(**network), _info())
  with pytest.raises(UserError, match=message):
    load_bundle(tmp_path / "bad")


def test_junk_with_a_fitting_checksum_is_refused_in_a_sentence(tmp_path, capfd):
  write_bundle(tmp_path / "policy", b"junk" * 100, _info())
  with pytest.raises(UserError, match="policy.onnx is not a network in ONNX format"):
    load_bundle(tmp_path / "policy")
  captured = capfd.readouterr()
  assert captured.err == "" and captured.out == ""


def test_a_bundle_is_restored_after_a_failed_replacement(tmp_path, monkeypatch):
  import errno
  import os

  folder = tmp_path / "policy"
  _write(folder)
  (folder / "notes.txt").write_text("mine")
  replace = os.replace

  def full(source, target):
    if str(source).endswith("fresh"):
      raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    replace(source, target)

  monkeypatch.setattr(os, "replace", full)
  with pytest.raises(UserError, match="No space left on device"):
    _write(folder, task="other")
  assert load_bundle(folder).info["task"] == "test"
  assert (folder / "notes.txt").read_text() == "mine"
  assert [p.name for p in tmp_path.iterdir()] == ["policy"]


@pytest.mark.parametrize("schema", [1, 2])
def test_bundles_of_both_schemas_load(tmp_path, schema):
  _write(tmp_path / "bundle")
  _edit(tmp_path / "bundle", schema=schema)
  assert load_bundle(tmp_path / "bundle").info["schema"] == schema
