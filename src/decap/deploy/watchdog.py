"""A second process that sends damping when the controller dies or hangs.

A killed controller cannot send anything. The watchdog holds one end of a pipe: every
cycle of the controller is a byte in it. An end of file is a death, silence is a hang,
and both end in damping, sent again and again. It latches: a controller that wakes up
sees commands that are not its own and stops.

It is a Python of its own, so that it shares nothing with what died.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from decap.deploy.robot_io import COMMAND_DT_S, clock_s
from decap.errors import UserError

if TYPE_CHECKING:
  from decap.deploy.dds import Writer

HANG_S = 0.1
"""Silence of the controller that counts as a hang."""
DAMP_S = 5.0
"""How long damping is repeated; a robot that fell in this time lies still."""
GOODBYE = b"q"
GOODBYE_S = 1.0
"""How long a watchdog that is behind is waited for."""
_NOT_STARTED = "The watchdog did not start, and nothing moves without it"

# Neither -m nor -c alone: both look for modules in the current folder first, which may
# be anybody's, and Python 3.10 has no -P.
_START = (
  "import sys; sys.path[:] = [folder for folder in sys.path if folder]; "
  "from decap.deploy.watchdog import main; sys.exit(main(sys.argv[1:]))"
)


class Watchdog:
  """The controller's handle of its watchdog process."""

  def __init__(
    self,
    interface: str,
    domain: int,
    robot: str,
    mode_machine: int,
    hang_s: float,
    events: Path | None = None,
  ):
    """Start the process, and wait until it is on the network.

    Args:
      robot: Its name among the known ones.
      events: The log of the flight, where it says why it damped.
    """
    self._hang_s = hang_s
    self._beats = self._heard = 0
    """Beats in the pipe so far, and how many of them it had read at the last look."""
    read_end, self._pipe = os.pipe()
    os.set_blocking(self._pipe, False)
    arguments = [interface, domain, robot, mode_machine, hang_s, read_end, events or ""]
    try:
      self._process = subprocess.Popen(
        [sys.executable, "-c", _START, *map(str, arguments)],
        pass_fds=[read_end],
        start_new_session=True,  # Ctrl-C in the terminal must not reach it.
        stdout=subprocess.PIPE,
      )
    except OSError as error:
      os.close(self._pipe)
      raise UserError(f"{_NOT_STARTED}: {error.strerror}.") from error
    finally:
      os.close(read_end)
    assert self._process.stdout is not None
    if not self._process.stdout.readline():  # What it says once it is on the network.
      os.close(self._pipe)
      self._process.wait()
      raise UserError(f"{_NOT_STARTED}.")
    self._heard_s = clock_s()

  @property
  def pid(self) -> int:
    return self._process.pid

  def alive(self) -> bool:
    """Whether it still watches: it is there and reads. Takes some microseconds."""
    unread = fcntl.ioctl(self._pipe, termios.FIONREAD, bytes(4))
    heard = self._beats - int.from_bytes(unread, sys.byteorder)
    now_s = clock_s()
    if heard > self._heard or heard == self._beats:
      self._heard, self._heard_s = heard, now_s
    return self._process.poll() is None and now_s <= self._heard_s + self._hang_s

  def beat(self) -> None:
    """Say that a cycle was done. A full pipe means that it is behind, not that we are."""
    with contextlib.suppress(BlockingIOError, BrokenPipeError):
      self._beats += os.write(self._pipe, b".")

  def goodbye(self) -> None:
    """Say that the controller has ended as it should: no beats are missed then."""
    end_s = time.monotonic() + GOODBYE_S
    with contextlib.suppress(OSError):  # It has left already.
      while time.monotonic() < end_s:
        try:
          os.write(self._pipe, GOODBYE)
          return
        except BlockingIOError:
          time.sleep(0.01)

  def close(self) -> None:
    """Let it go: after a goodbye it has left, without one it damps first."""
    os.close(self._pipe)
    with contextlib.suppress(subprocess.TimeoutExpired):
      self._process.wait(timeout=DAMP_S + 5.0)


def watch(pipe: int, hang_s: float) -> str:
  """Wait until the controller ends; returns how: 'goodbye', 'death' or 'hang'."""
  began = False
  while True:
    # Before its first cycle the controller may take its time.
    ready, _, _ = select.select([pipe], [], [], hang_s if began else None)
    if not ready:
      return "hang"
    data = os.read(pipe, 4096)
    if not data:
      return "death"
    if GOODBYE in data:
      return "goodbye"
    began = True


def main(arguments: list[str]) -> int:
  """Join the network, watch, and damp if need be."""
  for name in ("SIGINT", "SIGHUP", "SIGTERM"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
  from decap.deploy.controller import damping_of
  from decap.deploy.dds import Participant, Writer
  from decap.deploy.messages import LOW_CMD, TYPE_NAMES, Codec
  from decap.deploy.robots import MOTORS
  from decap.deploy.unitree import COMMAND_TOPIC

  interface, domain, robot, mode_machine, hang_s, pipe, events = arguments
  participant = Participant(interface, int(domain))
  topic = participant.topic(COMMAND_TOPIC, TYPE_NAMES["cmd"], LOW_CMD)
  writer = Writer(participant, topic)
  motors = MOTORS[robot]
  damping = Codec(motors).encode_command(damping_of(motors), int(mode_machine))
  print("watching", flush=True)
  how = watch(int(pipe), float(hang_s))
  if how != "goodbye":
    _damp(writer, damping, f"watchdog: {how} of the controller: damping", events)
  participant.close()
  return 0


def _damp(writer: Writer, damping: bytes, text: str, events: str) -> None:
  """Send damping again and again, and meanwhile say why."""
  end_s, told = time.monotonic() + DAMP_S, False
  while time.monotonic() < end_s:
    with contextlib.suppress(UserError):  # The network may come back.
      writer.write(damping)
    if not told:
      told = True
      # Threads: a terminal or disk that is stuck must not keep damping back.
      for report in (_say, _note):
        with contextlib.suppress(RuntimeError):  # No thread is to be had.
          threading.Thread(target=report, args=[text, events], daemon=True).start()
    time.sleep(COMMAND_DT_S)


def _say(text: str, _: str) -> None:
  """On the terminal; without a buffer, whose lock would be held while it is stuck."""
  with contextlib.suppress(OSError):
    os.write(2, f"decap {text}\n".encode())


def _note(text: str, events: str) -> None:
  """In the flight's log, if there is one."""
  if events:
    with contextlib.suppress(OSError), open(events, "a", encoding="utf-8") as file:
      line = {"time_s": round(clock_s(), 4), "event": text}
      file.write(json.dumps(line) + "\n")
