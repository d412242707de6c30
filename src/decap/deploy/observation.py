"""From a robot's state to the policy's observation, term by term as the bundle says.

The bundle lists its terms by name; each name has one function here. A term that this
controller does not know is refused at the start, because a vector of the right length
with the wrong content makes a robot fall.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from decap.deploy.bundle import Bundle
from decap.deploy.robot_io import RobotState
from decap.errors import UserError


@dataclass
class Inputs:
  """Everything that terms are made of, joints in the policy's order."""

  state: RobotState
  q: np.ndarray
  """Joint positions minus default pose, rad, [J]."""
  dq: np.ndarray
  """Joint velocities, rad/s, [J]."""
  command: np.ndarray
  """Commanded vx, vy in m/s and yaw rate in rad/s, [3]."""
  action: np.ndarray
  """Previous action, [J]."""
  steps: float
  """Policy steps since the gait's clock began; after another policy, parts of one, too."""


def gravity_in_base(quat: np.ndarray) -> np.ndarray:
  """Unit vector of gravity in the frame of a body with orientation `quat` (wxyz)."""
  w, x, y, z = quat.tolist()
  return np.array(
    [2.0 * (w * y - x * z), -2.0 * (w * x + y * z), 2.0 * (x * x + y * y) - 1.0]
  )


def clock(steps: float, dt_s: float, period_s: float) -> np.ndarray:
  """Sine and cosine of the gait's phase, which is zero at the first step."""
  phase = 2.0 * np.pi * ((steps * dt_s / period_s) % 1.0)
  return np.array([np.sin(phase), np.cos(phase)])


_TERMS: dict[str, Callable[[Inputs], np.ndarray]] = {
  "base_ang_vel": lambda i: i.state.gyro,
  "projected_gravity": lambda i: gravity_in_base(i.state.quat),
  "command": lambda i: i.command,
  "joint_pos": lambda i: i.q,
  "joint_vel": lambda i: i.dq,
  "actions": lambda i: i.action,
}


_SIZES = {"base_ang_vel": 3, "projected_gravity": 3, "command": 3, "clock": 2}
"""Entries of the terms that do not go by joints."""


class ObservationBuilder:
  """Builds the observation vector that one bundle's policy expects."""

  def __init__(self, bundle: Bundle):
    self._dt_s = bundle.control_dt_s
    self.gait_s = 1.0
    """Period of the gait's clock; any, for a policy without one."""
    self._parts: list[tuple[slice, Callable, np.ndarray, Any]] = []
    start = 0
    for term in bundle.observations:
      function = self._function(bundle, term.name)
      size = _SIZES.get(term.name, len(bundle.joint_names))
      if term.dim != size:
        raise UserError(
          f"{bundle.folder}: observation '{term.name}' has {term.dim} entries; "
          f"a robot supplies {size}."
        )
      scale = np.array(term.scale)
      self._parts.append(
        (slice(start, start + term.dim), function, scale, term.clip or None)
      )
      start += term.dim
    self._vector = np.zeros((1, start), np.float32)
    self._row = self._vector[0]

  def build(self, inputs: Inputs) -> np.ndarray:
    """Observation [1, D]; the array is used again at the next call."""
    for part, function, scale, limits in self._parts:
      value = function(inputs)
      if limits is not None:
        value = np.clip(value, *limits)
      self._row[part] = value * scale
    return self._vector

  def _function(self, bundle: Bundle, name: str) -> Callable[[Inputs], np.ndarray]:
    if name == "clock":
      self.gait_s = clock_period_s(bundle)
      return lambda i: clock(i.steps, self._dt_s, self.gait_s)
    if name not in _TERMS:
      known = ", ".join([*_TERMS, "clock"])
      raise UserError(
        f"{bundle.folder}: the policy wants the observation '{name}', which a robot "
        f"cannot supply (there are {known})."
      )
    return _TERMS[name]


def clock_period_s(bundle: Bundle) -> float:
  """Period of the gait clock that a bundle with the term 'clock' names."""
  entry = next(t for t in bundle.info["observations"] if t["name"] == "clock")
  period = entry.get("period_s")
  if not isinstance(period, int | float) or not 0.1 <= period <= 10.0:
    raise UserError(
      f"{bundle.folder}: observation 'clock' needs a 'period_s' between 0.1 and 10 s, "
      f"not {period}."
    )
  return float(period)
