"""What evaluation has to know of a robot: joints, groups, limits, time steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

QUANTITIES = ("action_rate", "joint_acc", "joint_torque", "joint_vel")
"""The constrained quantities, in the order of every [.., Q, ..] axis."""

SMOOTHNESS = ("action_rate", "joint_acc", "joint_acc_20ms", "joint_vel", "energy")
"""The smoothness metrics: the paper's four, acceleration by both time steps."""

UNITS = {
  "action_rate": "rad/s",
  "joint_acc": "rad/s²",
  "joint_acc_20ms": "rad/s²",
  "joint_torque": "Nm",
  "joint_vel": "rad/s",
  "energy": "Nm·rad/s",
}

TITLES = {
  "action_rate": "Action rate",
  "joint_acc": "Joint acceleration",
  "joint_acc_20ms": "Joint acceleration (20 ms)",
  "joint_torque": "Joint torque",
  "joint_vel": "Joint velocity",
  "energy": "Energy",
}

Limits = dict[str, dict[str, float]]
"""Quantity -> group -> limit, in the units of `UNITS`."""


@dataclass(frozen=True)
class Layout:
  """Joints, groups and limits that a batch of samples is measured against."""

  joint_names: tuple[str, ...]
  groups: dict[str, tuple[int, ...]]
  """Group -> joint indices. Every joint is in one group."""
  p_max: dict[str, float]
  """Group -> largest termination probability below the limit."""
  limits: Limits
  action_scale: tuple[float, ...]
  """Radians of position target per unit of action, per joint."""
  control_dt: float
  """Seconds between actions."""
  physics_dt: float
  """Seconds of the last physics substep, over which acceleration is taken."""

  def __post_init__(self) -> None:
    joints = sorted(i for indices in self.groups.values() for i in indices)
    if joints != list(range(len(self.joint_names))):
      raise ValueError("groups must hold every joint exactly once")
    for quantity in QUANTITIES:
      missing = set(self.groups) - set(self.limits.get(quantity, {}))
      if missing:
        raise ValueError(f"no limit of {quantity} for group {sorted(missing)[0]!r}")

  @property
  def num_joints(self) -> int:
    return len(self.joint_names)

  def group_indices(self, device: str | torch.device) -> list[torch.Tensor]:
    """Joint indices of each group as device tensors, in the order of `groups`."""
    return [
      torch.tensor(indices, dtype=torch.long, device=device)
      for indices in self.groups.values()
    ]

  def per_joint(self, values: Mapping[str, float]) -> list[float]:
    """A value per group, spread over the joints of each group."""
    spread = [0.0] * self.num_joints
    for name, indices in self.groups.items():
      for index in indices:
        spread[index] = values[name]
    return spread

  def limit_rows(self, quantities: Sequence[str] = QUANTITIES) -> list[list[float]]:
    """Limits as [Q, J] nested lists."""
    return [self.per_joint(self.limits[name]) for name in quantities]

  def to_dict(self) -> dict[str, Any]:
    """Plain data for JSON."""
    data = asdict(self)
    data["joint_names"] = list(self.joint_names)
    data["action_scale"] = list(self.action_scale)
    data["groups"] = {name: list(indices) for name, indices in self.groups.items()}
    return data

  @staticmethod
  def from_dict(data: Mapping[str, Any]) -> Layout:
    return Layout(
      joint_names=tuple(data["joint_names"]),
      groups={name: tuple(indices) for name, indices in data["groups"].items()},
      p_max=dict(data["p_max"]),
      limits={name: dict(values) for name, values in data["limits"].items()},
      action_scale=tuple(data["action_scale"]),
      control_dt=data["control_dt"],
      physics_dt=data["physics_dt"],
    )
