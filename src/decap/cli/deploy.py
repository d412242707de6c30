"""``decap deploy``: drive a robot, or a simulated one on the network, with policies."""

from __future__ import annotations

import contextlib
import signal
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

from decap.errors import UserError
from decap.options.args import Args, above, between, require_some
from decap.options.types import Bundles, Flag, Positive, shown


@dataclass(kw_only=True)
class DeployArgs(Args):
  """Policies, the way to the robot, and who steers."""

  bundles: Bundles
  """Policy bundles; several take turns."""
  interface: Annotated[str | None, shown("NAME")] = None
  """Network interface to the robot, e.g. eth0."""
  domain: Annotated[int | None, shown("N"), between(0, 232)] = None
  """DDS domain (default: 0; 1 with --simulator)."""
  simulator: Flag = False
  """Drive 'decap simulator' on this machine, in lockstep."""
  input: Annotated[str, shown("SOURCE")] = "remote"
  """remote (default), keyboard, gamepad, or a script file."""
  log: Annotated[str | None, shown("FOLDER")] = None
  """Folder of the flight recorder (default: flights/TIME)."""
  no_log: Flag = False
  """Record nothing."""
  log_mb: Annotated[float, between(1, 100_000)] = 256.0
  """Size of the recording."""
  seconds: Annotated[float | None, shown("S"), above(0)] = None
  """End in damping after this time."""
  wait: Positive = 5.0
  """Seconds to wait for the robot."""
  dry_run: Flag = False
  """Check the bundles and measure this machine; sends nothing."""

  def check(self) -> None:
    require_some("BUNDLE", self.bundles)
    if self.simulator and self.interface:
      raise UserError("--simulator is on this machine: it takes no --interface.")
    if not (self.simulator or self.interface or self.dry_run):
      raise UserError("--interface is missing: the network interface to the robot.")
    if self.interface:
      from decap.deploy.dds import check_interface

      check_interface(self.interface)

  def run(self) -> int:
    """Drive."""
    from decap.deploy.session import load_policies, on_signals

    bundles, motors = load_policies(self.bundles)
    if self.dry_run:
      from decap.deploy.dry_run import measure, report

      print(report(bundles[0], measure(bundles[0], motors)))
      return 0
    # Until the drive asks for its own end, the keyboard's terminal must be given back.
    with on_signals(_leave, signal.SIGTERM, signal.SIGHUP):
      return _drive(self, bundles, motors)


def _leave(number: int, frame: object) -> None:
  sys.exit(128 + number)


def _drive(options: DeployArgs, bundles, motors) -> int:
  from decap.deploy import session
  from decap.deploy.operator import make_operator
  from decap.deploy.recorder import Recorder, is_flight
  from decap.deploy.screen import Screen
  from decap.deploy.unitree import ROBOT_DOMAIN, SIMULATION_DOMAIN

  interface = "lo" if options.simulator else options.interface or ""
  domain = options.domain
  if domain is None:
    domain = SIMULATION_DOMAIN if options.simulator else ROBOT_DOMAIN
  default = f"flights/{datetime.now():%Y%m%d-%H%M%S}"
  log = None if options.no_log else Path(options.log or default)
  if log and is_flight(log):
    raise UserError(f"There is a flight in {log} already: give --log another folder.")
  with contextlib.ExitStack() as parts:
    operator, help_line = make_operator(options.input)
    parts.callback(getattr(operator, "close", lambda: None))
    robot = session.open_robot(
      motors, interface, domain, options.simulator, options.wait
    )
    parts.callback(robot.close)
    watchdog = session.start_watchdog(robot, interface, domain, options.simulator, log)
    # After an error nobody said goodbye, nor knows what was sent last: it damps.
    parts.callback(watchdog.close)
    screen = Screen(help_line)
    parts.callback(screen.close)
    recorder = Recorder(log, options.log_mb) if log else None
    controller = session.drive(
      robot,
      motors,
      bundles,
      operator,
      recorder=recorder,
      screen=screen,
      watchdog=watchdog,
      seconds=options.seconds or float("inf"),
      priority=not options.simulator,
    )
  print(f"Last stop: {controller.machine.stop_reason or 'none'}.")
  if recorder and recorder.problem:
    print(f"Not all of it is in {log}: {recorder.problem}.")
  elif recorder:
    print(f"Recorded in {log}; 'decap flight {log}' shows it.")
  return 1 if session.stopped_by_fault(controller) else 0
