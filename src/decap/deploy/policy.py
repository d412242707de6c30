"""A policy at work: state and command in, joint targets out, in the robot's order."""

from __future__ import annotations

import time

import numpy as np

from decap.deploy.bundle import Bundle
from decap.deploy.latency import Latency
from decap.deploy.observation import Inputs, ObservationBuilder
from decap.deploy.robot_io import POLICY_DT_S, RobotState
from decap.deploy.robots import motors_for
from decap.errors import UserError

MOST_COMMANDED = 10.0
"""m/s and rad/s; no policy of such a robot was trained for more."""
GAIN_FACTOR = 10.0
"""Gains are at most this many times those of the motor table, and at least one such part."""

_RANGES = ("lin_vel_x", "lin_vel_y", "ang_vel_z")


class RunningPolicy:
  """One bundle on one robot: its order of joints, its previous action, its clock."""

  def __init__(self, bundle: Bundle, joint_names: tuple[str, ...]):
    check_fits(bundle, joint_names)
    self.bundle = bundle
    self._builder = ObservationBuilder(bundle)
    # Policy's joint i is the robot's joint order[i].
    self._order = np.array([joint_names.index(n) for n in bundle.joint_names])
    self._default, self._scale = bundle.default_joint_pos, bundle.action_scale
    self.default_pos = self._to_robot(self._default)
    self.kp = self._to_robot(bundle.stiffness)
    self.kd = self._to_robot(bundle.damping)
    self.command_range = _command_range(bundle)
    self.action = np.zeros(len(joint_names))
    self.observation = np.zeros(sum(t.dim for t in bundle.observations), np.float32)
    self.steps = 0.0

  def start(self, target: np.ndarray, after: RunningPolicy | None = None) -> None:
    """Begin as if the targets in force, rad, [J], were this policy's own.

    Args:
      after: Who drove until now: the gait goes on where it is, in this policy's rhythm.
    """
    self.action = (target[self._order] - self._default) / self._scale
    self.steps = 0.0
    if after:
      self.steps = after.steps * (self._builder.gait_s / after._builder.gait_s)

  def step(
    self, state: RobotState, command: np.ndarray, latency: Latency
  ) -> np.ndarray:
    """Joint targets, rad, [J], for the next control step."""
    started = time.perf_counter()
    inputs = Inputs(
      state=state,
      q=state.q[self._order] - self._default,
      dq=state.dq[self._order],
      command=command,
      action=self.action,
      steps=self.steps,
    )
    obs = self._builder.build(inputs)
    observed = time.perf_counter()
    self.action = self._checked(self.bundle.act(obs))
    self.steps += 1
    self.observation = obs[0]
    latency.add("observe", observed - started)
    latency.add("infer", time.perf_counter() - observed)
    return self._to_robot(self._default + self._scale * self.action)

  def command(self, stick: np.ndarray, exact: bool) -> np.ndarray:
    """The command that was trained for and is closest to the operator's.

    Args:
      stick: vx, vy, yaw; shares of the range in -1 … 1, or m/s and rad/s if `exact`.
    """
    low, high = self.command_range
    wanted = stick if exact else np.where(stick >= 0, stick * high, -stick * low)
    return np.minimum(np.maximum(wanted, low), high)

  def _checked(self, actions: np.ndarray) -> np.ndarray:
    """The network's only row of actions; one number would else do for all joints."""
    expected = (1, len(self._order))
    if actions.shape != expected:
      raise ValueError(f"actions of shape {actions.shape}, not {expected}")
    return actions[0].astype(np.float64)

  def _to_robot(self, values: np.ndarray) -> np.ndarray:
    found = np.empty(len(self._order))
    found[self._order] = values
    return found


def check_fits(bundle: Bundle, joint_names: tuple[str, ...]) -> None:
  """Raise if a bundle is for other joints, motors or another rate than the robot's."""
  policy, robot = set(bundle.joint_names), set(joint_names)
  if len(bundle.joint_names) != len(joint_names):
    raise UserError(
      f"{bundle.folder} drives {len(bundle.joint_names)} joints; the robot has "
      f"{len(joint_names)}."
    )
  if policy != robot:
    raise UserError(
      f"{bundle.folder} drives {', '.join(sorted(policy - robot)) or 'joints twice'}; "
      f"the robot has {', '.join(sorted(robot - policy))} instead."
    )
  if not abs(bundle.control_dt_s - POLICY_DT_S) <= 1e-6:
    raise UserError(
      f"{bundle.folder} was trained for a step of {bundle.control_dt_s:g} s; the "
      f"controller asks policies every {POLICY_DT_S:g} s."
    )
  _check_motors(bundle)
  if (bundle.action_scale == 0).any():
    raise UserError(f"{bundle.folder} has an action scale of zero.")


def _check_motors(bundle: Bundle) -> None:
  """Raise for a pose that joints cannot take, and gains that are not their motors'."""
  table = motors_for(bundle.joint_names, bundle.folder).motors
  motors = {motor.joint: motor for motor in table}
  poses, gains = bundle.default_joint_pos, (bundle.stiffness, bundle.damping)
  for name, pose, kp, kd in zip(bundle.joint_names, poses, *gains, strict=True):
    motor = motors[name]
    low, high = motor.position_limits
    if not low <= pose <= high:
      raise UserError(
        f"{bundle.folder} stands with {name} at {pose:g} rad, outside its range of "
        f"{low:g} to {high:g} rad."
      )
    for what, gain, usual in (("stiffness", kp, motor.kp), ("damping", kd, motor.kd)):
      if not usual / GAIN_FACTOR <= gain <= usual * GAIN_FACTOR:
        raise UserError(
          f"{bundle.folder} has a {what} of {gain:g} for {name}, whose motor has "
          f"{usual:.4g} (a tenth to ten times that is accepted)."
        )


def _command_range(bundle: Bundle) -> tuple[np.ndarray, np.ndarray]:
  """Lowest and highest vx, vy, yaw that the policy was trained with."""
  for ranges in bundle.info["command_ranges"].values():
    if all(name in ranges for name in _RANGES):
      bounds = np.array([ranges[name] for name in _RANGES], np.float64)
      for name, most in zip(_RANGES, np.abs(bounds).max(axis=1), strict=True):
        if most > MOST_COMMANDED:
          raise UserError(
            f"{bundle.folder} was trained for a {name} of {most:g}; a robot is "
            f"commanded at most {MOST_COMMANDED:g} (m/s, rad/s)."
          )
      return np.minimum(bounds[:, 0], 0.0), np.maximum(bounds[:, 1], 0.0)
  raise UserError(
    f"{bundle.folder} names no range of commands with {', '.join(_RANGES)}."
  )
