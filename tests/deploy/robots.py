"""Parts that tests of the controller share: a released policy, and an ideal robot."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from decap.deploy.bundle import Bundle, load_bundle
from decap.deploy.robot_io import COMMAND_DT_S, RobotCommand, RobotState
from decap.robots.g1_motors import g1_motors

POLICY = Path(__file__).parents[2] / "policies" / "g1-flat-cat"
MOTORS = g1_motors(29)
J = len(MOTORS.motors)


@lru_cache(maxsize=1)
def released() -> Bundle:
  return load_bundle(POLICY)


def plain_onnx() -> bytes:
  """The released network without a description inside."""
  import onnx

  model = onnx.load_from_string((POLICY / "policy.onnx").read_bytes())
  del model.metadata_props[:]
  return model.SerializeToString()


def state(now_s: float = 0.0, **changes) -> RobotState:
  """A healthy state of a robot that stands; no two times look the same."""
  values = dict(
    q=MOTORS.array("default_pos") + 1e-6 * np.sin(1e3 * now_s),
    dq=np.zeros(J),
    tau_est=np.zeros(J),
    quat=np.array([1.0, 0.0, 0.0, 0.0]),
    gyro=1e-6 * np.sin([1e3 * now_s, 0.0, 0.0]),
    acc=np.array([0.0, 0.0, 9.81]),
    temperature=np.full(J, 40.0),
    mode_machine=5,
    tick=round(now_s * 1000),
    stamp_s=now_s,
  )
  return RobotState(**{**values, **changes})


class IdealRobot:
  """Joints follow their targets slowly, within their range; time passes when slept."""

  joint_names = MOTORS.joint_names
  mode_machine: int | None = None

  def __init__(self) -> None:
    self.time_s = 0.0
    self.q = MOTORS.array("default_pos") + 0.3
    self._span = MOTORS.array("position_limits").T
    self.written: list[RobotCommand] = []
    self.changes: dict = {}
    self.silent = False
    self.rejected = self.foreign = 0

  def read(self):
    if self.silent:
      return None
    q = self.q + 1e-6 * np.sin(1e3 * self.time_s)
    return state(self.time_s, **{"q": q, **self.changes})

  def write(self, command):
    self.written.append(command)
    if command.kp.any():
      self.q = np.clip(self.q + 0.01 * (command.q_target - self.q), *self._span)

  def now_s(self):
    return self.time_s

  def sleep_until(self, time_s):
    self.time_s = max(self.time_s, time_s)

  def rejected_states(self):
    return self.rejected

  def foreign_commands(self):
    return self.foreign

  def close(self):
    pass


CYCLES_PER_S = round(1 / COMMAND_DT_S)
