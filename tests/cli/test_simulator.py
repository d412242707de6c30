"""``decap simulator`` without a network: when its gantry lets go."""

import numpy as np
import pytest

from decap.cli.simulator import SimulatorArgs
from decap.deploy import simulation, unitree
from decap.deploy.controller import damping_of
from decap.deploy.robot_io import RobotCommand
from tests.deploy.robots import MOTORS, J

STIFF = RobotCommand(np.zeros(J), kp=np.ones(J), kd=np.ones(J))
DAMPING = damping_of(MOTORS)


class _Hanging:
  """A robot that only passes the time."""

  motors, held = MOTORS, True

  def __init__(self, *_):
    self.time_s = self.released_s = 0.0
    self.data = type("", (), {"qpos": np.zeros(2)})

  def now_s(self):
    return self.time_s

  def release(self):
    self.held, self.released_s = False, self.time_s

  def fallen(self):
    return False


class _Port:
  def __init__(self, *_):
    pass

  def close(self):
    pass


@pytest.mark.parametrize(
  "commands, expected",
  [
    (((8.0, DAMPING), (20.0, STIFF)), 13.0),
    (((0.0, DAMPING), (20.0, STIFF)), 5.0),
    # Who is stopped and stands up again has all of the time again.
    (((1.0, DAMPING), (3.0, STIFF), (4.0, DAMPING), (20.0, STIFF)), 13.0),
    (((8.0, DAMPING), (4.0, STIFF), (8.0, DAMPING)), 0.0),
  ],
)
def test_the_gantry_lets_go_five_seconds_after_the_robot_stands_up(
  monkeypatch, commands, expected
):
  made = []

  def serve(robot, port, until, on_command):
    made.append(robot)
    for seconds, command in commands:
      for _ in range(round(10 * seconds)):
        on_command(command)
        robot.time_s += 0.1

  monkeypatch.setattr(simulation, "SimulatedRobot", _Hanging)
  monkeypatch.setattr(unitree, "SimulatorPort", _Port)
  monkeypatch.setattr(unitree, "serve", serve)
  SimulatorArgs().run()
  assert made[0].released_s == pytest.approx(expected, abs=0.15)
