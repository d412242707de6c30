"""What a robot's own computer knows of its motors.

A robot has a table of them in a module beside its description (g1_motors.py), in plain
numbers, because deployment has neither torch nor mjlab.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Motor:
  """One joint as its motor sees it."""

  joint: str
  slot: int
  """Index in the motor arrays of the robot's messages."""
  kp: float
  """Stiffness that mjlab's policies use, Nm/rad."""
  kd: float
  """Damping that goes with it, Nm·s/rad."""
  effort_limit: float
  """Peak torque, Nm."""
  velocity_limit: float
  """Speed at which no torque is left, rad/s."""
  position_limits: tuple[float, float]
  """Range of the joint, rad."""
  default_pos: float
  """Standing pose, rad."""


@dataclass(frozen=True)
class RobotMotors:
  """All motors of one robot, in the order of its joints."""

  name: str
  """Also of its model, in robots/models."""
  motors: tuple[Motor, ...]
  mode_machines: tuple[int, ...]
  """What the robot may call itself (`mode_machine` of its states)."""

  @property
  def joint_names(self) -> tuple[str, ...]:
    return tuple(m.joint for m in self.motors)

  @property
  def slots(self) -> tuple[int, ...]:
    """Motor slot of each joint."""
    return tuple(m.slot for m in self.motors)

  def array(self, field: str) -> np.ndarray:
    """A field of all motors, [J] (`position_limits`: [J, 2])."""
    return np.array([getattr(m, field) for m in self.motors], np.float64)
