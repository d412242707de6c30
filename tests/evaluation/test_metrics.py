"""Metrics against hand-computed values and an independent NumPy implementation."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from decap.errors import UserError
from decap.evaluation.metrics import Metrics, measure
from decap.evaluation.protocol import COMMANDS
from decap.evaluation.trajectory import SAMPLE_FIELDS, Sample, load_trajectory
from tests.evaluation import reference
from tests.evaluation.synthetic import (
  LAYOUT,
  make_trajectory,
  measured,
  metrics_of_trajectory,
)


def flatten(result, segment="torso"):
  """The figures of a result under the names of the reference."""
  out = {}
  for group, values in result["smoothness"].items():
    for name, value in values.items():
      out[f"{group}/{name}"], out[f"{group}/{name}/std"] = value["mean"], value["std"]
  for group, values in result["violations"].items():
    for name, value in values.items():
      out[f"{group}/{name}/any"] = value["any_joint"]["mean"]
      out[f"{group}/{name}/any/std"] = value["any_joint"]["std"]
      out[f"{group}/{name}/joints"] = value["joint_steps"]["mean"]
  for name, value in result["tracking"].items():
    out[name], out[f"{name}/std"] = value["mean"], value["std"]
  out |= {f"gait/{name}": value["mean"] for name, value in result["gait"].items()}
  for axis in ("x", "norm"):
    turning = result["angular_velocity"][segment][axis]["mean"]
    out[f"angular_velocity/{axis}"] = turning
  out |= {name: result[name]["mean"] for name in ("head_jerk", "drift")}
  out["falls"] = result["falls_per_minute"]["mean"]
  out["delta"] = result["delta"]["mean"]["mean"]
  out |= {f"share/{name}": value for name, value in result["delta"]["share"].items()}
  out |= {f"jitter/{group}": value for group, value in result["jitter"].items()}
  return out


@pytest.mark.parametrize("seed", [0, 1])
def test_an_independent_implementation_gets_the_same_figures(seed):
  trajectory = make_trajectory(rollouts=3, envs=4, steps=200, seed=seed)
  ours = flatten(metrics_of_trajectory(trajectory))
  theirs = reference.metrics(trajectory)
  assert ours.keys() == theirs.keys()
  for name, value in ours.items():
    assert value == pytest.approx(theirs[name], rel=2e-5, abs=1e-9), name


def test_a_stored_trajectory_is_the_same(tmp_path):
  trajectory = measured(make_trajectory())
  trajectory.save(tmp_path / "t.npz")
  loaded = load_trajectory(tmp_path / "t.npz")
  for name, array in trajectory.arrays.items():
    np.testing.assert_array_equal(loaded.arrays[name], array)
  assert loaded.layout == trajectory.layout


def sample(action=(0, 0, 0), vel=(0, 0, 0), torque=(0, 0, 0), fell=False, **changes):
  def row(values):
    return torch.tensor([values], dtype=torch.float32)

  values = {
    "action": row(action),
    "joint_pos": row((0, 0, 0)),
    "joint_vel": row(vel),
    "joint_vel_before": row(vel),
    "joint_torque": row(torque),
    "base_velocity": row((0, 0, 0)),
    "command": row((0, 0, 0)),
    "contact": torch.ones(1, 2, dtype=torch.bool),
    "angular_velocity": torch.zeros(1, 2, 3),
    "base_position": row((0, 0, 0)),
    "head_position": row((0, 0, 0)),
    "fell": torch.tensor([fell]),
    "timed_out": torch.tensor([False]),
  }
  return Sample(**values | changes)


def test_tracking_errors_by_hand():
  """Two steps; told to stand, the robot moves by 0.3, 0.4 m/s and 0.2 rad/s, then not."""
  metrics = Metrics(LAYOUT, rollouts=1, envs=1, warmup=0)
  metrics.add(sample(base_velocity=torch.tensor([[0.3, -0.4, 0.2]])))
  metrics.add(sample())
  found = {k: v["mean"] for k, v in metrics.result()["tracking"].items()}
  assert found["error_x"] == pytest.approx(0.15)
  assert found["error_y"] == pytest.approx(0.2)
  assert found["error_xy"] == pytest.approx(0.25)
  assert found["error_yaw"] == pytest.approx(0.1)
  assert found["mae_xy"] == pytest.approx(0.175)


def test_the_jitter_of_a_group_is_its_joints_share_above_five_hertz():
  metrics = Metrics(LAYOUT, rollouts=1, envs=1, warmup=0)
  power = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 9.0]])
  found = metrics._jitter(torch.tensor([1.0, 10.0]), power)
  assert found == {"upper": pytest.approx(9 / 12), "lower": pytest.approx(3 / 6)}


def test_values_by_hand():
  """Two steps of one environment; the first has no action rate and no 20 ms change."""
  metrics = Metrics(LAYOUT, rollouts=1, envs=1, warmup=0)
  metrics.add(sample(action=(1, 1, 1), vel=(0, 0, 1.0), torque=(0, 0, 3.0)))
  metrics.add(sample(action=(1, 1, 2), vel=(0, 0, 1.6), torque=(0, 0, 5.0)))
  upper = metrics.result()["smoothness"]["upper"]
  # (2 - 1) · 0.4 / 0.02 = 20 rad/s on one step of two.
  assert upper["action_rate"]["mean"] == pytest.approx(10.0)
  # 0.6 / 0.02 = 30 rad/s² on one step of two; nothing within the last substep.
  assert upper["joint_acc_20ms"]["mean"] == pytest.approx(15.0)
  assert upper["joint_acc"]["mean"] == 0.0
  assert upper["joint_vel"]["mean"] == pytest.approx(1.3)
  assert upper["energy"]["mean"] == pytest.approx((3.0 + 8.0) / 2)
  violations = metrics.result()["violations"]
  # 20 > 5 rad/s, 5 > 4 Nm and 1.6 > 1.5 rad/s on the second step.
  for name in ("action_rate", "joint_torque", "joint_vel"):
    assert violations["upper"][name]["any_joint"]["mean"] == 0.5
    assert violations["lower"][name]["any_joint"]["mean"] == 0.0


def test_one_joint_of_two_is_half_of_the_joint_steps():
  metrics = Metrics(LAYOUT, rollouts=1, envs=1, warmup=0)
  metrics.add(sample(torque=(21.0, 0, 0)))
  violation = metrics.result()["violations"]["lower"]["joint_torque"]
  assert violation["any_joint"]["mean"] == 1.0
  assert violation["joint_steps"]["mean"] == 0.5


def test_a_value_at_the_limit_is_no_violation():
  metrics = Metrics(LAYOUT, rollouts=1, envs=1, warmup=0)
  metrics.add(sample(torque=(20.0, 0, 4.0)))
  violations = metrics.result()["violations"]
  assert violations["lower"]["joint_torque"]["any_joint"]["mean"] == 0.0
  assert violations["upper"]["joint_torque"]["any_joint"]["mean"] == 0.0


def test_steps_after_a_reset_do_not_count():
  """Warm-up 2: of steps 0 1 2 3* 4 5 6 (* falls) only 2, 3 and 6 count."""
  metrics = Metrics(LAYOUT, rollouts=1, envs=1, warmup=2)
  for step in range(7):
    metrics.add(sample(vel=(0, 0, float(step)), fell=step == 3))
  result = metrics.result()
  assert result["smoothness"]["upper"]["joint_vel"]["mean"] == pytest.approx(
    (2 + 3 + 6) / 3
  )
  assert result["counted_share"] == pytest.approx(3 / 7)
  # One fall in 7 · 0.02 s.
  assert result["falls_per_minute"]["mean"] == pytest.approx(60 / 0.14)


def test_standing_still_is_scored_from_the_commands():
  command = torch.tensor([[0.5, 0.0, 0.2]])
  metrics = Metrics(LAYOUT, rollouts=1, envs=1, warmup=0)
  metrics.add(sample(command=command, base_velocity=command.clone()))
  result = metrics.result()
  assert result["tracking"]["return_xy"]["mean"] == pytest.approx(30.0)
  assert result["standing_still"]["mae_xy"]["mean"] == pytest.approx(0.25)
  assert result["standing_still"]["followed"]["mean"] == 0.0
  # 30 · exp(-0.25 / 0.25)
  assert result["standing_still"]["return_xy"]["mean"] == pytest.approx(11.0364, 1e-5)


MORE = dataclasses.replace(
  LAYOUT,
  limits={**LAYOUT.limits, "strain": {"upper": 1.0, "lower": 1.0}, "tilt": 0.5},
  scalar_p_max={"tilt": 0.5},
)
"""With a quantity of our own per joint, and one of the whole robot."""


def quantities(strain=(0.0, 0.0, 0.0), tilt=0.0):
  return {"strain": torch.tensor([strain]), "tilt": torch.tensor([tilt])}


@pytest.mark.parametrize(
  "broken",
  [
    sample(vel=(0, 0, float("nan")), quantities=quantities()),
    sample(torque=(0, float("inf"), 0), quantities=quantities()),
    # Both are finite, and their product is not.
    sample(vel=(0, 0, 1e30), torque=(0, 0, 1e30), quantities=quantities()),
    sample(quantities=quantities(strain=(0.0, float("nan"), 0.0))),
    sample(quantities=quantities(tilt=float("nan"))),
    sample(base_velocity=torch.tensor([[0, np.nan, 0]]), quantities=quantities()),
  ],
)
def test_a_broken_step_is_counted_and_left_out(broken):
  metrics = Metrics(MORE, rollouts=1, envs=1, warmup=0)
  for step in (sample(vel=(0, 0, 1.0), quantities=quantities()), broken, broken):
    metrics.add(step)
  result = metrics.result()
  assert result["smoothness"]["upper"]["joint_vel"]["mean"] == 1.0
  assert result["tracking"]["mae_xy"]["mean"] == 0.0
  assert result["non_finite_steps"] == 2
  assert result["counted_share"] == 1.0
  assert "NaN" not in json.dumps(result)


def test_quantities_of_a_task_of_its_own():
  metrics = Metrics(MORE, rollouts=1, envs=1, warmup=0)
  metrics.add(sample(quantities=quantities((0.0, 0.4, 1.2), tilt=0.25)))
  metrics.add(sample(quantities=quantities((0.0, 0.0, 0.0), tilt=0.75)))
  result = metrics.result()
  assert result["smoothness"]["lower"]["strain"]["mean"] == pytest.approx(0.1)
  assert result["joints"]["elbow"]["strain"] == pytest.approx(0.6)
  assert result["violations"]["upper"]["strain"]["any_joint"]["mean"] == 0.5
  assert result["scalars"]["tilt"]["mean"]["mean"] == 0.5
  assert result["scalars"]["tilt"]["violations"]["mean"] == 0.5
  assert result["commands"] == {}
  bins = Metrics(LAYOUT, rollouts=1, envs=1, warmup=0, per_command=2).bins
  assert (bins.commands, bins.robots) == (len(COMMANDS), 2)
  with pytest.raises(UserError, match="a limit of 'strain', but nothing measured it"):
    measure(sample(), torch.zeros(1, 3), torch.zeros(1, 3), torch.ones(3), MORE)


def pair(first: Sample, second: Sample) -> Sample:
  """Two environments in one step."""
  return Sample(
    **{
      name: torch.cat((getattr(first, name), getattr(second, name)))
      for name in SAMPLE_FIELDS
    }
  )


def test_rollouts_are_counted_together():
  """Warm-up 1; the second of two robots falls at once, and is broken at the end."""
  metrics = Metrics(LAYOUT, rollouts=2, envs=1, warmup=1)
  bad = sample(vel=(0, 0, float("nan")))
  metrics.add(pair(sample(), sample(fell=True)))
  metrics.add(pair(sample(vel=(0, 0, 1.0)), sample()))
  metrics.add(pair(sample(vel=(0, 0, 1.0)), sample(vel=(0, 0, 4.0))))
  metrics.add(pair(bad, bad))
  result = metrics.result()
  assert result["counted_share"] == pytest.approx(3 / 6)
  assert result["non_finite_steps"] == 2
  # The mean of both means, 1 and 4.
  assert result["joints"]["elbow"]["joint_vel"] == pytest.approx(2.5)


def test_jitter_tells_a_slow_sine_from_a_fast_one():
  """One joint at 2.5 Hz, one at 10 Hz, one at both with amplitudes 2 and 1: 1/5."""
  metrics = Metrics(LAYOUT, rollouts=1, envs=1, warmup=0)
  for step in range(192):
    slow, fast = np.sin(2 * np.pi * np.array([2.5, 10.0]) * step * 0.02)
    metrics.add(sample(action=(slow, fast, 2 * slow + fast)))
  joints = metrics.result()["joints"]
  assert joints["hip"]["jitter"] == pytest.approx(0.0, abs=1e-3)
  assert joints["knee"]["jitter"] == pytest.approx(1.0, abs=1e-3)
  assert joints["elbow"]["jitter"] == pytest.approx(0.2, abs=0.01)


def test_the_spectrum_keeps_the_variance():
  """The density integrates to the variance: a sine of amplitude 1 has 1/2."""
  metrics = Metrics(LAYOUT, rollouts=1, envs=1, warmup=0)
  for step in range(256):
    wave = np.sin(2 * np.pi * 3.125 * step * 0.02)
    metrics.add(sample(action=(2 * wave, 0, 0), vel=(0, wave, wave)))
  spectra = metrics.result()["spectra"]

  def variance(group, name):
    density = np.array(spectra["groups"][group][name])
    return density.sum() * spectra["frequency_hz"][1]

  assert variance("upper", "joint_vel") == pytest.approx(0.5, rel=0.01)
  # The mean over both joints, of which one rests. 2 · 0.5 rad per unit of action.
  assert variance("lower", "joint_vel") == pytest.approx(0.25, rel=0.01)
  assert variance("lower", "action") == pytest.approx(0.25, rel=0.01)


@pytest.mark.parametrize(
  ("warmup", "fall", "broken", "windows"),
  [
    (0, None, None, 2),  # They end with steps 128 and 192.
    (64, None, None, 1),  # From step 65 on all count, as many as a window has.
    (65, None, None, 0),
    (0, 63, None, 1),  # An episode begins with step 65,
    (0, 64, None, 0),  # … with step 66.
    (0, None, 62, 1),  # Steps 63 and 64 are left out: one has no step before it.
    (0, None, 63, 0),
  ],
)
def test_a_window_of_the_spectrum_counts_as_a_whole(warmup, fall, broken, windows):
  metrics = Metrics(LAYOUT, rollouts=1, envs=1, warmup=warmup)
  for step in range(192):
    speed = float("nan") if step == broken else float(step % 2)
    metrics.add(sample(vel=(0, 0, speed), fell=step == fall))
  spectra = metrics.result()["spectra"]
  assert spectra["windows"] == windows
  assert np.isfinite(spectra["groups"]["upper"]["joint_vel"]).all()


def test_histograms_hold_every_counted_joint_step():
  trajectory = make_trajectory()
  result = metrics_of_trajectory(trajectory)
  counts = np.array(result["histograms"]["counts"]["lower"]["joint_vel"])
  assert counts.sum() == trajectory.valid.sum() * 2
  speed = np.abs(trajectory.joint_vel)[..., :2][trajectory.valid]
  assert counts[:40].sum() == (speed < 10.0).sum()


def test_a_nan_is_null_in_json():
  metrics = Metrics(LAYOUT, rollouts=1, envs=1, warmup=5)
  metrics.add(sample())
  result = metrics.result()
  assert result["smoothness"]["upper"]["action_rate"]["mean"] is None
  assert "NaN" not in json.dumps(result)
