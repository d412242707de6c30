"""Operators: remote's bytes, scripts, keys and gamepads become the same requests."""

import os
import signal
import struct
import termios
import threading

import numpy as np
import pytest

from decap.deploy.operator import (
  BUTTONS,
  Gamepad,
  Keyboard,
  Remote,
  Script,
  WithRemoteStop,
  decode_remote,
)
from decap.deploy.states import NONE, Requests
from decap.errors import UserError

from .robots import state


def remote(*pressed: str, lx=0.0, ly=0.0, rx=0.0) -> bytes:
  word = sum(1 << BUTTONS.index(name) for name in pressed)
  sticks = struct.pack("<5f", lx, rx, 0.0, 0.0, ly)
  return struct.pack("<2xH", word) + sticks + bytes(16)


def test_the_remote_s_bytes():
  # A is bit 8, L2 bit 5: 0x0120, low byte first, at byte 2.
  data = bytearray(40)
  data[2:4] = b"\x20\x01"
  data[4:8] = struct.pack("<f", 0.5)  # lx: to the right, so vy is negative.
  data[8:12] = struct.pack("<f", -1.0)  # rx: to the left, so the robot turns left.
  data[20:24] = struct.pack("<f", 0.25)  # ly: forward.
  pressed, stick = decode_remote(bytes(data))
  assert pressed == {"L2", "A"}
  np.testing.assert_allclose(stick, [0.25, -0.5, 1.0])


def test_sticks_that_are_no_numbers_or_hardly_moved_are_zero():
  _, stick = decode_remote(remote(lx=float("nan"), ly=0.05, rx=float("inf")))
  np.testing.assert_array_equal(stick, 0.0)
  _, stick = decode_remote(remote(ly=7.0))
  np.testing.assert_array_equal(stick, [1.0, 0.0, 0.0])


@pytest.mark.parametrize(
  "chord, expected",
  [
    (("L2", "up"), Requests(stand=True)),
    (("R2", "A"), Requests(policy=True)),
    (("L2", "B"), Requests(stop=True)),
    (("L1", "R1"), Requests(stop=True)),
    (("L2", "down"), Requests(reset=True)),
    (("select",), Requests(next_policy=True)),
    (("A",), NONE),
    (("L2", "R2"), NONE),
  ],
)
def test_chords_count_once_but_stops_as_long_as_they_are_held(chord, expected):
  source = Remote()

  def poll(*pressed):
    return source.poll(0.0, state(remote=remote(*pressed))).requests

  assert poll() == NONE
  assert poll(chord[0]) == (expected if len(chord) == 1 else NONE)
  if len(chord) > 1:
    assert poll(*chord) == expected
  assert poll(*chord) == (expected if expected.stop else NONE)
  assert poll() == NONE


def test_a_chord_held_from_the_start_counts_once_it_is_pressed_anew():
  source = Remote()

  def poll(*pressed):
    return source.poll(0.0, state(remote=remote(*pressed))).requests

  assert poll("L2", "up") == poll("L2", "up") == poll("L2") == NONE
  assert poll("L2", "up") == Requests(stand=True)
  source = Remote()
  assert poll("L2", "B") == Requests(stop=True)


def test_the_remote_s_command_holds_while_states_are_missing():
  source = Remote()
  source.poll(0.0, state(remote=remote(ly=0.5)))
  np.testing.assert_allclose(source.poll(0.1, None).stick, [0.5, 0.0, 0.0])


def test_scripts():
  script = Script("# a walk\n1 stand\n\n4.0 policy\n5, 0.5, 0, -0.1  # turn\n7 next\n")
  assert script.poll(100.0, None).requests == NONE
  assert script.poll(101.0, None).requests == Requests(stand=True)
  assert script.poll(101.1, None).requests == NONE
  # A late poll misses nothing.
  late = script.poll(106.0, None)
  assert late.requests == Requests(policy=True) and late.exact
  np.testing.assert_array_equal(late.stick, [0.5, 0.0, -0.1])
  assert script.poll(107.0, None).requests == Requests(next_policy=True)


def test_words_of_one_time_are_obeyed_one_after_the_other():
  script = Script("0 next\n0 stand\n0 0.1 0 0\n0.5 stop\n0.5 reset")
  found = [script.poll(now_s, None) for now_s in (0.0, 0.002, 0.004, 0.5, 0.502)]
  words = [wanted.requests for wanted in found]
  assert words[:2] == [Requests(next_policy=True), Requests(stand=True)]
  assert words[2:] == [NONE, Requests(stop=True), Requests(reset=True)]
  assert found[1].stick[0] == 0.1


@pytest.mark.parametrize(
  "line", ["1", "x stand", "1 jump", "1 2 3", "1 nan 0 0", "nan stand", "-inf policy"]
)
def test_a_bad_script_names_its_line(line):
  with pytest.raises(UserError, match=r"walk, line 2: .* is neither 'TIME VX VY YAW'"):
    Script(f"0 stand\n{line}\n", "walk")


def test_a_missing_script_gets_a_sentence(tmp_path):
  with pytest.raises(UserError, match="Cannot read the script .*No such file"):
    Script.from_file(tmp_path / "no.txt")


def test_keys_of_a_terminal():
  leader, follower = os.openpty()
  stream = os.fdopen(follower, "r")
  keyboard = Keyboard(stream)
  assert keyboard.poll(0.0, None).requests == NONE
  os.write(leader, b"1wwq")
  wanted = keyboard.poll(0.0, None)
  assert wanted.requests == Requests(stand=True) and not wanted.exact
  np.testing.assert_allclose(wanted.stick, [0.2, 0.0, 0.1])
  os.write(leader, b"n")  # Another policy walks on.
  np.testing.assert_allclose(keyboard.poll(0.0, None).stick, [0.2, 0.0, 0.1])
  os.write(leader, b" ")  # After a stop nothing must walk off by itself.
  wanted = keyboard.poll(0.0, None)
  assert wanted.requests == Requests(stop=True)
  np.testing.assert_array_equal(wanted.stick, 0.0)
  os.close(leader)  # The terminal is gone, and with it whoever could stop.
  assert keyboard.poll(0.0, None).requests == Requests(stop=True)
  stream.close()


@pytest.fixture
def typed():
  """A keyboard that was polled once, and a function that types and polls."""
  leader, follower = os.openpty()
  stream = os.fdopen(follower, "r")
  keyboard = Keyboard(stream)
  keyboard.poll(0.0, None)

  def type_in(*parts: bytes) -> Requests:
    found = NONE
    for part in parts:
      os.write(leader, part)
      found = found | keyboard.poll(0.0, None).requests
    return found

  yield type_in
  keyboard.close()
  stream.close()
  os.close(leader)


@pytest.mark.parametrize(
  "key",
  [
    *(b"\x1b[2~", b"\x1b[1~", b"\x1b[20~", b"\x1b[15~", b"\x1b[1;5A", b"\x1b[A"),
    *(b"\x1bOP", b"\x1bO1;2P", b"\x1b[[A", b"\x1b1", b"\x1b\x1b[2~", b"\x9b2~"),
    b"\x1b[200~",
  ],
)
def test_function_keys_start_nothing_whole_or_in_pieces(typed, key):
  assert typed(key) == NONE
  assert typed(*(bytes([byte]) for byte in key)) == NONE
  assert typed(b"\x1b[1" + key) == NONE  # After a sequence that was cut off.
  assert typed(b"1") == Requests(stand=True)
  assert typed(key + b"2" + key) == Requests(policy=True)


@pytest.mark.parametrize("before", [b"\x1b", b"\x1b[", b"\x1b[1;", b"\x1bO"])
def test_a_space_stops_even_within_a_sequence(typed, before):
  assert typed(before + b" ") == Requests(stop=True)
  assert typed(before) == NONE
  assert typed(b" ") == Requests(stop=True)


def test_a_terminal_that_waits_for_lines_never_keeps_the_loop_waiting():
  leader, follower = os.openpty()
  with os.fdopen(follower, "r") as stream:
    keyboard = Keyboard(stream)
    keyboard.poll(0.0, None)
    as_a_shell_leaves_it = keyboard._saved
    termios.tcsetattr(follower, termios.TCSANOW, as_a_shell_leaves_it)
    os.set_blocking(follower, True)
    thread = threading.Thread(target=keyboard.poll, args=[0.0, None], daemon=True)
    thread.start()
    thread.join(timeout=2.0)
    assert not thread.is_alive()
    keyboard.close()
  os.close(leader)


def test_keys_count_one_by_one_again_after_a_program_is_continued():
  leader, follower = os.openpty()
  heard = []
  old = signal.signal(signal.SIGCONT, lambda *_: heard.append("continued"))
  try:
    with os.fdopen(follower, "r") as stream:
      keyboard = Keyboard(stream)
      keyboard.poll(0.0, None)
      termios.tcsetattr(follower, termios.TCSANOW, keyboard._saved)
      os.set_blocking(follower, True)
      os.kill(os.getpid(), signal.SIGCONT)
      keyboard.poll(0.0, None)
      os.write(leader, b" ")
      assert keyboard.poll(0.0, None).requests == Requests(stop=True)
      assert heard == ["continued"] and not os.get_blocking(follower)
      keyboard.close()
    os.kill(os.getpid(), signal.SIGCONT)
    assert heard == ["continued"] * 2
  finally:
    signal.signal(signal.SIGCONT, old)
  os.close(leader)


def test_keys_typed_before_the_drive_start_nothing_but_stop():
  leader, follower = os.openpty()
  with os.fdopen(follower, "r") as stream:
    for typed, expected in ((b"1w" + b"2" * 100, False), (b"1 2", True)):
      keyboard = Keyboard(stream)
      os.write(leader, typed)
      wanted = keyboard.poll(0.0, None)
      assert wanted.requests == Requests(stop=expected) and not wanted.stick.any()
      assert keyboard.poll(0.0, None).requests == NONE
      os.write(leader, b"1")
      assert keyboard.poll(0.0, None).requests == Requests(stand=True)
      keyboard.close()
  os.close(leader)


def test_a_terminal_that_hung_up_is_let_go():
  leader, follower = os.openpty()
  keyboard = Keyboard(os.fdopen(follower, "r"))
  os.close(leader)
  keyboard.close()


def test_the_terminal_is_given_back():
  leader, follower = os.openpty()
  stream = os.fdopen(follower, "r")
  keyboard = Keyboard(stream)
  assert not os.get_blocking(follower)
  keyboard.close()
  assert os.get_blocking(follower)
  stream.close()
  os.close(leader)


def test_a_keyboard_without_a_terminal_is_refused():
  with open(os.devnull) as nothing:
    with pytest.raises(UserError, match="needs a terminal"):
      Keyboard(nothing)


def _gamepad(tmp_path):
  path = tmp_path / "js0"
  os.mkfifo(path)
  gamepad = Gamepad(str(path))
  return gamepad, os.open(path, os.O_WRONLY)


def test_a_gamepad_has_the_remote_s_chords(tmp_path):
  gamepad, device = _gamepad(tmp_path)

  def send(kind, number, value):
    os.write(device, struct.pack("<IhBB", 0, value, kind, number))

  send(0x82, 5, -32767)  # Initial state of R2: released.
  assert gamepad.poll(0.0, None).requests == NONE
  send(2, 5, 32767)
  send(1, 0, 1)
  send(2, 1, -32767)  # Left stick forward.
  wanted = gamepad.poll(0.0, None)
  assert wanted.requests == Requests(policy=True)
  np.testing.assert_allclose(wanted.stick, [1.0, 0.0, 0.0])
  os.close(device)
  gamepad.close()


def test_a_gamepad_that_is_unplugged_stops_the_robot(tmp_path):
  gamepad, device = _gamepad(tmp_path)
  os.close(gamepad._fd)
  assert gamepad.poll(0.0, None).requests == Requests(stop=True)
  os.close(device)
  with pytest.raises(UserError, match="There is no gamepad at"):
    Gamepad(str(tmp_path / "js9"))


def test_the_remote_always_stops():
  source = WithRemoteStop(Script("0 0.5 0 0\n0 stand"))
  assert source.poll(0.0, state()).requests == Requests(stand=True)
  pressed = state(remote=remote("L2", "B", ly=1.0))
  wanted = source.poll(0.0, pressed)
  assert wanted.requests == Requests(stop=True)
  np.testing.assert_array_equal(wanted.stick, [0.5, 0.0, 0.0])
  start = state(remote=remote("R2", "A"))
  assert source.poll(0.0, start).requests == NONE
