"""Where requests and velocity commands come from: remote, keyboard, gamepad, script.

A source is asked once per cycle and must never wait. The robot's own remote can always
stop the robot, whatever else steers it.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import struct
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from decap.deploy.robot_io import RobotState
from decap.deploy.states import NONE, Requests
from decap.errors import UserError

BUTTONS = (
  *("R1", "L1", "start", "select", "R2", "L2", "F1", "F2"),
  *("A", "B", "X", "Y", "up", "right", "down", "left"),
)
"""Bits of the remote's button word, lowest first."""

DEAD_ZONE = 0.08
"""Stick positions below this are zero: worn sticks do not come back to the middle."""

REMOTE_HELP = (
  "L2+up stand · R2+A policy · L2+B or L1+R1 stop · L2+down reset · select next policy"
)
KEYBOARD_HELP = (
  "1 stand · 2 policy · space stop · r reset · n next policy · w/s a/d q/e command · "
  "x zero"
)


@dataclass
class Input:
  """What the operator wants in this cycle."""

  stick: np.ndarray = field(default_factory=lambda: np.zeros(3))
  """vx, vy, yaw as shares of the policy's range, -1 … 1, or in its units (`exact`)."""
  requests: Requests = NONE
  exact: bool = False
  """Whether `stick` is in m/s and rad/s."""


class Operator(Protocol):
  """A source of commands."""

  def poll(self, now_s: float, state: RobotState | None) -> Input:
    """What is wanted now; returns at once."""
    ...


def decode_remote(data: bytes) -> tuple[frozenset[str], np.ndarray]:
  """Pressed buttons, and sticks as vx, vy, yaw in -1 … 1, from the remote's bytes."""
  (word,) = struct.unpack_from("<H", data, 2)
  buttons = frozenset(name for i, name in enumerate(BUTTONS) if word >> i & 1)
  lx, rx, _, _, ly = struct.unpack_from("<5f", data, 4)
  return buttons, _sticks(ly, -lx, -rx)


def _sticks(*values: float) -> np.ndarray:
  """Sticks without their dead zone; what is no number counts as the middle."""
  kept = [v if math.isfinite(v) and abs(v) > DEAD_ZONE else 0.0 for v in values]
  return np.clip(np.array(kept), -1.0, 1.0)


_CHORDS = {
  "stand": ({"L2", "up"},),
  "policy": ({"R2", "A"},),
  "stop": ({"L2", "B"}, {"L1", "R1"}),
  "reset": ({"L2", "down"},),
  "next_policy": ({"select"},),
}


class Buttons:
  """Chords of buttons → requests; each counts once, when it becomes complete.

  What is held from the start was not pressed for us, and only a stop counts then.
  """

  def __init__(self) -> None:
    self._held: frozenset[str] | None = None

  def update(self, pressed: frozenset[str]) -> Requests:
    if self._held is None:
      self._held = pressed
    found = {
      name: any(c <= pressed and not c <= self._held for c in chords)
      for name, chords in _CHORDS.items()
    }
    # Holding the stop keeps stopping.
    found["stop"] = any(c <= pressed for c in _CHORDS["stop"])
    self._held = pressed
    return Requests(**found)


class Remote:
  """The robot's own remote, read from its states."""

  def __init__(self) -> None:
    self._buttons = Buttons()
    self._stick = np.zeros(3)

  def poll(self, now_s: float, state: RobotState | None) -> Input:
    del now_s
    if state is None:
      return Input(self._stick)
    pressed, self._stick = decode_remote(state.remote)
    return Input(self._stick, self._buttons.update(pressed))


class Script:
  """Commands from a list: at which time what."""

  WORDS = ("stand", "policy", "stop", "reset", "next")

  def __init__(self, text: str, name: str = "script"):
    self._entries: list[tuple[float, Requests | np.ndarray]] = []
    for number, line in enumerate(text.splitlines(), start=1):
      words = line.split("#")[0].replace(",", " ").split()
      if words:
        self._entries.append(self._entry(words, f"{name}, line {number}"))
    self._entries.sort(key=lambda entry: entry[0])
    self._next = 0
    self._command = np.zeros(3)
    self._start_s: float | None = None

  @classmethod
  def from_file(cls, path: str | Path) -> Script:
    """Read a script; each line is a time and a word, or a time and vx, vy, yaw."""
    try:
      return cls(Path(path).read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
      reason = getattr(error, "strerror", None) or "no text"
      raise UserError(f"Cannot read the script {path}: {reason}.") from error

  def poll(self, now_s: float, state: RobotState | None) -> Input:
    del state
    if self._start_s is None:
      self._start_s = now_s
    requests = NONE
    while self._next < len(self._entries):
      time_s, entry = self._entries[self._next]
      if time_s > now_s - self._start_s + 1e-9:
        break
      if isinstance(entry, np.ndarray):
        self._command = entry
      elif requests is NONE:
        requests = entry
      else:
        break  # One word a cycle: of two requests, the second would be lost.
      self._next += 1
    return Input(self._command, requests, exact=True)

  def _entry(self, words: list[str], where: str) -> tuple[float, Requests | np.ndarray]:
    try:
      time_s, *rest = float(words[0]), *words[1:]
      if not math.isfinite(time_s):
        raise ValueError
      if len(rest) == 1 and rest[0] in self.WORDS:
        name = {"next": "next_policy"}.get(rest[0], rest[0])
        return time_s, Requests(**{name: True})
      values = [float(word) for word in rest]
      if len(values) == 3 and all(map(math.isfinite, values)):
        return time_s, np.array(values)
    except ValueError:
      pass
    raise UserError(
      f"{where}: '{' '.join(words)}' is neither 'TIME VX VY YAW' nor 'TIME WORD' "
      f"with one of {', '.join(self.WORDS)}."
    )


class Keyboard:
  """Keys of the terminal; it gives the terminal back when closed."""

  KEYS = {
    "1": "stand",
    "2": "policy",
    " ": "stop",
    "r": "reset",
    "n": "next_policy",
  }
  STEP = 0.1
  """Share of the policy's range per key press."""

  def __init__(self, stream=None):
    import termios

    self._stream = stream or sys.stdin
    if not self._stream.isatty():
      raise UserError("The keyboard needs a terminal; use --input remote or a script.")
    self._fd = self._stream.fileno()
    self._saved = termios.tcgetattr(self._fd)
    self._stick = np.zeros(3)
    self._sequence = ""
    """Whether a function key's sequence "begins" or "goes on"; empty between them."""
    self._first = True
    self._continued = False
    self._old_handler: Any = None
    if threading.current_thread() is threading.main_thread():
      self._old_handler = signal.signal(signal.SIGCONT, self._on_continue)
    self._take()

  def poll(self, now_s: float, state: RobotState | None) -> Input:
    del now_s, state
    requests, keys = NONE, ""
    try:
      if self._continued and self._in_foreground():
        self._continued = False
        self._take()
      # Asked first: after Ctrl-Z a shell may have set the terminal to wait for lines.
      if select.select([self._fd], [], [], 0)[0]:
        data = os.read(self._fd, 4096)
        keys = self._letters(data.decode("latin-1"))
        requests = Requests(stop=not data)  # The terminal was closed.
    except BlockingIOError:
      pass
    except OSError:
      requests = Requests(stop=True)
    for key in keys:
      # Typed before the drive began: that counts as a stop only.
      if not self._first or key == " ":
        requests = requests | self._press(key)
    self._first = False
    return Input(self._stick.copy(), requests)

  def close(self) -> None:
    import termios

    if self._old_handler is not None:
      signal.signal(signal.SIGCONT, self._old_handler)
    if self._in_foreground():
      with contextlib.suppress(OSError):
        os.set_blocking(self._fd, True)
      # Now, not once all is written: the terminal may be stuck, or gone.
      with contextlib.suppress(OSError, termios.error):
        termios.tcsetattr(self._fd, termios.TCSANOW, self._saved)

  def _take(self) -> None:
    """Keys one by one and without waiting, from now on."""
    import termios
    import tty

    with contextlib.suppress(termios.error):
      # What waits is kept: it may be a stop.
      tty.setcbreak(self._fd, termios.TCSANOW)
    os.set_blocking(self._fd, False)

  def _on_continue(self, number: int, frame: object) -> None:
    """After Ctrl-Z and fg the terminal is as the shell left it."""
    self._continued = True
    if callable(self._old_handler):
      self._old_handler(number, frame)

  def _in_foreground(self) -> bool:
    """Whether settings may be changed; in the background that would stop us."""
    try:
      return os.tcgetpgrp(self._fd) == os.getpgrp()
    except OSError:
      return True  # Not a terminal of our session, which nobody else controls.

  def _letters(self, keys: str) -> str:
    """Keys without the sequences of function keys, which may come in pieces.

    Insert is ESC [ 2 ~, and must not be a 2. A space always counts.
    """
    found = ""
    for key in keys:
      if key == " ":
        found += key
      elif key in "\x1b\x8f\x9b":
        self._sequence = "begins" if key == "\x1b" else "goes on"
      elif self._sequence == "begins":  # Alt and a letter ends with the letter.
        self._sequence = "goes on" if key in "[O" else ""
      elif self._sequence:
        if not ("!" <= key <= "?" or key == "["):
          self._sequence = ""
      else:
        found += key
    return found

  def _press(self, key: str) -> Requests:
    moves = {"w": (0, 1), "s": (0, -1), "a": (1, 1), "d": (1, -1)}
    moves |= {"q": (2, 1), "e": (2, -1)}
    if key in moves:
      axis, sign = moves[key]
      step = self._stick[axis] + sign * self.STEP
      self._stick[axis] = np.clip(round(step, 6), -1.0, 1.0)
    elif key == "x":
      self._stick[:] = 0.0
    elif key in self.KEYS:
      if key != "n":
        self._stick[:] = 0.0  # A policy that starts again must not walk off by itself.
      return Requests(**{self.KEYS[key]: True})
    return NONE


class Gamepad:
  """A gamepad through Linux's joystick device, with the remote's chords."""

  # Xbox layout of the kernel's xpad driver.
  NAMES = {0: "A", 1: "B", 2: "X", 3: "Y", 4: "L1", 5: "R1", 6: "select", 7: "start"}
  TRIGGERS = {2: "L2", 5: "R2"}
  HAT = {6: ("left", "right"), 7: ("up", "down")}
  STICKS = {1: 0, 0: 1, 3: 2}
  """Axis → entry of vx, vy, yaw; all point the other way."""

  def __init__(self, path: str = "/dev/input/js0"):
    try:
      self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
      raise UserError(f"There is no gamepad at {path}: {error.strerror}.") from error
    self._pressed: set[str] = set()
    self._stick = np.zeros(3)
    self._buttons = Buttons()
    self._gone = False

  def poll(self, now_s: float, state: RobotState | None) -> Input:
    """A gamepad that is unplugged stops the robot: nobody could any more."""
    del now_s, state
    try:
      while data := os.read(self._fd, 8):
        self._event(*struct.unpack("<IhBB", data))
    except BlockingIOError:
      pass
    except OSError:
      self._gone = True
    if self._gone:
      return Input(np.zeros(3), Requests(stop=True))
    requests = self._buttons.update(frozenset(self._pressed))
    return Input(_sticks(*self._stick), requests)

  def close(self) -> None:
    os.close(self._fd)

  def _event(self, time_ms: int, value: int, kind: int, number: int) -> None:
    del time_ms
    kind &= 0x7F  # The first events report the initial state.
    if kind == 1 and number in self.NAMES:
      self._hold(self.NAMES[number], value != 0)
    elif kind == 2 and number in self.TRIGGERS:
      self._hold(self.TRIGGERS[number], value > 0)
    elif kind == 2 and number in self.HAT:
      low, high = self.HAT[number]
      self._hold(low, value < 0)
      self._hold(high, value > 0)
    elif kind == 2 and number in self.STICKS:
      self._stick[self.STICKS[number]] = -value / 32767

  def _hold(self, name: str, pressed: bool) -> None:
    (self._pressed.add if pressed else self._pressed.discard)(name)


class WithRemoteStop:
  """Another source, plus the remote's stop and reset, which always work."""

  def __init__(self, source: Operator):
    self._source = source
    self._remote = Remote()

  def poll(self, now_s: float, state: RobotState | None) -> Input:
    wanted = self._source.poll(now_s, state)
    remote = self._remote.poll(now_s, state).requests
    stop = Requests(stop=remote.stop, reset=remote.reset)
    return Input(wanted.stick, wanted.requests | stop, wanted.exact)

  def close(self) -> None:
    close = getattr(self._source, "close", None)
    if close:
      close()


def make_operator(source: str) -> tuple[Operator, str]:
  """An operator by its name, and the line that says which button does what."""
  if source == "remote":
    return Remote(), REMOTE_HELP
  if source == "keyboard":
    return WithRemoteStop(Keyboard()), f"{KEYBOARD_HELP} · Ctrl-C ends"
  if source == "gamepad":
    return WithRemoteStop(Gamepad()), REMOTE_HELP
  script = Script.from_file(source)
  return WithRemoteStop(script), "script; L2+B on the remote or Ctrl-C stops"
