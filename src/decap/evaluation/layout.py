"""What evaluation has to know of a robot: joints, groups, limits, time steps."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from typing import Any, Literal, NamedTuple

import torch

from decap.constraints import BodyGroupCfg, Composition

SMOOTHNESS = ("action_rate", "joint_acc", "joint_acc_20ms", "joint_vel", "energy")
"""The smoothness metrics: the paper's four, acceleration by both time steps."""


class Names(NamedTuple):
  """What figures call a quantity, its unit, and what else narrow columns and the
  paper's first table call it."""

  title: str
  unit: str
  short: str = ""
  paper: str = ""


QUANTITIES = {
  "action_rate": Names("Action rate", "rad/s"),
  "joint_acc": Names("Joint acceleration", "rad/s²", "Acc.", "DoF acc."),
  "joint_acc_20ms": Names("Joint acceleration (20 ms)", "rad/s²", "", "DoF acc. 20 ms"),
  "joint_torque": Names("Joint torque", "Nm", "Torque"),
  "joint_vel": Names("Joint velocity", "rad/s", "Velocity", "DoF velocity"),
  "energy": Names("Energy", "Nm·rad/s"),
}
"""Those that are measured of every robot; a task may constrain others."""

UNITS = {name: names.unit for name, names in QUANTITIES.items()}

Limits = dict[str, Any]
"""Quantity -> group -> limit, or one limit for a scalar quantity."""


def limits_by_row(limits: Limits) -> dict[str, float]:
  """Limits by "quantity/group", or "quantity" for a scalar."""
  rows = {}
  for name, limit in limits.items():
    if isinstance(limit, Mapping):
      rows |= {f"{name}/{group}": value for group, value in limit.items()}
    else:
      rows[name] = limit
  return rows


def title(quantity: str, where: Literal["title", "short", "paper"] = "title") -> str:
  """What figures and tables call a quantity, whoever defined it."""
  names = QUANTITIES.get(quantity) or Names(quantity.replace("_", " ").capitalize(), "")
  return getattr(names, where) or names.title


@dataclass(frozen=True)
class Layout:
  """Joints, groups and limits that a batch of samples is measured against."""

  joint_names: tuple[str, ...]
  groups: dict[str, tuple[int, ...]]
  """Group -> joint indices. Every joint is in one group."""
  p_max: dict[str, float]
  """Group -> largest termination probability below the limit."""
  limits: Limits
  """Of every constrained quantity, in the order of all results."""
  action_scale: tuple[float, ...]
  """Radians of position target per unit of action, per joint."""
  control_dt: float
  """Seconds between actions."""
  physics_dt: float
  """Seconds of the last physics substep, over which acceleration is taken."""
  tracking_reward: tuple[float, float]
  """Weight and variance (m²/s²) of the task's reward for planar velocity."""
  scalar_p_max: dict[str, float] = field(default_factory=dict)
  """Scalar quantity -> termination probability at its limit."""
  units: dict[str, str] = field(default_factory=dict)
  """Quantity -> unit, where it is not in `UNITS`."""
  feet: int = 2
  """Feet whose contacts are measured."""
  segments: tuple[str, ...] = ()
  """Parts of the body whose angular velocity is measured."""
  grounds: tuple[str, ...] = ()
  """Kinds of ground and bands of levels that numbers are told of."""

  def __post_init__(self) -> None:
    joints = sorted(i for indices in self.groups.values() for i in indices)
    if joints != list(range(len(self.joint_names))):
      raise ValueError("groups must hold every joint exactly once")
    for quantity in self.joint_quantities:
      missing = set(self.groups) - set(self.limits[quantity])
      if missing:
        raise ValueError(f"no limit of {quantity} for group {sorted(missing)[0]!r}")

  @property
  def num_joints(self) -> int:
    return len(self.joint_names)

  @property
  def joint_quantities(self) -> tuple[str, ...]:
    """Constrained quantities with a value per joint."""
    return tuple(n for n, limit in self.limits.items() if isinstance(limit, Mapping))

  @property
  def scalars(self) -> tuple[str, ...]:
    """Constrained quantities with one value for the robot."""
    return tuple(n for n in self.limits if n not in self.joint_quantities)

  @property
  def smoothness(self) -> tuple[str, ...]:
    """The smoothness metrics: the paper's, and whatever else the task constrains."""
    return (*SMOOTHNESS, *(n for n in self.joint_quantities if n not in UNITS))

  def unit(self, quantity: str) -> str:
    """Unit of a quantity; empty where nobody said."""
    return self.units.get(quantity, UNITS.get(quantity, ""))

  def named(self, quantity: str) -> str:
    """Title and unit of a quantity."""
    unit = self.unit(quantity)
    return f"{title(quantity)} ({unit})" if unit else title(quantity)

  def composition(self, device: str | torch.device = "cpu") -> Composition:
    """The constraints of these limits, under DeCap's default rule."""
    groups = {
      name: BodyGroupCfg(
        tuple(re.escape(self.joint_names[i]) for i in indices), self.p_max[name]
      )
      for name, indices in self.groups.items()
    }
    return Composition(
      self.limits,
      groups,
      self.joint_names,
      scalar_p_max=self.scalar_p_max,
      device=device,
    )

  def to_dict(self) -> dict[str, Any]:
    """Plain data for JSON."""
    return asdict(self)

  @staticmethod
  def from_dict(data: Mapping[str, Any]) -> Layout:
    """What `to_dict` gave, from JSON; older files lack some that have defaults."""
    data = {"tracking_reward": (math.nan, math.nan), **data}
    names = [f.name for f in fields(Layout) if f.name in data or _required(f)]
    return Layout(**{name: _with_tuples(data[name]) for name in names})


def _required(field: Field) -> bool:
  return field.default is MISSING and field.default_factory is MISSING


def _with_tuples(value: Any) -> Any:
  """JSON has lists where a layout has tuples."""
  if isinstance(value, Mapping):
    return {name: _with_tuples(inner) for name, inner in value.items()}
  return tuple(value) if isinstance(value, list) else value
