"""Constraints as termination probabilities: torch only, no simulator, no algorithm."""

from decap.constraints.composition import Composition, ConstraintRow
from decap.constraints.groups import BodyGroupCfg, per_joint, resolve_groups
from decap.constraints.quantities import (
  action_rate,
  energy,
  joint_acceleration,
  joint_torque,
  joint_velocity,
)
from decap.constraints.termination import (
  TerminationCfg,
  ViolationScale,
  barrier,
  cat_probability,
  decap_probability,
)

__all__ = [
  "BodyGroupCfg",
  "Composition",
  "ConstraintRow",
  "TerminationCfg",
  "ViolationScale",
  "action_rate",
  "barrier",
  "cat_probability",
  "decap_probability",
  "energy",
  "joint_acceleration",
  "joint_torque",
  "joint_velocity",
  "per_joint",
  "resolve_groups",
]
