"""What can be chosen of the simulated robot and its world; free of MuJoCo.

A dataclass that the command line reads as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from decap.deploy.grounds import TERRAINS
from decap.errors import UserError, check_known


@dataclass(frozen=True)
class SimCfg:
  """What the simulated robot and its world are like."""

  terrain: Annotated[str, arg(metavar="NAME")] = "flat"
  """Course: flat, carpet, grass, gravel, slope, inverse-slope or transitions."""
  delay_s: float = 0.005
  """Time from a command to the motors, 0 to 0.02."""
  motor_strength: float = 1.0
  """Factor on every motor's torque and on its limits."""
  joint_friction: float = 0.0
  """Dry friction of each joint, as a share of its motor's peak torque."""
  ground_friction: Annotated[
    float | None, arg(metavar="FLOAT", help_behavior_hint="")
  ] = None
  """Coefficient (default: the terrain's own)."""
  noise: float = 1.0
  """Factor on sensor noise and bias."""
  payload_kg: float = 0.0
  """Mass in the right hand, kg."""
  push_m_s: float = 0.0
  """Change of the robot's speed by each push, m/s."""
  push_every_s: float = 5.0
  """Time between pushes."""
  seed: int = 0
  """Seed of noise, pushes and stones."""

  def check(self) -> None:
    """Refuse what cannot be simulated, in one sentence."""
    check_known("terrain", self.terrain, TERRAINS)
    ranges = {
      "delay_s": (0.0, 0.02),
      "motor_strength": (0.0, 2.0),
      "joint_friction": (0.0, 0.5),
      "noise": (0.0, 100.0),
      "payload_kg": (0.0, 10.0),
      "push_m_s": (0.0, 5.0),
      "push_every_s": (0.2, math.inf),
    }
    for name, (low, high) in ranges.items():
      value = getattr(self, name)
      if not low <= value <= high:
        raise UserError(f"{name} must be between {low:g} and {high:g}, not {value:g}.")
    if not 0 <= self.seed < 2**32:
      raise UserError(f"seed must be at least 0 and below 2^32, not {self.seed}.")
    if self.ground_friction is not None and not 0.0 < self.ground_friction <= 5.0:
      raise UserError(
        f"ground_friction must be above 0 and at most 5, not {self.ground_friction:g}."
      )
