"""The bundle that a training, or `decap export`, writes."""

import json

import numpy as np
import pytest
import torch

from decap.cli import main
from decap.deploy.bundle import load_bundle
from decap.rl import checkpoint, checkpoint_files
from decap.rl.modules import policy_from_state


def test_a_run_and_its_bundle_remember_what_made_them(run):
  history = (run / "params" / "history.jsonl").read_text().splitlines()
  first = json.loads(history[0])
  assert first["iteration"] == 0 and first["command"].startswith("decap")
  info = json.loads((run / "policy" / "policy.json").read_text())
  made = info["made_by"]
  assert made == {k: v for k, v in first.items() if k != "iteration"}
  assert made["versions"]["torch"] == torch.__version__.split("+")[0] or (
    made["versions"]["torch"] == torch.__version__
  )


def test_the_bundle_acts_as_the_trained_policy(run):
  bundle = load_bundle(run / "policy")
  policy = policy_from_state(checkpoint.load(checkpoint_files.resolve(run)))
  dim = sum(term.dim for term in bundle.observations)
  obs = torch.randn(1000, dim)
  assert bundle.observations[-1].name == "clock"
  obs[:, -2:] *= (obs[:, 6:9].norm(dim=1, keepdim=True) > 0.1).float()
  with torch.no_grad():
    expected = policy({"actor": obs}).numpy()
  np.testing.assert_allclose(bundle.act(obs.numpy()), expected, rtol=1e-5, atol=1e-5)


def test_the_bundle_describes_the_robot(run):
  info = json.loads((run / "policy" / "policy.json").read_text())
  by_name = {
    name: tuple(info[key][i] for key in ("stiffness", "damping", "action_scale"))
    for i, name in enumerate(info["joint_names"])
  }
  # mjlab's gains and scale, 0.25 · effort / kp; the knee's effort limit is 139 Nm.
  assert len(by_name) == 29
  kp, kd, scale = by_name["left_knee_joint"]
  assert kp == pytest.approx(99.10, abs=0.01) and kd == pytest.approx(6.309, abs=0.01)
  assert scale == pytest.approx(0.25 * 139 / kp, rel=1e-4)
  assert by_name["left_elbow_joint"][2] == pytest.approx(0.4386, abs=1e-4)
  knee = info["joint_names"].index("left_knee_joint")
  assert info["default_joint_pos"][knee] == pytest.approx(0.3)
  assert info["effort_limit"][knee] == pytest.approx(139.0)
  terms = [(term["name"], term["dim"]) for term in info["observations"]]
  assert terms == [
    ("base_ang_vel", 3),
    ("projected_gravity", 3),
    ("command", 3),
    ("joint_pos", 29),
    ("joint_vel", 29),
    ("actions", 29),
    ("clock", 2),
  ]
  clock = info["observations"][-1]
  assert info["schema"] == 2
  assert (clock["period_s"], clock["command_threshold"]) == (0.8, 0.1)
  assert info["control_dt_s"] == 0.02 and info["physics_dt_s"] == 0.005
  assert info["command_ranges"]["twist"]["lin_vel_x"] == [-0.5, 1.0]
  limits = info["constraints"]["limits"]
  assert limits["joint_acc"] == {"upper": 20.0, "lower": 600.0}
  upper = info["constraints"]["groups"]["upper"]
  assert upper["p_max"] == 0.5 and "left_wrist_yaw_joint" in upper["joint_names"]
  assert info["iteration"] == 2 and info["method"] == "decap"


def test_export_writes_another_folder(run, tmp_path, capsys):
  assert main(["export", str(run), "--output", str(tmp_path / "bundle")]) == 0
  assert "iteration 2, 29 joints at 50 Hz" in capsys.readouterr().out
  original = (run / "policy" / "policy.onnx").read_bytes()
  assert (tmp_path / "bundle" / "policy.onnx").read_bytes() == original
  # What others load is there too.
  assert b"joint_stiffness" in original and b"observation_names" in original
  assert "joint_ids_map: [0, 1, 2," in (tmp_path / "bundle" / "deploy.yaml").read_text()
