"""The constrained quantities, from plain tensors.

Training, evaluation and anyone with another simulator call these same functions, so
their numbers can never disagree. All are absolute values per joint; the leading
dimensions are free.
"""

from __future__ import annotations

import torch


def action_rate(
  action: torch.Tensor,
  prev_action: torch.Tensor,
  scale: torch.Tensor | float,
  dt: float,
) -> torch.Tensor:
  """Rate of the joint-position target, in rad/s.

  The paper's limit has the unit rad/s, so the difference of raw actions is multiplied
  by the action scale (rad per unit of action) and divided by the control step. With
  scale = 1 this is the quantity of CaT's code, raw actions per second. An episode's
  first step has no previous action: pass the action itself, and the rate is 0.

  Args:
    action: Raw actions of this control step. # [..., J]
    prev_action: Raw actions of the step before. # [..., J]
    scale: Action scale, one for all joints or one each. # [J]
    dt: Control step in seconds.
  """
  return ((action - prev_action) * scale).abs() / dt  # [..., J]


def joint_acceleration(
  vel_after: torch.Tensor, vel_before: torch.Tensor, dt: float
) -> torch.Tensor:
  """Finite difference of the joint velocity over dt, in rad/s².

  Training takes the last physics substep, as Isaac Lab does; evaluation also takes the
  whole control step, which is all that a robot can measure. A simulator's own
  acceleration is another number: implicit integrators do not move by it.
  """
  return (vel_after - vel_before).abs() / dt  # [..., J]


def joint_torque(torque: torch.Tensor) -> torch.Tensor:
  """Torque that the actuators apply at the joints, in Nm."""
  return torque.abs()  # [..., J]


def joint_velocity(velocity: torch.Tensor) -> torch.Tensor:
  """Joint speed, in rad/s."""
  return velocity.abs()  # [..., J]


def energy(torque: torch.Tensor, velocity: torch.Tensor) -> torch.Tensor:
  """Mechanical power |τ·q̇|, in W; the paper calls it energy (N·rad/s)."""
  return (torque * velocity).abs()  # [..., J]
