"""The other side of the network, as a process of its own: ``dds_peer.py ROLE DOMAIN``.

Prints one line of JSON at its end. Roles: a simulated robot, the vendor's own SDK, a
robot with wrong checksums, a second controller.
"""

import json
import sys
import time

import numpy as np

from decap.deploy.controller import damping_of
from decap.deploy.messages import Codec
from decap.deploy.simulation import SimCfg, SimulatedRobot
from decap.deploy.unitree import SimulatorPort, UnitreeRobot, serve
from decap.robots.g1_motors import g1_motors


def simulator(domain: int, dof: int, seconds: float) -> dict:
  """A robot in the gantry, in lockstep with whoever drives it."""
  robot = SimulatedRobot(g1_motors(dof), SimCfg(noise=0.1))
  port = SimulatorPort(robot.motors, "lo", domain)
  gains = []
  serve(
    robot,
    port,
    until=lambda: robot.now_s() >= seconds,
    on_command=lambda command: gains.append(float(command.kp[0])),
  )
  q = robot.data.qpos[7:].tolist()
  port.close()
  return {"q": q, "gains": gains, "rejected": port.rejected}


def vendor(domain: int) -> dict:
  """The vendor's C++ SDK in the robot's place: its layouts, its checksums."""
  import unitree_interface

  assert domain == 0  # It knows no other.
  robot = unitree_interface.UnitreeInterface.create_g1("lo")
  state = unitree_interface.LowState(29)
  state.mode_machine = 5
  state.motor.q = [0.01 * i for i in range(29)]
  state.imu.quat = [1.0, 0.0, 0.0, 0.0]
  end = time.monotonic() + 20.0
  command = None
  while time.monotonic() < end:
    state.tick += 1
    robot.publish_low_state(state)
    command = robot.read_incoming_command()
    if command is not None and command.kd[28] > 0:
      end = min(end, time.monotonic() + 0.3)
    time.sleep(0.002)
  fields = ("q_target", "dq_target", "kp", "kd", "tau_ff")
  return {name: list(getattr(command, name)) for name in fields}


def corrupted(domain: int) -> dict:
  """A robot whose checksums are all wrong."""
  port = SimulatorPort(g1_motors(29), "lo", domain)
  robot = SimulatedRobot(g1_motors(29))
  state = robot.read()
  assert state is not None
  message = bytearray(Codec(g1_motors(29)).encode_state(state))
  message[100] ^= 1
  end = time.monotonic() + 10.0
  while time.monotonic() < end and port.receive(0.01) is None:
    port._writer.write(bytes(message))
  return {}


def intruder(domain: int) -> dict:
  """Somebody else who sends commands."""
  motors = g1_motors(29)
  robot = UnitreeRobot(motors, "lo", domain)
  robot.mode_machine = 5
  end = time.monotonic() + 3.0
  while time.monotonic() < end:
    robot.write(damping_of(motors))
    time.sleep(0.01)
  return {}


if __name__ == "__main__":
  role, domain, *rest = sys.argv[1:]
  found = globals()[role](int(domain), *(json.loads(value) for value in rest))
  print("\n" + json.dumps(found, default=np.ndarray.tolist))
