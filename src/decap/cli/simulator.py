"""``decap simulator``: the simulated robot on the network, in a robot's place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import OmitArgPrefixes

from decap.deploy.sim_cfg import SimCfg
from decap.options.args import Args, above
from decap.options.types import Domain, Share


@dataclass(kw_only=True)
class SimulatorArgs(Args):
  """The robot, its ground, and how long."""

  dof: Literal[29, 23] = 29
  """Joints of the robot."""
  world: OmitArgPrefixes[SimCfg] = SimCfg()
  """Robot and world."""
  release: Share = 5.0
  """When the gantry lets go, s after the robot began to stand up."""
  seconds: Annotated[float, above(0)] = math.inf
  """Simulated time to run."""
  domain: Domain = 1
  """DDS domain."""

  def check(self) -> None:
    self.world.check()

  def run(self) -> None:
    """Wait for a controller, then run in lockstep with it."""
    from decap.deploy.simulation import SimulatedRobot
    from decap.deploy.unitree import SimulatorPort, serve
    from decap.robots.g1_motors import g1_motors

    robot = SimulatedRobot(g1_motors(self.dof), self.world)
    port = SimulatorPort(robot.motors, "lo", self.domain)
    print("Waiting for 'decap deploy --simulator'; Ctrl-C ends.", flush=True)
    driven, stiff_s = False, math.inf

    def watch(command) -> None:
      nonlocal driven, stiff_s
      if not driven:
        print("A controller drives.", flush=True)
      driven = True
      # Who is stopped and stands up again has all of the time again.
      stiff_s = min(stiff_s, robot.now_s()) if command.kp.any() else math.inf
      if robot.held and robot.now_s() >= stiff_s + self.release:
        robot.release()
        print(f"{robot.now_s():8.2f} s  the gantry lets go", flush=True)

    try:
      serve(robot, port, lambda: robot.now_s() >= self.seconds, on_command=watch)
    finally:
      port.close()
      x, y = robot.data.qpos[:2]
      state = "lies" if robot.fallen() else "stands"
      print(f"{robot.now_s():8.2f} s  the robot {state} at x {x:.2f} m, y {y:.2f} m")
