"""Policies from checkpoints and bundles, and which are refused."""

import copy
import json

import numpy as np
import pytest
import torch
from torch import nn

from decap.deploy.bundle import load_bundle, write_bundle
from decap.errors import UserError
from decap.evaluation.policies import (
  describe_differences,
  load_policy,
  policy_name,
)
from decap.export import actor_to_onnx, export_checkpoint, torch_from_onnx
from decap.rl import checkpoint, checkpoint_files
from decap.rl.modules import policy_from_state

SIZES = (7, 16, 8, 2)


def weights(seed=0):
  """State dict of an actor with rsl_rl's names."""
  torch.manual_seed(seed)
  state = {
    "obs_normalizer._mean": torch.randn(1, SIZES[0]),
    "obs_normalizer._var": torch.rand(1, SIZES[0]) + 0.5,
    "obs_normalizer._std": torch.rand(1, SIZES[0]) + 0.5,
    "obs_normalizer.count": torch.tensor(100),
  }
  for i, (rows, columns) in enumerate(zip(SIZES[1:], SIZES, strict=False)):
    state[f"mlp.{2 * i}.weight"] = torch.randn(rows, columns)
    state[f"mlp.{2 * i}.bias"] = torch.randn(rows)
  return state


def description(**changes):
  """policy.json of a robot with two joints."""
  return {
    "robot": {"name": "two"},
    "task": "two-flat",
    "method": "decap",
    "seed": 3,
    "joint_names": ["hip", "elbow"],
    "default_joint_pos": [0.1, -0.2],
    "stiffness": [40.0, 20.0],
    "damping": [2.0, 1.0],
    "action_scale": [0.5, 0.4],
    "observations": [
      {"name": n, "dim": d, "scale": [1.0] * d, "clip": None, "meaning": n}
      for n, d in (("base_ang_vel", 3), ("joint_pos", 2), ("actions", 2))
    ],
    "control_dt_s": 0.02,
    "command_ranges": {},
    "constraints": {"rho": 0.7, "kappa": 2.0},
    "network": {"activation": "elu", "normalizer_eps": 1e-2},
    "versions": {},
  } | changes


def bundle(folder, **changes):
  write_bundle(folder, actor_to_onnx(weights(), "elu", 1e-2), description(**changes))
  return folder


def run(folder, overrides=("--agent.policy.hidden-dims", "32"), **changes):
  state = {
    "actor_state_dict": weights(),
    "policy": description(**changes),
    "iter": 40,
    "run": {"overrides": list(overrides), "limits": {}},
  }
  checkpoint.save(checkpoint_files.path_for(folder, 40), state)
  return folder


@pytest.mark.parametrize("activation", ["elu", "relu", "tanh", "selu", "softplus"])
def test_torch_and_onnxruntime_agree(tmp_path, activation):
  folder = tmp_path / "bundle"
  write_bundle(folder, actor_to_onnx(weights(), activation, 1e-2), description())
  obs = torch.randn(50, SIZES[0])
  network = torch_from_onnx((folder / "policy.onnx").read_bytes())
  np.testing.assert_allclose(
    network(obs).detach().numpy(),
    load_bundle(folder).act(obs.numpy()),
    rtol=1e-4,
    atol=1e-5,
  )


def test_a_run_and_its_bundle_are_the_same_policy(tmp_path):
  from_run = load_policy(str(run(tmp_path / "run")))
  from_bundle = load_policy(str(bundle(tmp_path / "bundle")))
  obs = {"actor": torch.randn(20, SIZES[0])}
  with torch.no_grad():
    torch.testing.assert_close(
      from_run.act(obs), from_bundle.act(obs), atol=1e-5, rtol=0
    )
  assert from_run.info["iteration"] == 40 and from_run.info["seed"] == 3
  assert from_run.info["options"] == {"policy.hidden-dims": "32"}
  assert from_bundle.info["method"] == "decap"


def test_the_newest_checkpoint_is_taken(tmp_path):
  run(tmp_path)
  state = {"actor_state_dict": weights(1), "policy": description(), "iter": 80}
  checkpoint.save(checkpoint_files.path_for(tmp_path, 80), state)
  policy = load_policy(str(tmp_path))
  assert policy.info["iteration"] == 80
  obs = {"actor": torch.randn(4, SIZES[0])}
  torch.testing.assert_close(policy.act(obs), policy_from_state(state)(obs))


def test_barrier_options_name_the_row(tmp_path):
  constraints = {"rho": 0.9, "kappa": 3.0}
  policy = load_policy(str(bundle(tmp_path / "b", constraints=constraints)))
  assert policy.info["options"] == {"ρ": "0.9", "κ": "3"}


def test_every_other_override_names_the_row(tmp_path):
  overrides = ("--env.termination.rho", "0.9", "--env.termination.barrier=False")
  run(tmp_path, overrides)
  assert load_policy(str(tmp_path)).info["options"] == {"termination.barrier": "False"}


def test_standing_is_a_policy():
  info = load_policy("stand").info
  assert info["name"] == info["method"] == "stand" and info["options"] == {}


def test_a_policy_with_another_clock_is_told(tmp_path):
  clock = {"name": "clock", "dim": 2, "scale": [1.0] * 2, "clip": None}
  ours, theirs = (
    description(observations=[{**clock, "period_s": s}]) for s in (0.8, 0.6)
  )
  (difference,) = describe_differences(ours, theirs)
  assert difference == "period_s of observation clock is 0.8, not 0.6"
  # Bundles of the first schema do not tell.
  assert describe_differences(ours, description(observations=[clock])) == []


def test_weights_are_called_after_their_bundle(tmp_path):
  names = ("a/weights.pt", "run/checkpoints/model_5.pt")
  for name in names:
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).touch()
  called = [policy_name(str(tmp_path / name)) for name in names]
  assert called == ["a-weights", "run-model_5"]


def test_a_bundle_tells_as_much_of_its_run_as_the_run(tmp_path):
  path = tmp_path / "run"
  state = checkpoint.load(
    checkpoint_files.path_for(run(path, samples_per_iteration=240), 40)
  )
  state["run"] |= {"init_from": "/home/me/run", "init_sha256": "ab", "blind": True}
  checkpoint.save(checkpoint_files.path_for(path, 40), state)
  infos = [load_policy(str(path)).info]
  described = export_checkpoint(checkpoint_files.path_for(path, 40), path / "policy")
  infos += [load_policy(str(path / "policy")).info]
  for info in infos:
    expected = {"policy.hidden-dims": "32", "blind": "yes", "from": "a policy"}
    assert (info["options"], info["samples"]) == (expected, 40 * 240)
  assert "/home/me" not in str(described)


def test_overrides_that_end_alike_are_told_apart(tmp_path):
  rewards = "--env.rewards.gait.weight=0.5", "--env.rewards.alive.weight", "0.2"
  run(tmp_path, rewards)
  expected = {"gait.weight": "0.5", "alive.weight": "0.2"}
  assert load_policy(str(tmp_path)).info["options"] == expected


def test_overrides_of_several_values_keep_them_all(tmp_path):
  """The next option's name was taken for a value, and a value for a name."""
  speeds = ("--env.commands.twist.ranges.lin-vel-x", "-0.5", "1.0")
  run(tmp_path, (*speeds, "--env.termination.rho", "0.9"))
  info = load_policy(str(tmp_path)).info
  assert info["options"] == {"ranges.lin-vel-x": "-0.5 1.0"}
  whole = {speeds[0].removeprefix("--"): "-0.5 1.0", "env.termination.rho": "0.9"}
  assert info["changes"] == whole


def test_bundles_of_two_runs_are_two_policies(tmp_path):
  names = []
  for name in ("a", "b"):
    (tmp_path / name / "params").mkdir(parents=True)
    names.append(load_policy(str(bundle(tmp_path / name / "policy"))).info["name"])
  assert names == ["a-policy", "b-policy"]
  assert load_policy(str(tmp_path / "a")).info["name"] == "a"


def test_a_run_without_a_policy_is_refused(tmp_path):
  with pytest.raises(UserError, match="has no policy: neither checkpoints"):
    load_policy(str(tmp_path))
  with pytest.raises(UserError, match="no run folder, checkpoint or bundle"):
    load_policy(str(tmp_path / "nowhere"))


def test_a_damaged_bundle_is_refused(tmp_path):
  folder = bundle(tmp_path / "b")
  (folder / "policy.onnx").write_bytes(actor_to_onnx(weights(5), "elu", 1e-2))
  with pytest.raises(UserError, match="does not match the checksum"):
    load_policy(str(folder))


def differences(**changes):
  return describe_differences(description(**changes), description())


def test_equal_descriptions_have_no_differences():
  assert differences() == []
  assert differences(stiffness=[40.0000001, 20.0]) == []


def test_another_robot_is_named_by_its_joints():
  values = [0.0, 0.0, 0.0]
  found = differences(
    joint_names=["hip", "elbow", "wrist"], default_joint_pos=values, action_scale=values
  )
  assert found == ["its robot has 3 joints, not 2 (wrist)"]
  assert differences(joint_names=["elbow", "hip"]) == [
    "its robot has 2 joints, not 2 in another order"
  ]


def test_another_scale_pose_or_rate_is_named():
  assert differences(action_scale=[0.5, 0.25]) == [
    "action_scale of elbow is 0.25, not 0.4"
  ]
  assert differences(default_joint_pos=[0.0, -0.2]) == [
    "default_joint_pos of hip is 0.0, not 0.1"
  ]
  assert differences(control_dt_s=0.01) == ["control_dt_s is 0.01, not 0.02"]


def test_of_each_kind_of_number_the_first_is_named():
  assert differences(stiffness=[1.0, 1.0], damping=[0.0, 0.0]) == [
    "stiffness of hip is 1.0, not 40.0",
    "damping of hip is 0.0, not 2.0",
  ]


def test_another_observation_layout_is_named():
  observations = copy.deepcopy(description()["observations"])
  observations[0]["name"], observations[0]["dim"] = "imu", 4
  assert differences(observations=observations) == [
    "it observes [imu 4, joint_pos 2, actions 2], "
    "not [base_ang_vel 3, joint_pos 2, actions 2]"
  ]
  observations = copy.deepcopy(description()["observations"])
  observations[1]["scale"] = [0.05, 0.05]
  assert differences(observations=observations) == [
    "scale of observation joint_pos is [0.05, 0.05], not [1.0, 1.0]"
  ]
  observations[1] |= {"scale": [1.0, 1.0], "clip": [-1.0, 1.0]}
  assert differences(observations=observations) == [
    "clip of observation joint_pos is [-1.0, 1.0], not None"
  ]


def test_other_onnx_graphs_are_refused():
  from onnx import TensorProto, helper

  ends = [
    helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 2]) for n in ("obs", "y")
  ]
  graph = helper.make_graph(
    [helper.make_node("Cos", ["obs"], ["y"])], "g", ends[:1], ends[1:]
  )
  model = helper.make_model(graph)
  with pytest.raises(UserError, match="operator Cos"):
    torch_from_onnx(model.SerializeToString())


def test_a_network_is_no_secret_state(tmp_path):
  """Evaluation mode: two calls with the same input give the same action."""
  policy = load_policy(str(run(tmp_path)))
  assert isinstance(policy.act, nn.Module) and not policy.act.training
  obs = {"actor": torch.randn(3, SIZES[0])}
  torch.testing.assert_close(policy.act(obs), policy.act(obs), rtol=0, atol=0)
  json.dumps(policy.info)
