"""One protocol between controller and robot: read a state, write a command, keep time.

The robot on the network and the simulated one are two implementations of it, so what
is tested in simulation is what drives the robot. Arrays are in the order of
`Robot.joint_names`; slots, checksums and message layouts stay inside.

Time belongs to the protocol. On a robot it is the time since the machine's start; in
simulation it is simulated time, and `sleep_until` steps physics, so that the two run
in lockstep whatever the speed of the machine.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

COMMAND_DT_S = 0.002
"""Time between two commands: 500 Hz, as the vendor's examples send them."""

REMOTE_BYTES = 40
"""Length of the remote's part of a state message."""

POLICY_DT_S = 0.02
"""Time between two steps of a policy: 50 Hz, as the G1's policies are trained."""

COMMANDS_PER_STEP = round(POLICY_DT_S / COMMAND_DT_S)


def clock_s() -> float:
  """Time since this machine's start. Monotonic clocks stand in standby, this does not: a
  laptop that was closed finds itself late, and does not walk on."""
  return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass
class RobotState:
  """What the robot reports about itself, once."""

  q: np.ndarray
  """Joint positions, rad, [J]."""
  dq: np.ndarray
  """Joint velocities, rad/s, [J]."""
  tau_est: np.ndarray
  """Joint torques as the motors estimate them, Nm, [J]."""
  quat: np.ndarray
  """Orientation of the pelvis, w x y z, [4]."""
  gyro: np.ndarray
  """Angular velocity of the pelvis in its own frame, rad/s, [3]."""
  acc: np.ndarray
  """Specific force at the pelvis in its own frame, m/s², [3]."""
  temperature: np.ndarray
  """Motor temperatures, the hotter of case and winding, °C, [J]."""
  mode_machine: int
  """Kind of the robot as it calls itself; echoed in every command."""
  tick: int
  """The robot's own counter, ms. Stands still when the robot's side hangs."""
  stamp_s: float
  """When the state arrived, by a clock that NTP neither sets nor hurries; in simulation
  in the time of `Robot.now_s`. Only differences count."""
  remote: bytes = bytes(REMOTE_BYTES)
  """The remote's raw bytes."""
  ddq: np.ndarray = field(default_factory=lambda: np.zeros(0))
  """Joint accelerations, rad/s², [J]. No policy uses this and the next two; they are
  recorded, and what is not a number there stops the robot, too. Left out: zeros."""
  voltage: np.ndarray = field(default_factory=lambda: np.zeros(0))
  """Supply of each motor, V, [J]."""
  rpy: np.ndarray = field(default_factory=lambda: np.zeros(3))
  """Orientation of the pelvis as roll, pitch and yaw, rad, [3]."""

  def __post_init__(self) -> None:
    if not len(self.ddq):
      self.ddq = np.zeros(len(self.q))
    if not len(self.voltage):
      self.voltage = np.zeros(len(self.q))


@dataclass
class RobotCommand:
  """One command: torque = kp·(q_target − q) + kd·(dq_target − dq) + tau_ff."""

  q_target: np.ndarray
  """Position targets, rad, [J]."""
  kp: np.ndarray
  """Proportional gains, Nm/rad, [J]."""
  kd: np.ndarray
  """Derivative gains, Nm·s/rad, [J]."""
  dq_target: np.ndarray = field(default_factory=lambda: np.zeros(0))
  """Velocity targets, rad/s, [J]; left out: zeros."""
  tau_ff: np.ndarray = field(default_factory=lambda: np.zeros(0))
  """Torques to add, Nm, [J]; left out: zeros."""
  mode: int = 1
  """1: motors on, 0: motors off."""

  def __post_init__(self) -> None:
    if not len(self.dq_target):
      self.dq_target = np.zeros(len(self.q_target))
    if not len(self.tau_ff):
      self.tau_ff = np.zeros(len(self.q_target))


class Robot(Protocol):
  """A robot, real or simulated."""

  joint_names: tuple[str, ...]
  """Order of every array in states and commands."""
  mode_machine: int | None = None
  """What the robot called itself when it was connected; none: what its first state says."""

  def read(self) -> RobotState | None:
    """The newest state that was not read before; none if there is no new one."""
    ...

  def write(self, command: RobotCommand) -> None:
    """Send a command; it holds until the next one."""
    ...

  def now_s(self) -> float:
    """Time that nobody sets: `clock_s` on a robot, simulated in simulation."""
    ...

  def sleep_until(self, time_s: float) -> None:
    """Return at `time_s` or later; in simulation, step physics until then."""
    ...

  def rejected_states(self) -> int:
    """States dropped so far because their checksum or content was wrong."""
    return 0

  def foreign_commands(self) -> int:
    """Commands of somebody else seen so far; another program drives the robot."""
    return 0

  def close(self) -> None:
    """Leave the network, or end the simulation."""


def damping_command(num_joints: int, kd: float | np.ndarray) -> RobotCommand:
  """No stiffness, only resistance: what every stop ends in."""
  zeros = np.zeros(num_joints)
  return RobotCommand(zeros, kp=zeros.copy(), kd=zeros + kd)
