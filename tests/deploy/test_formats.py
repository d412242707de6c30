"""What others load: each reader, by its own rules, sees the policy that we mean."""

import copy
import math

import numpy as np
import onnxruntime
import pytest

from decap.deploy.bundle import load_bundle, write_bundle
from decap.deploy.mjlab_format import metadata
from decap.deploy.observation import Inputs, ObservationBuilder
from decap.deploy.policy import RunningPolicy
from decap.deploy.unitree_format import deploy_yaml, is_expressible
from decap.errors import UserError
from decap.export import with_metadata
from decap.robots.g1_motors import g1_motors

from .readers import MjlabMetadata, RlLab
from .robots import plain_onnx, released, state
from .test_observation import _bundle, _term

# By hand, with three joints in an order that is neither slots' nor alphabetical: the
# left knee is slot 3, the right hip's roll slot 7, the waist's yaw slot 12.
HAND_YAML = """
joint_ids_map: [12, 3, 7]
step_dt: 0.02
stiffness: [0, 0, 0, 150.0, 0, 0, 0, 90.0, 0, 0, 0, 0, 200.0]
damping: [0, 0, 0, 4.0, 0, 0, 0, 3.0, 0, 0, 0, 0, 5.0]
default_joint_pos: [0.1, 0.3, -0.2]
commands: {base_velocity: {ranges: {lin_vel_x: [-0.5, 1.0], lin_vel_y: [-0.3, 0.3],
  ang_vel_z: [-0.2, 0.2], heading: null}}}
actions:
  JointPositionAction:
    {clip: null, joint_names: [.*], scale: [0.5, 0.25, 1.0], offset: [0.1, 0.3, -0.2],
     joint_ids: null}
observations:
  gait_phase: {params: {period: 0.8}, clip: null, scale: [1.0, 1.0], history_length: 1}
  joint_pos_rel: {params: {}, clip: [-1.0, 1.0], scale: [2.0, 2.0, 2.0],
    history_length: 1}
  velocity_commands: {params: {}, clip: null, scale: [1.0, 1.0, 1.0], history_length: 1}
"""
HAND_INFO = {
  "task": "t",
  "method": "m",
  "joint_names": ["waist_yaw_joint", "left_knee_joint", "right_hip_roll_joint"],
  "stiffness": [200.0, 150.0, 90.0],
  "damping": [5.0, 4.0, 3.0],
  "default_joint_pos": [0.1, 0.3, -0.2],
  "action_scale": [0.5, 0.25, 1.0],
  "control_dt_s": 0.02,
  "command_ranges": {
    "twist": {
      "lin_vel_x": [-0.5, 1.0],
      "lin_vel_y": [-0.3, 0.3],
      "ang_vel_z": [-0.2, 0.2],
    }
  },
  "observations": [
    _term("clock", 2, period_s=0.8),
    _term("joint_pos", 3, scale=[2.0] * 3, clip=[-1.0, 1.0]),
    _term("command", 3),
  ],
}


def _seen(reader: RlLab) -> dict:
  return {
    "targets": reader.targets([1.0, 2.0, 3.0]),
    "kp": {slot: reader.kp[slot] for slot in reader.map},
    "kd": {slot: reader.kd[slot] for slot in reader.map},
    "observation": reader.observe(
      q={12: 9.0, 3: 0.5, 7: 0.0},
      dq={},
      gyro=[],
      gravity=[],
      stick=[0.9, -0.9, 0.0],
      last_action=[],
    ),
    "dt": reader.step_dt,
  }


def test_the_reader_itself_reads_a_file_written_by_hand():
  seen = _seen(RlLab(HAND_YAML))
  assert seen["targets"] == pytest.approx({12: 0.6, 3: 0.8, 7: 2.8})
  assert seen["kp"] == {12: 200.0, 3: 150.0, 7: 90.0}
  angle = 2 * math.pi * 0.02 / 0.8  # It advances before the first output.
  expected = [math.sin(angle), math.cos(angle), 2.0, 0.4, 0.4, 0.9, -0.3, 0.0]
  assert seen["observation"] == pytest.approx(expected)


def test_what_we_write_reads_like_the_file_written_by_hand():
  assert _seen(RlLab(deploy_yaml(HAND_INFO))) == _seen(RlLab(HAND_YAML))


@pytest.mark.parametrize("dof", [29, 23])
def test_rl_lab_s_controller_would_do_what_ours_does(dof):
  """The same state and action on both sides, joints in another order than the slots."""
  motors, bundle = g1_motors(dof), copy.copy(released())
  random = np.random.default_rng(dof)
  order = random.permutation([bundle.joint_names.index(n) for n in motors.joint_names])
  per_joint = ("joint_names", "default_joint_pos", "stiffness", "damping")
  bundle.info = {
    **bundle.info,
    **{k: [bundle.info[k][i] for i in order] for k in (*per_joint, "action_scale")},
    "observations": [
      _term("base_ang_vel", 3, scale=[0.2] * 3),
      _term("projected_gravity", 3),
      _term("command", 3),
      _term("joint_pos", dof),
      _term("joint_vel", dof, scale=[0.05] * dof),
      _term("actions", dof),
    ],
  }
  action = random.normal(size=dof)
  robot = state(gyro=np.array([0.1, -0.2, 0.3]))
  robot.q, robot.dq = random.normal(size=(2, dof))
  policy = RunningPolicy(bundle, motors.joint_names)
  reader = RlLab(deploy_yaml(bundle.info))
  by_slot = lambda values: dict(zip(motors.slots, values, strict=True))  # noqa: E731
  command = np.array([0.4, 0.0, 0.1])
  ours = ObservationBuilder(bundle).build(
    Inputs(
      robot,
      robot.q[policy._order] - bundle.default_joint_pos,
      robot.dq[policy._order],
      command,
      action,
      0,
    )
  )
  theirs = reader.observe(
    by_slot(robot.q), by_slot(robot.dq), robot.gyro, [0, 0, -1], command, action
  )
  np.testing.assert_allclose(ours[0], theirs, rtol=1e-5, atol=1e-6)
  targets = policy._to_robot(bundle.targets(action))
  assert reader.targets(action) == pytest.approx(by_slot(targets))
  assert {s: reader.kp[s] for s in motors.slots} == by_slot(policy.kp)
  assert {s: reader.kd[s] for s in motors.slots} == by_slot(policy.kd)
  empty = set(reader.kp) - set(motors.slots)
  assert all(reader.kp[slot] == 0.0 for slot in empty)


def test_policies_that_their_controller_cannot_run_are_not_offered():
  assert is_expressible(released().info) and is_expressible(HAND_INFO)
  foreign = {**HAND_INFO, "joint_names": ["FL_hip_joint", "a", "b"]}
  assert not is_expressible(foreign)
  with pytest.raises(UserError, match="does not know"):
    deploy_yaml(foreign)
  assert not is_expressible(_bundle([_term("height_scan", 9)]).info)


# mjlab's own text for the same three joints, rounded to three decimals as it does.
HAND_PROPERTIES = {
  "run_path": "t/m",
  "joint_names": "waist_yaw_joint,left_knee_joint,right_hip_roll_joint",
  "joint_stiffness": "200.000,150.000,90.000",
  "joint_damping": "5.000,4.000,3.000",
  "default_joint_pos": "0.100,0.300,-0.200",
  "command_names": "twist",
  "observation_names": "clock,joint_pos,command",
  "observation_terms_scale": "1.000,2.000,1.000",
  "observation_terms_flatten_history_dim": "True,True,True",
  "observation_terms_history_length": "0,0,0",
  "observation_terms_clip": "-inf;inf,-1.000;1.000,-inf;inf",
  "action_scale": "0.500,0.250,1.000",
}


def test_mjlab_s_properties_read_like_those_written_by_hand():
  ours, theirs = MjlabMetadata(metadata(HAND_INFO)), MjlabMetadata(HAND_PROPERTIES)
  assert vars(ours) == vars(theirs)
  assert theirs.kp["left_knee_joint"] == 150.0
  assert theirs.scale["right_hip_roll_joint"] == 1.0
  assert theirs.clip[1] == (-1.0, 1.0) and theirs.clip[0][1] == math.inf
  assert set(HAND_PROPERTIES) <= set(metadata(HAND_INFO))


def test_keys_are_those_that_mjlab_writes():
  import inspect

  from mjlab.rl import exporter_utils

  source = inspect.getsource(exporter_utils.get_base_metadata)
  for key in HAND_PROPERTIES:
    assert f'"{key}":' in source
  text = exporter_utils.list_to_csv_str([1.0, [2.0, math.inf], "a"])
  assert text == "1.000,2.000;inf,a"


def test_an_edited_description_is_found(tmp_path):
  info = {k: v for k, v in released().info.items() if k != "onnx_sha256"}
  write_bundle(tmp_path / "a", with_metadata(plain_onnx(), info), info)
  assert load_bundle(tmp_path / "a").joint_names == released().joint_names
  path = tmp_path / "a" / "policy.json"
  text = path.read_text()
  first = repr(info["stiffness"][0])
  path.write_text(text.replace(first, "300.0", 1))
  with pytest.raises(UserError, match="was changed after the export: joint_stiffness"):
    load_bundle(tmp_path / "a")


def test_properties_inside_the_model_are_exact_and_change_nothing_else():
  plain = plain_onnx()
  info = released().info
  full = with_metadata(plain, info)
  session = onnxruntime.InferenceSession(full, providers=["CPUExecutionProvider"])
  properties = session.get_modelmeta().custom_metadata_map
  reader = MjlabMetadata(properties)
  assert reader.names == info["joint_names"]
  assert list(reader.kp.values()) == info["stiffness"]  # To the last digit.
  assert list(reader.default.values()) == info["default_joint_pos"]
  assert float(properties["control_dt_s"]) == info["control_dt_s"]
  bounds = info["command_ranges"]["twist"]["lin_vel_x"]
  assert properties["command_range.twist.lin_vel_x"] == ",".join(map(str, bounds))
  obs = np.random.default_rng(0).normal(size=(3, full_size(session))).astype(np.float32)
  np.testing.assert_array_equal(session.run(None, {"obs": obs})[0], released().act(obs))


def full_size(session) -> int:
  return session.get_inputs()[0].shape[-1]
