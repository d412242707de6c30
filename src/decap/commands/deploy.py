"""``decap deploy``: drive a robot, or a simulated one on the network, with policies."""

from __future__ import annotations

import argparse
from pathlib import Path

from decap.errors import UserError


def add_options(parser: argparse.ArgumentParser) -> None:
  """Policies, the way to the robot, and who steers."""
  add = parser.add_argument
  add("bundles", metavar="BUNDLE", nargs="+", help="policy bundle; several take turns")
  add("--interface", metavar="NAME", help="network interface to the robot, e.g. eth0")
  add("--domain", type=int, help="DDS domain (default: 0; 1 with --simulator)")
  add(
    "--simulator",
    action="store_true",
    help="drive 'decap simulator' on this machine, in lockstep",
  )
  add(
    "--input",
    default="remote",
    metavar="SOURCE",
    help="remote (default), keyboard, gamepad, or a script file",
  )
  add("--log", metavar="FOLDER", help="flight recorder (default: flights/TIME)")
  add("--no-log", action="store_true", help="record nothing")
  add(
    "--log-mb", type=float, default=256.0, help="size of the recording (default: 256)"
  )
  add("--seconds", type=float, help="end in damping after this time")
  add("--wait", type=float, default=5.0, help="seconds to wait for the robot (5)")
  add(
    "--dry-run",
    action="store_true",
    help="check the bundles and measure this machine; sends nothing",
  )


def run(options: argparse.Namespace) -> int:
  """Check everything, then drive."""
  from decap.deploy.session import load_policies

  _check(options)
  bundles, motors = load_policies(options.bundles)
  if options.dry_run:
    from decap.deploy.dry_run import measure, report

    print(report(bundles[0], measure(bundles[0], motors)))
    return 0
  return _drive(options, bundles, motors)


def _check(options: argparse.Namespace) -> None:
  if options.simulator and options.interface:
    raise UserError("--simulator is on this machine: it takes no --interface.")
  if not (options.simulator or options.interface or options.dry_run):
    raise UserError("--interface is missing: the network interface to the robot.")
  if options.domain is not None and not 0 <= options.domain <= 232:
    raise UserError(f"--domain must be between 0 and 232, not {options.domain}.")
  if options.seconds is not None and not options.seconds > 0:
    raise UserError(f"--seconds must be above 0, not {options.seconds:g}.")
  if not options.wait > 0:
    raise UserError(f"--wait must be above 0, not {options.wait:g}.")
  if not 1.0 <= options.log_mb <= 100_000:
    raise UserError(f"--log-mb must be between 1 and 100000, not {options.log_mb:g}.")
  if options.interface:
    from decap.deploy.dds import check_interface

    check_interface(options.interface)


def _drive(options: argparse.Namespace, bundles, motors) -> int:
  from decap.deploy import session
  from decap.deploy.screen import Screen
  from decap.deploy.unitree import ROBOT_DOMAIN, SIMULATION_DOMAIN

  interface = "lo" if options.simulator else options.interface
  domain = options.domain
  if domain is None:
    domain = SIMULATION_DOMAIN if options.simulator else ROBOT_DOMAIN
  operator, help_line = make_operator(options.input)
  robot = screen = watchdog = controller = None
  try:
    robot = session.open_robot(
      motors, interface, domain, options.simulator, options.wait
    )
    log = None if options.no_log else Path(options.log or _default_log())
    watchdog = session.start_watchdog(robot, interface, domain, options.simulator, log)
    screen = Screen(help_line)
    controller = session.drive(
      robot,
      motors,
      bundles,
      operator,
      log=log,
      log_mb=options.log_mb,
      screen=screen,
      watchdog=watchdog,
      seconds=options.seconds or float("inf"),
      priority=not options.simulator,
    )
  finally:
    for part in (screen, operator):
      if part is not None and hasattr(part, "close"):
        part.close()
    if watchdog is not None:
      # After an error nobody knows what was sent last: it damps, then.
      watchdog.close(goodbye=controller is not None)
    if robot is not None:
      robot.close()
  print(f"Last stop: {controller.machine.stop_reason or 'none'}.")
  if log:
    print(f"Recorded in {log}; 'decap flight {log}' shows it.")
  return 1 if session.stopped_by_fault(controller) else 0


def make_operator(source: str):
  """An operator by name, and the line that says which button does what."""
  from decap.deploy import operator

  if source == "remote":
    return operator.Remote(), operator.REMOTE_HELP
  if source == "keyboard":
    keys = operator.WithRemoteStop(operator.Keyboard())
    return keys, operator.KEYBOARD_HELP + " · Ctrl-C ends"
  if source == "gamepad":
    return operator.WithRemoteStop(operator.Gamepad()), operator.REMOTE_HELP
  script = operator.Script.from_file(source)
  return operator.WithRemoteStop(script), "script; L2+B on the remote or Ctrl-C stops"


def _default_log() -> str:
  from datetime import datetime

  return f"flights/{datetime.now():%Y%m%d-%H%M%S}"
