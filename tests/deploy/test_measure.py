import math

import numpy as np
import pytest
import torch

from decap.constraints import quantities
from decap.deploy.measure import (
  followed,
  gyro_rms,
  joint_metrics,
  joint_quantities,
  speed_over_time,
)
from decap.deploy.sim2sim import Trace

DT = 0.02


def make_trace(steps: int = 5, joints: int = 3) -> Trace:
  rng = np.random.default_rng(0)
  shape = steps, joints
  times = np.arange(steps * 4) * DT / 4
  return Trace(
    joint_names=tuple("abc"[:joints]),
    control_dt_s=DT,
    action_scale=np.array([0.5, 1.0, 2.0])[:joints],
    arrays={
      "time_s": np.arange(steps) * DT,
      **{name: rng.normal(size=shape) for name in ("q", "dq", "torque", "action")},
      "command": np.tile((0.5, 0.0, 0.1), (steps, 1)),
      "velocity": np.tile((0.25, 0.3, 0.0), (steps, 1)),
      "qpos": np.zeros((steps, 10)),
    },
    gyros={"head": (times, np.tile((3.0, 4.0, 12.0), (len(times), 1)))},
    fell=False,
    stop_reason="",
  )


def test_joint_quantities_are_those_of_training():
  trace = make_trace()
  ours = joint_quantities(trace)
  action, dq, torque = (
    torch.from_numpy(trace.arrays[name]) for name in ("action", "dq", "torque")
  )
  scale = torch.from_numpy(trace.action_scale)
  reference = {
    "action_rate": quantities.action_rate(action[1:], action[:-1], scale, DT),
    "joint_acc": quantities.joint_acceleration(dq[1:], dq[:-1], DT),
    "joint_vel": quantities.joint_velocity(dq[1:]),
    "energy": quantities.energy(torque[1:], dq[1:]),
  }
  assert ours.keys() == reference.keys()
  for name, values in reference.items():
    np.testing.assert_allclose(ours[name], values.numpy())


def test_groups_average_their_joints():
  trace = make_trace()
  found = joint_metrics(trace, {"one": ["b"], "two": ["a", "c"]})
  values = joint_quantities(trace)["joint_acc"]
  assert found["one"]["joint_acc"] == pytest.approx(values[:, 1].mean())
  assert found["two"]["joint_acc"] == pytest.approx(values[:, [0, 2]].mean())


def test_gyro_rms_is_of_the_whole_vector():
  assert gyro_rms(make_trace())["head"] == pytest.approx(13.0)  # 3, 4, 12.


def test_speed_over_time_takes_axes_and_steps():
  trace = make_trace()
  trace.gyros["head"][1][:4] = 0.0  # The first control step.
  planar = speed_over_time(trace, "head", axes=2)
  np.testing.assert_allclose(planar, [0.0, 5.0, 5.0, 5.0, 5.0])


def test_followed_is_the_part_along_the_command():
  trace = make_trace()
  assert followed(trace) == pytest.approx(0.5)  # 0.25 of 0.5; sideways is no part.
  trace.arrays["command"][:] = 0.0
  assert math.isnan(followed(trace))
