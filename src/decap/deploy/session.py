"""A drive from start to end: checks first, then robot, watchdog, recorder, screen.

Everything that can be wrong with bundles, network and options is found before the
first command is sent, and says so in one sentence.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from decap.deploy.bundle import Bundle, bundle_folder, load_bundle
from decap.deploy.controller import Controller
from decap.deploy.operator import Input, Operator
from decap.deploy.policy import RunningPolicy
from decap.deploy.recorder import EVENTS_FILE, Recorder
from decap.deploy.robot_io import Robot, RobotState
from decap.deploy.robots import motors_for
from decap.deploy.screen import Screen
from decap.deploy.states import Mode, Requests
from decap.deploy.stops import Deadlines, Limits, Tolerated
from decap.deploy.unitree import UnitreeRobot
from decap.deploy.watchdog import HANG_S, Watchdog
from decap.errors import UserError
from decap.robots.motors import RobotMotors

LISTEN_S = 0.5
"""How long other publishers are listened for before anything is sent."""
FAREWELL_S = 2.0
"""Damping before the controller leaves."""
WATCHDOG_GONE = (
  "the watchdog has ended or hangs: a dead controller would not be noticed"
)
REAL_TIME_PRIORITY = 40
"""Above ordinary programs, below what the kernel itself needs."""


def load_policies(sources: Sequence[str]) -> tuple[list[Bundle], RobotMotors]:
  """All bundles (of runs, their own), checked to fit one robot, and its motors."""
  bundles = [load_bundle(bundle_folder(source)) for source in sources]
  first = bundles[0]
  motors = motors_for(first.joint_names, first.folder)
  for bundle in bundles:
    RunningPolicy(bundle, motors.joint_names)
  return bundles, motors


def open_robot(
  motors: RobotMotors, interface: str, domain: int, lockstep: bool, timeout_s: float
) -> UnitreeRobot:
  """A robot on the network that nobody else drives."""
  robot = UnitreeRobot(motors, interface, domain, lockstep)
  try:
    robot.connect(timeout_s)
    time.sleep(LISTEN_S)
    if robot.foreign_commands():
      raise UserError(
        "Another program sends commands to the robot: put it into debug mode "
        "(L2+R2 on its remote), or end that program."
      )
  except UserError:
    robot.close()
    raise
  return robot


@contextlib.contextmanager
def on_signals(handler: Callable[..., None], *numbers: int) -> Iterator[None]:
  """These signals call `handler`."""
  old = {number: signal.signal(number, handler) for number in numbers}
  try:
    yield
  finally:
    for number, handler_before in old.items():
      signal.signal(number, handler_before)


@dataclass
class Ending:
  """An operator that also stops when a signal or the time limit asks to end."""

  source: Operator
  end_s: float
  asked: bool = False
  _since_s: float | None = None

  def ask(self, *_: object) -> None:
    """Wish the end; a handler of signals."""
    self.asked = True

  def poll(self, now_s: float, state: RobotState | None) -> Input:
    wanted = self.source.poll(now_s, state)
    if self.asked:
      wanted.requests = Requests(stop=True)
    return wanted

  def due(self, now_s: float) -> bool:
    """Whether damping has been sent for long enough after the wish to end."""
    if self.asked or now_s >= self.end_s:
      self.asked = True
      if self._since_s is None:
        self._since_s = now_s
    return self._since_s is not None and now_s >= self._since_s + FAREWELL_S


class Watched(Deadlines):
  """Deadlines of the loop, and a look at the watchdog: nothing moves without it."""

  def __init__(self, limits: Limits, tolerated: Tolerated, watchdog: Watchdog):
    super().__init__(limits, tolerated)
    self._watchdog = watchdog

  def fault(self, now_s: float, lag_s: float) -> str | None:
    """What is wrong with timing or watchdog; one that has ended stays a fault."""
    timing = super().fault(now_s, lag_s)
    return timing or (None if self._watchdog.alive() else WATCHDOG_GONE)


class Beside:
  """Recorder and screen of a drive: what goes wrong with them is a remark, no more."""

  def __init__(
    self,
    note: str,
    recorder: Recorder | None,
    screen: Screen | None,
    watchdog: Watchdog | None,
  ):
    self._note, self._watchdog = note, watchdog
    self._recorder, self._screen = recorder, screen
    self._problems: dict[str, str] = {}

  def start(self, controller: Controller) -> None:
    """Let them observe a controller."""
    if self._recorder:
      self._try("recording", self._recorder.start, controller)
      controller.observers.append(partial(self._observe, "recording", self._recorder))
    if self._screen:
      self._screen.remarks = self.remarks
      controller.observers.append(partial(self._observe, "the screen", self._screen))

  def remarks(self) -> list[str]:
    """What the operator should know."""
    recorder, watchdog = self._recorder, self._watchdog
    found = [self._note, recorder.problem if recorder else "", *self._problems.values()]
    if watchdog and not watchdog.alive():
      found.append(WATCHDOG_GONE)
    return [remark for remark in found if remark]

  def end(self, controller: Controller) -> None:
    """Close the recording, and say what the screen could not."""
    if self._recorder:
      self._try("recording", _summarise, self._recorder, controller)
      self._try("recording", self._recorder.close)
      if problem := self._problems.get("recording"):
        self._recorder.problem = problem
    if problem := self._problems.get("the screen"):
      with contextlib.suppress(OSError):  # The terminal may be gone.
        print(f"decap: {problem}", file=sys.stderr)

  def _observe(self, name: str, observer: Callable, *cycle: object) -> None:
    if name not in self._problems:
      self._try(name, observer, *cycle)

  def _try(self, name: str, call: Callable, *arguments: object) -> None:
    try:
      call(*arguments)
    except Exception as error:
      problem = f"{name} ended: {type(error).__name__}: {error}"
      self._problems.setdefault(name, problem)


@contextlib.contextmanager
def real_time(wanted: bool) -> Iterator[str]:
  """Let the loop go first on a busy machine, where the system allows it.

  Yields a remark for the operator if it does not.
  """
  if not wanted:
    yield ""
    return
  # Threads and processes that are started meanwhile stay ordinary.
  policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
  try:
    os.sched_setscheduler(0, policy, os.sched_param(REAL_TIME_PRIORITY))
  except OSError:
    yield "no real-time priority: add 'USER - rtprio 90' to /etc/security/limits.conf"
    return
  try:
    yield ""
  finally:
    # Without privileges the flag cannot be taken back; nor does it hurt.
    with contextlib.suppress(OSError):
      ordinary = os.SCHED_OTHER | os.SCHED_RESET_ON_FORK
      os.sched_setscheduler(0, ordinary, os.sched_param(0))


def drive(
  robot: Robot,
  motors: RobotMotors,
  bundles: Sequence[Bundle],
  operator: Operator,
  *,
  recorder: Recorder | None = None,
  screen: Screen | None = None,
  watchdog: Watchdog | None = None,
  seconds: float = float("inf"),
  priority: bool = False,
) -> Controller:
  """Drive until a signal, the time limit or an error; ends in damping.

  Args:
    priority: Ask for real-time priority; a simulator in lockstep needs none.
  """
  end_s = robot.now_s() + seconds
  ending = Ending(operator, end_s)
  signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
  with on_signals(ending.ask, *signals), real_time(priority) as note:
    controller = Controller(robot, motors, bundles, ending)
    if watchdog:
      tolerated = controller.monitor.tolerated
      controller.deadlines = Watched(controller.limits, tolerated, watchdog)
      controller.observers.append(lambda *_: watchdog.beat())
    beside = Beside(note, recorder, screen, watchdog)
    beside.start(controller)
    gc.collect()
    gc.freeze()
    gc.disable()  # A collection takes milliseconds; a cycle leaves nothing for it.
    try:
      # Files and collection took their time: the first cycle is not late, it is due.
      controller.next_s = robot.now_s()
      controller.run(lambda: ending.due(robot.now_s()))
      if watchdog:
        watchdog.goodbye()  # Now: what follows takes longer than a cycle may.
    finally:
      gc.enable()
      gc.unfreeze()
      beside.end(controller)
  return controller


def start_watchdog(
  robot: UnitreeRobot, interface: str, domain: int, lockstep: bool, log: Path | None
) -> Watchdog:
  """The watchdog of a robot that has been seen."""
  assert robot.mode_machine is not None
  # A simulator in lockstep may take its time; only a death counts there.
  hang_s = 60.0 if lockstep else HANG_S
  events = (log / EVENTS_FILE).absolute() if log else None
  return Watchdog(
    interface, domain, robot.motors.name, robot.mode_machine, hang_s, events
  )


def stopped_by_fault(controller: Controller) -> bool:
  """Whether the last stop was more than the operator's wish."""
  reason = controller.machine.stop_reason
  return controller.machine.mode is Mode.DAMPING and reason != "stopped by the operator"


def _summarise(recorder: Recorder, controller: Controller) -> None:
  """Last lines of the log: what was tolerated, and how long the stages took."""
  recorder.event(
    controller.robot.now_s(),
    "ended",
    cycles=controller.cycles,
    tolerated=vars(controller.monitor.tolerated),
    dropped_records=recorder.dropped,
    latency_median_ms=controller.latency.median_ms(),
    latency_worst_ms=controller.latency.worst_ms(),
  )
