"""Messages: the vendor's layouts, its checksum, and joints in their slots by name."""

import struct

import numpy as np
import pytest

from decap.deploy import messages
from decap.deploy.messages import BadMessage, Codec, crc
from decap.deploy.robot_io import RobotCommand
from decap.robots.g1_motors import g1_motors

from .robots import state

CMD = "<2B2x" + "B3x5fI" * 35 + "5I"
STATE = "<2I2B2xI" + "13fh2x" + "B3x4f2hf7I" * 35 + "40B5I"


def _reference_crc(data: bytes) -> int:
  """The vendor's loop, bit by bit."""
  value = 0xFFFFFFFF
  for (word,) in struct.iter_unpack("<I", data[:-4]):
    for bit in range(31, -1, -1):
      top = value >> 31
      value = (value << 1) & 0xFFFFFFFF
      if top:
        value ^= 0x04C11DB7
      if word >> bit & 1:
        value ^= 0x04C11DB7
  return value


@pytest.mark.parametrize("size", [8, 12, 1004, 2092])
def test_crc_equals_the_vendor_s_loop(size):
  data = np.random.default_rng(size).bytes(size)
  assert crc(data) == _reference_crc(data)


def test_crc_of_a_known_word():
  # CRC-32/MPEG-2 of the bytes 12 34 56 78; the word is little-endian in memory.
  assert crc(struct.pack("<2I", 0x12345678, 0)) == 0xDF8A8A2B


def _command(dof: int) -> RobotCommand:
  rng = np.random.default_rng(1)
  return RobotCommand(*rng.normal(size=(5, dof)).astype(np.float32).astype(float))


@pytest.mark.parametrize("dof", [29, 23])
def test_commands_are_in_the_vendor_s_slots(dof):
  motors, command = g1_motors(dof), _command(dof)
  data = Codec(motors).encode_command(command, mode_machine=5)
  values = struct.unpack(CMD, data)
  assert values[:2] == (0, 5)
  slots = [values[2 + 7 * i : 9 + 7 * i] for i in range(35)]
  for i, motor in enumerate(motors.motors):
    expected = (command.q_target, command.dq_target, command.tau_ff)
    expected = (*expected, command.kp, command.kd)
    assert slots[motor.slot] == (1, *(x[i] for x in expected), 0)
  for slot in set(range(35)) - set(motors.slots):
    assert slots[slot] == (0, 0, 0, 0, 0, 0, 0)
  assert values[-1] == _reference_crc(data)


@pytest.mark.parametrize("dof", [29, 23])
def test_commands_survive_the_way(dof):
  codec, command = Codec(g1_motors(dof)), _command(dof)
  decoded, mode_machine = codec.decode_command(codec.encode_command(command, 4))
  assert mode_machine == 4 and decoded.mode == 1
  for name in ("q_target", "dq_target", "tau_ff", "kp", "kd"):
    np.testing.assert_array_equal(getattr(decoded, name), getattr(command, name))


def test_states_are_read_from_the_vendor_s_layout():
  codec = Codec(g1_motors(23))
  values = list(struct.unpack(STATE, bytes(struct.calcsize(STATE))))
  values[2:5] = 0, 4, 77
  values[5:9] = 0.5, 0.5, 0.5, 0.5  # quaternion
  values[9:12] = 1, 2, 3  # gyroscope
  values[12:15] = 4, 5, 6  # accelerometer
  first = 5 + 14
  for slot in range(35):
    start = first + 15 * slot
    values[start : start + 8] = 1, slot, 100 + slot, 7 * slot, -slot, 30, slot, 48
  values[15:18] = 7, 8, 9  # roll, pitch, yaw
  values[-45:-5] = range(40)
  data = struct.pack(STATE, *values)
  data = data[:-4] + struct.pack("<I", _reference_crc(data))
  state = codec.decode_state(data, stamp_s=1.5)
  slots = np.array(g1_motors(23).slots)
  np.testing.assert_array_equal(state.q, slots)
  np.testing.assert_array_equal(state.dq, 100 + slots)
  np.testing.assert_array_equal(state.ddq, 7 * slots)
  np.testing.assert_array_equal(state.tau_est, -slots)
  np.testing.assert_array_equal(state.voltage, 48)
  np.testing.assert_array_equal(state.rpy, [7, 8, 9])
  np.testing.assert_array_equal(state.temperature, 30)  # The hotter of 30 and slot.
  np.testing.assert_array_equal(state.quat, [0.5] * 4)
  np.testing.assert_array_equal([*state.gyro, *state.acc], [1, 2, 3, 4, 5, 6])
  assert (state.mode_machine, state.tick, state.stamp_s) == (4, 77, 1.5)
  assert state.remote == bytes(range(40))


def test_states_survive_the_way():
  codec = Codec(g1_motors(29))
  sent = state(0.25, remote=bytes(range(40)), rpy=np.array([0.1, 0.2, 0.3]))
  sent.ddq, sent.voltage = np.arange(29.0), np.arange(29.0) + 40.0
  read = codec.decode_state(codec.encode_state(sent), stamp_s=0.25)
  assert read.remote == sent.remote
  for name in set(vars(sent)) - {"remote"}:
    expected = getattr(sent, name)
    np.testing.assert_allclose(getattr(read, name), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("bit", [0, 7, 500, 8 * 2092 - 40, 8 * 2092 - 1])
def test_a_flipped_bit_is_found(bit):
  codec = Codec(g1_motors(29))
  data = bytearray(codec.encode_state(state()))
  data[bit // 8] ^= 1 << bit % 8
  with pytest.raises(BadMessage, match="wrong checksum"):
    codec.decode_state(bytes(data), 0.0)


def test_a_short_message_is_found():
  with pytest.raises(BadMessage, match="10 bytes instead of 1004"):
    messages.unseal(bytes(10), messages.LOW_CMD)
