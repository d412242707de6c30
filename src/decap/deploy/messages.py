"""Unitree's low-level messages, byte for byte: layouts, checksums, slots by name.

A message is a numpy record with the layout of the vendor's C struct. Its plain CDR
form on the network has the same layout, and the checksum runs over it too, so one
description serves all three.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from decap.deploy.robot_io import REMOTE_BYTES, RobotCommand, RobotState
from decap.robots.motors import RobotMotors

NUM_SLOTS = 35
"""Motor slots in a message; the G1 uses the first 29."""

_MOTOR_CMD = np.dtype(
  [
    ("mode", "u1"),
    ("q", "<f4"),
    ("dq", "<f4"),
    ("tau", "<f4"),
    ("kp", "<f4"),
    ("kd", "<f4"),
    ("reserve", "<u4"),
  ],
  align=True,
)
_MOTOR_STATE = np.dtype(
  [
    ("mode", "u1"),
    ("q", "<f4"),
    ("dq", "<f4"),
    ("ddq", "<f4"),
    ("tau_est", "<f4"),
    ("temperature", "<i2", (2,)),
    ("vol", "<f4"),
    ("sensor", "<u4", (2,)),
    ("motorstate", "<u4"),
    ("reserve", "<u4", (4,)),
  ],
  align=True,
)
_IMU_STATE = np.dtype(
  [
    ("quaternion", "<f4", (4,)),
    ("gyroscope", "<f4", (3,)),
    ("accelerometer", "<f4", (3,)),
    ("rpy", "<f4", (3,)),
    ("temperature", "<i2"),
  ],
  align=True,
)
LOW_CMD = np.dtype(
  [
    ("mode_pr", "u1"),
    ("mode_machine", "u1"),
    ("motor_cmd", _MOTOR_CMD, (NUM_SLOTS,)),
    ("reserve", "<u4", (4,)),
    ("crc", "<u4"),
  ],
  align=True,
)
"""``unitree_hg::msg::dds_::LowCmd_``."""
LOW_STATE = np.dtype(
  [
    ("version", "<u4", (2,)),
    ("mode_pr", "u1"),
    ("mode_machine", "u1"),
    ("tick", "<u4"),
    ("imu_state", _IMU_STATE),
    ("motor_state", _MOTOR_STATE, (NUM_SLOTS,)),
    ("wireless_remote", "u1", (REMOTE_BYTES,)),
    ("reserve", "<u4", (4,)),
    ("crc", "<u4"),
  ],
  align=True,
)
"""``unitree_hg::msg::dds_::LowState_``."""

TYPE_NAMES = {
  "cmd": "unitree_hg::msg::dds_::LowCmd_",
  "state": "unitree_hg::msg::dds_::LowState_",
}

# Our fields → those of the messages.
_OF_COMMANDS = {"q_target": "q", "dq_target": "dq", "tau_ff": "tau"}
_OF_COMMANDS |= {"kp": "kp", "kd": "kd"}
_OF_MOTORS = {"q": "q", "dq": "dq", "ddq": "ddq", "tau_est": "tau_est"}
_OF_MOTORS |= {"voltage": "vol"}
_OF_IMU = {"quat": "quaternion", "gyro": "gyroscope", "acc": "accelerometer"}
_OF_IMU |= {"rpy": "rpy"}

_REVERSED = bytes(int(f"{i:08b}"[::-1], 2) for i in range(256))


def crc(message: bytes) -> int:
  """The vendor's CRC-32 of a message without its last word.

  Polynomial 0x04C11DB7 over little-endian words, most significant bit first, no final
  xor. That is zlib's checksum of the bytes with words swapped and bits reversed, bits
  reversed again at the end; zlib is some hundred times faster than a loop in Python.
  """
  words = np.frombuffer(message, "<u4")[:-1]
  reflected = zlib.crc32(words.byteswap().tobytes().translate(_REVERSED)) ^ 0xFFFFFFFF
  return int(f"{reflected:032b}"[::-1], 2)


class BadMessage(ValueError):
  """A message that must not be used: wrong length or wrong checksum."""


def seal(message: np.ndarray) -> bytes:
  """Bytes of a message, its checksum filled in."""
  message["crc"] = crc(message.tobytes())
  return message.tobytes()


def unseal(data: bytes, layout: np.dtype) -> np.ndarray:
  """The message in `data`, if its length and checksum are right."""
  if len(data) != layout.itemsize:
    raise BadMessage(f"{len(data)} bytes instead of {layout.itemsize}")
  message = np.frombuffer(data, layout)[0]
  if crc(data) != message["crc"]:
    raise BadMessage("wrong checksum")
  return message


@dataclass(frozen=True)
class Codec:
  """States and commands of one robot ↔ messages; joints go to their slots by name."""

  motors: RobotMotors

  def encode_command(self, command: RobotCommand, mode_machine: int) -> bytes:
    """A command message; slots without a joint stay off."""
    message = np.zeros((), LOW_CMD)
    message["mode_machine"] = mode_machine
    cmd, slots = message["motor_cmd"], list(self.motors.slots)
    cmd["mode"][slots] = command.mode
    for name, theirs in _OF_COMMANDS.items():
      cmd[theirs][slots] = getattr(command, name)
    return seal(message)

  def decode_command(self, data: bytes) -> tuple[RobotCommand, int]:
    """Command and mode_machine of a command message."""
    message = unseal(data, LOW_CMD)
    cmd = message["motor_cmd"][list(self.motors.slots)]
    values = {name: cmd[k].astype(np.float64) for name, k in _OF_COMMANDS.items()}
    command = RobotCommand(**values, mode=int(cmd["mode"].min()))
    return command, int(message["mode_machine"])

  def encode_state(self, state: RobotState) -> bytes:
    """A state message, as the robot would send it."""
    message = np.zeros((), LOW_STATE)
    message["mode_machine"] = state.mode_machine
    message["tick"] = state.tick % 2**32
    imu, motor = message["imu_state"], message["motor_state"]
    slots = list(self.motors.slots)
    motor["mode"][slots] = 1
    for name, theirs in _OF_IMU.items():
      imu[theirs] = getattr(state, name)
    for name, theirs in _OF_MOTORS.items():
      motor[theirs][slots] = getattr(state, name)
    motor["temperature"][slots] = np.asarray(state.temperature)[:, None]
    message["wireless_remote"] = np.frombuffer(state.remote, np.uint8)
    return seal(message)

  def decode_state(self, data: bytes, stamp_s: float) -> RobotState:
    """State of a state message that arrived at `stamp_s`."""
    message = unseal(data, LOW_STATE)
    motor = message["motor_state"][list(self.motors.slots)]
    imu = message["imu_state"]
    return RobotState(
      **{name: motor[k].astype(np.float64) for name, k in _OF_MOTORS.items()},
      **{name: imu[k].astype(np.float64) for name, k in _OF_IMU.items()},
      temperature=motor["temperature"].max(axis=1).astype(np.float64),
      mode_machine=int(message["mode_machine"]),
      tick=int(message["tick"]),
      stamp_s=stamp_s,
      remote=message["wireless_remote"].tobytes(),
    )
