"""The G1's motors, for robots' computers: slots, gains, limits, default pose.

A test compares them with mjlab's model, which the policies are trained on. The 23-DoF
robot has the same motor slots, six of them empty: always map by name.
"""

from __future__ import annotations

from math import pi

from decap.robots.motors import Motor, RobotMotors

# Kind of motor → armature kg·m², effort limit Nm, velocity limit rad/s.
_ACTUATORS = {
  "5020": (0.003609725, 25.0, 37.0),
  "7520_14": (0.01017752004132231, 88.0, 32.0),
  "7520_22": (0.025101925, 139.0, 20.0),
  "4010": (0.00425, 5.0, 22.0),
  # Ankles, waist roll and pitch: two 5020 on a parallel linkage.
  "2x5020": (0.00721945, 50.0, 37.0),
}

# Joint → motor, lowest and highest position, default pose, in the order of the slots.
_LEFT_LEG = (
  ("hip_pitch", "7520_14", -2.5307, 2.8798, -0.1),
  ("hip_roll", "7520_22", -0.5236, 2.9671, 0.0),
  ("hip_yaw", "7520_14", -2.7576, 2.7576, 0.0),
  ("knee", "7520_22", -0.087267, 2.8798, 0.3),
  ("ankle_pitch", "2x5020", -0.87267, 0.5236, -0.2),
  ("ankle_roll", "2x5020", -0.2618, 0.2618, 0.0),
)
_WAIST = (
  ("waist_yaw", "7520_14", -2.618, 2.618, 0.0),
  ("waist_roll", "2x5020", -0.52, 0.52, 0.0),
  ("waist_pitch", "2x5020", -0.52, 0.52, 0.0),
)
_LEFT_ARM = (
  ("shoulder_pitch", "5020", -3.0892, 2.6704, 0.2),
  ("shoulder_roll", "5020", -1.5882, 2.2515, 0.2),
  ("shoulder_yaw", "5020", -2.618, 2.618, 0.0),
  ("elbow", "5020", -1.0472, 2.0944, 1.28),
  ("wrist_roll", "5020", -1.97222, 1.97222, 0.0),
  ("wrist_pitch", "4010", -1.61443, 1.61443, 0.0),
  ("wrist_yaw", "4010", -1.61443, 1.61443, 0.0),
)
_MIRRORED = ("hip_roll", "shoulder_roll")
"""Joints whose range and pose change sign from left to right."""

_EMPTY_ON_23DOF = (13, 14, 20, 21, 27, 28)


def g1_motors(dof: int) -> RobotMotors:
  """Motors of the G1 with 29 or 23 degrees of freedom."""
  if dof == 29:
    return G1_29DOF
  if dof == 23:
    return G1_23DOF
  raise ValueError(f"the G1 has 29 or 23 degrees of freedom, not {dof}")


def _motors() -> tuple[Motor, ...]:
  rows = [
    *((f"left_{joint}", *rest) for joint, *rest in _LEFT_LEG),
    *(_right(row) for row in _LEFT_LEG),
    *_WAIST,
    *((f"left_{joint}", *rest) for joint, *rest in _LEFT_ARM),
    *(_right(row) for row in _LEFT_ARM),
  ]
  return tuple(_motor(slot, *row) for slot, row in enumerate(rows))


def _right(row: tuple[str, str, float, float, float]) -> tuple:
  joint, kind, low, high, default = row
  if joint in _MIRRORED:
    low, high, default = -high, -low, -default
  return f"right_{joint}", kind, low, high, default


def _motor(
  slot: int, joint: str, kind: str, low: float, high: float, default: float
) -> Motor:
  armature, effort, speed = _ACTUATORS[kind]
  frequency = 10.0 * 2.0 * pi  # mjlab: 10 Hz, damping ratio 2 on the armature.
  return Motor(
    joint=f"{joint}_joint",
    slot=slot,
    kp=armature * frequency**2,
    kd=2.0 * 2.0 * armature * frequency,
    effort_limit=effort,
    velocity_limit=speed,
    position_limits=(low, high),
    default_pos=default,
  )


G1_29DOF = RobotMotors("g1_29dof", _motors(), (2, 5, 11, 12, 13, 14, 15, 16))
G1_23DOF = RobotMotors(
  "g1_23dof",
  tuple(m for m in _motors() if m.slot not in _EMPTY_ON_23DOF),
  (1, 4, 10),
)
