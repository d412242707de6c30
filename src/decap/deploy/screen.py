"""The terminal screen: state, command, margins, latencies, last stop.

Plain text, a few kilobytes, five times a second. A thread writes it, because a terminal
at the end of a bad connection can block, and the robot must not wait for it.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from decap.deploy.latency import STAGES

if TYPE_CHECKING:
  from decap.deploy.controller import Controller, Cycle

PERIOD_S = 0.2
_BAR = 30


class Screen:
  """An observer of a controller that shows what it does.

  Without a terminal it prints events only, a line each, and remarks once each, on
  standard error.
  """

  def __init__(self, help_line: str, stream: TextIO | None = None):
    self._help = help_line
    self._stream = stream or sys.stdout
    self._terminal = self._stream.isatty()
    self._start_s: float | None = None
    self._next_s = 0.0
    self._log: list[str] = []
    self._told: set[str] = set()
    self._waiting: queue.Queue[tuple[TextIO, str] | None] = queue.Queue(maxsize=100)
    self.remarks: Callable[[], list[str]] = list
    """What others have to say, such as the recorder's problem."""
    self._thread = threading.Thread(target=self._work, daemon=True)
    self._thread.start()

  def __call__(self, controller: Controller, cycle: Cycle) -> None:
    if self._start_s is None:
      self._start_s = cycle.now_s
    time_s = cycle.now_s - self._start_s
    lines = [f"{time_s:9.2f} s  {event}" for event in cycle.events]
    due = cycle.now_s >= self._next_s
    if due:
      self._next_s = cycle.now_s + PERIOD_S
    if not self._terminal:
      self._print(lines, self.remarks() if due else [])
      return
    self._log = [*self._log, *lines][-6:]
    if due or lines:
      remark = " · ".join(self.remarks())
      text = render(controller, cycle, self._log, self._help, remark)
      # Home, text with the rest of each line erased, then all below erased.
      erased = text.replace("\n", "\x1b[K\n")
      self._put(self._stream, f"\x1b[H{erased}\x1b[J")

  def close(self) -> None:
    with contextlib.suppress(queue.Full):
      self._waiting.put_nowait(None)
    self._thread.join(timeout=1.0)

  def _print(self, lines: list[str], remarks: list[str]) -> None:
    if lines:
      self._put(self._stream, "".join(f"{line}\n" for line in lines))
    for remark in remarks:
      if remark not in self._told:
        self._told.add(remark)
        self._put(sys.stderr, f"decap: {remark}\n")

  def _put(self, stream: TextIO, text: str) -> None:
    with contextlib.suppress(queue.Full):  # The terminal is stuck; so be it.
      self._waiting.put_nowait((stream, text))

  def _work(self) -> None:
    while (item := self._waiting.get()) is not None:
      stream, text = item
      with contextlib.suppress(OSError, ValueError):  # The terminal may be gone.
        stream.write(text)
        stream.flush()


def render(
  controller: Controller, cycle: Cycle, log: list[str], help_line: str, remark: str
) -> str:
  """The whole screen as text."""
  machine, monitor = controller.machine, controller.monitor
  vx, vy, yaw = cycle.velocity_command
  median, worst = controller.latency.median_ms(), controller.latency.worst_ms()
  tolerated = ", ".join(
    f"{count} {name}" for name, count in vars(monitor.tolerated).items() if count
  )
  lines = [
    f"decap deploy   {cycle.mode.value.upper():<8} for "
    f"{cycle.now_s - machine.since_s:7.1f} s   policy {machine.policy + 1} of "
    f"{machine.num_policies}: {controller.policy.bundle.folder.name}",
    f"command        vx {vx:+.2f} m/s   vy {vy:+.2f} m/s   yaw {yaw:+.2f} rad/s",
    f"health         {cycle.fault or 'all is well'}",
    f"last stop      {machine.stop_reason or 'none'}",
    f"tolerated      {tolerated or 'nothing'}",
    "",
    "margins        share of each limit in use",
    *(_bar(name, share) for name, share in monitor.margins.items()),
    "",
    "latency        " + "   ".join(f"{s} {median[s]:.3f}" for s in STAGES) + "  ms",
    "  worst        " + "   ".join(f"{s} {worst[s]:.3f}" for s in STAGES) + "  ms",
    "",
    *log,
    "",
    help_line,
    remark,
    "",
  ]
  return "\n".join(lines)


def _bar(name: str, share: float) -> str:
  filled = round(_BAR * min(1.0, max(0.0, share)))
  return f"  {name:<13}{'█' * filled}{'·' * (_BAR - filled)} {100 * share:4.0f} %"
