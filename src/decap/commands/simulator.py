"""``decap simulator``: the simulated robot on the network, in a robot's place."""

from __future__ import annotations

import argparse

from decap.errors import UserError


def add_options(parser: argparse.ArgumentParser) -> None:
  """The robot, its ground, and how long."""
  add = parser.add_argument
  add("--dof", type=int, default=29, choices=(29, 23), help="joints (default: 29)")
  add("--terrain", default="flat", metavar="NAME", help="ground (default: flat)")
  add("--delay-ms", type=float, default=5.0, help="actuation delay (default: 5)")
  add("--payload", type=float, default=0.0, metavar="KG", help="in the right hand")
  add("--release", type=float, default=5.0, metavar="S", help="gantry lets go after S")
  add("--seconds", type=float, default=float("inf"), help="simulated time to run")
  add("--domain", type=int, default=1, help="DDS domain (default: 1)")
  add("--seed", type=int, default=0, help="of noise and stones")


def run(options: argparse.Namespace) -> None:
  """Wait for a controller, then run in lockstep with it."""
  if not options.seconds > 0:
    raise UserError(f"--seconds must be above 0, not {options.seconds:g}.")
  from decap.deploy.simulation import SimCfg, SimulatedRobot
  from decap.deploy.unitree import SimulatorPort, serve

  cfg = SimCfg(
    terrain=options.terrain,
    delay_s=options.delay_ms / 1000.0,
    payload_kg=options.payload,
    seed=options.seed,
  )
  robot = SimulatedRobot(options.dof, cfg)
  port = SimulatorPort(robot.motors, "lo", options.domain)
  print("Waiting for 'decap deploy --simulator'; Ctrl-C ends.", flush=True)
  seconds: list[float] = []

  def watch(command) -> None:
    if not seconds:
      print("A controller drives.", flush=True)
      seconds.append(robot.now_s())
    if robot.held and command.kp.any() and robot.now_s() >= options.release:
      robot.release()
      print(f"{robot.now_s():8.2f} s  the gantry lets go", flush=True)

  try:
    serve(robot, port, lambda: robot.now_s() >= options.seconds, on_command=watch)
  finally:
    port.close()
    x, y = robot.data.qpos[:2]
    state = "lies" if robot.fallen() else "stands"
    print(f"{robot.now_s():8.2f} s  the robot {state} at x {x:.2f} m, y {y:.2f} m")
