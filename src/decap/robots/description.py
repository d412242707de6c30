"""What a task, a learner and an evaluation have to know of a robot: one description.

A robot is a function that returns a `RobotDescription`, and tasks name that function
(decap.tasks). All that training and evaluation take from the robot is here, so that
nothing else in them knows the name of a joint. What a robot's own computer needs, motor
slots and gains, is in a module without torch and mjlab beside it (motors.py,
g1_motors.py), because deployment has neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mjlab.entity import EntityCfg

from decap.constraints.groups import BodyGroupCfg

Point = tuple[str, tuple[float, float, float]]
"""A body, and a place in its frame, m."""


@dataclass(frozen=True)
class Gait:
  """The clock that feet should keep while the robot is told to move."""

  period_s: float
  offsets: tuple[float, ...]
  """By how much of a period each foot is ahead, in the order of the robot's feet."""
  stance_share: float = 0.55
  """Share of the period for which a foot is on the ground."""


@dataclass(frozen=True)
class RobotDescription:
  """A robot on its feet. Names of joints and bodies may be regular expressions."""

  joint_names: tuple[str, ...]
  """Joints in the order of the model and of the actions; no patterns."""
  entity: EntityCfg
  """mjlab's description: model, actuators, initial state, collisions. It has a gyro
  "imu_ang_vel"; other sensors only cost time."""
  action_scale: dict[str, float]
  """Joint → rad of position target per unit of action."""
  exploration: dict[str, float]
  """Joint → standard deviation of the actions of a policy that knows nothing yet."""
  groups: dict[str, BodyGroupCfg]
  """Body groups, which share limits."""
  limits: Mapping[str, dict[str, float] | float]
  """Quantity → group → limit: `action_rate` (rad/s), `joint_acc` (rad/s²),
  `joint_torque` (Nm), `joint_vel` (rad/s); scalars have one number: `tilt` (rad),
  `foot_force` (N)."""
  feet: tuple[str, ...]
  """Bodies that touch the ground, no patterns; the first two are left and right of
  each other."""
  foot_geoms: tuple[str, ...]
  """Geoms of the feet, whose friction is randomised."""
  contact_bodies: tuple[str, ...]
  """Bodies that should touch nothing: all that have collision geoms, but the feet."""
  torso: str
  """Body that carries loads, that the camera follows, and that methods may calm."""
  base_height_m: float
  """Height of the root above the ground while walking."""
  fallen_height_m: float
  """Height of the root below which the robot has fallen."""
  foot_clearance_m: float
  """Height of a foot's body above the ground in the middle of a swing."""
  gait: Gait
  deviations: dict[str, tuple[tuple[str, ...], float]]
  """Reward → joints that should stay near their default position, and its weight."""
  head: Point
  """Where the robot's view of the world is: its jerk is measured."""
  segments: dict[str, str]
  """Part of the body → body whose angular velocity is measured."""
  extremities: dict[str, Point] = field(default_factory=dict)
  """Ends of limbs beyond the bodies' origins, for playback."""
  payload_kg: tuple[float, float] = (-1.0, 3.0)
  """Mass that is added to the torso."""
  profile_quantiles: dict[str, float] = field(default_factory=dict)
  """Group → quantile of measured motion that `decap profile` proposes as its limit,
  where it is not the profile's own: low for what should become calm."""
  solver: Mapping[str, Any] = field(default_factory=dict)
  """Fields of mjlab's MujocoCfg that the model needs."""
  contacts: int = 48
  constraint_rows: int = 200
  """Room for contacts and constraint rows of an environment on flat ground."""
  view_distance_m: float = 2.5
  """Of the camera from the torso."""
