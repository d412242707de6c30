"""Robots that can be driven: a policy is for the one whose joints it names."""

from __future__ import annotations

from collections.abc import Sequence

from decap.errors import UserError
from decap.robots.g1_motors import G1_23DOF, G1_29DOF
from decap.robots.motors import RobotMotors

MOTORS = {motors.name: motors for motors in (G1_29DOF, G1_23DOF)}
"""Name of a robot → its motors."""


def motors_for(joint_names: Sequence[str], whose: object = "A policy") -> RobotMotors:
  """Motors of the robot that has just these joints, in any order.

  Args:
    whose: What names the joints, for the sentence if no robot has them.
  """
  joints = set(joint_names)
  odd = {name: joints ^ set(motors.joint_names) for name, motors in MOTORS.items()}
  nearest = min(odd, key=lambda name: len(odd[name]))
  if not odd[nearest]:
    return MOTORS[nearest]
  joint = min(odd[nearest], key=lambda joint: (joint not in joints, joint))
  drives = "drives" if joint in joints else "does not drive"
  raise UserError(
    f"{whose} is for no robot whose motors are known ({', '.join(MOTORS)}): unlike one "
    f"for {nearest}, it {drives} {joint}."
  )
