"""Grounds of the simulated robot, and courses made of them, by name.

Every ground is a surface with a friction, a softness and, for some, a relief. A course
runs along x: a pad to start on, then one ground or several. Nothing here needs MuJoCo,
so that a wrong name is found before it is loaded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

HARD = ((0.02, 1.0), (0.9, 0.95, 0.001))
"""MuJoCo's solref and solimp as in training."""


@dataclass(frozen=True)
class Ground:
  """One kind of ground."""

  friction: float
  """Coefficient of sliding friction."""
  softness: tuple[tuple[float, float], tuple[float, float, float]] = HARD
  """solref and the first three numbers of solimp."""
  slope_deg: float = 0.0
  """Rise along x; negative goes down."""
  stone_m: float = 0.0
  """Height of the relief; 0 for a smooth surface."""
  rgba: tuple[float, float, float, float] = (0.55, 0.57, 0.6, 1.0)


GROUNDS: dict[str, Ground] = {
  "flat": Ground(0.6),
  "carpet": Ground(0.9, ((0.03, 1.0), (0.3, 0.9, 0.006)), rgba=(0.45, 0.35, 0.4, 1.0)),
  "grass": Ground(0.7, ((0.1, 1.0), (0.05, 0.9, 0.03)), rgba=(0.25, 0.5, 0.2, 1.0)),
  "gravel": Ground(0.6, stone_m=0.02, rgba=(0.5, 0.47, 0.42, 1.0)),
  "slope": Ground(0.8, slope_deg=10.0),
  "inverse-slope": Ground(0.8, slope_deg=-10.0),
}
"""Grounds by name."""

CELL_M = 0.04
"""Side of a cell of gravel."""
WIDTH_M = 8.0
"""Width of courses that are not endless planes."""
DEPTH_M = 0.3
"""How far below the start the world ends, for robots that leave a course."""


@dataclass(frozen=True)
class Course:
  """Stretches of ground along x, the first one under the robot's start."""

  stretches: tuple[tuple[str, float], ...]
  """Ground and length in x, m."""

  @property
  def is_plane(self) -> bool:
    """One smooth level ground without end: a plane, which is fastest."""
    ground = GROUNDS[self.stretches[0][0]]
    return len(self.stretches) == 1 and not (ground.slope_deg or ground.stone_m)

  def holds(self, x: float, y: float, margin_m: float = 0.0) -> bool:
    """Whether a place lies on the course, and so far from where it ends."""
    end = START_M + sum(length for _, length in self.stretches[1:])
    inside = x < end - margin_m and abs(y) < 0.5 * WIDTH_M - margin_m
    return self.is_plane or inside


PAD_M = 2.0
"""Length of the pad that a course starts on."""
START_M = 1.0
"""How far before the pad's end, along x, the robot stands."""

TERRAINS: dict[str, Course] = {
  "flat": Course((("flat", math.inf),)),
  "carpet": Course((("carpet", math.inf),)),
  "grass": Course((("grass", math.inf),)),
  "gravel": Course((("flat", PAD_M), ("gravel", 20.0))),
  "slope": Course((("flat", PAD_M), ("slope", 20.0))),
  "inverse-slope": Course((("flat", PAD_M), ("inverse-slope", 20.0))),
  "transitions": Course(
    (
      ("carpet", PAD_M),
      ("grass", 1.0),
      ("gravel", 1.0),
      ("slope", 1.2),
      ("carpet", 0.8),
      ("inverse-slope", 1.2),
      ("grass", 1.0),
      ("carpet", 12.0),
    ),
  ),
}
"""Terrains by name."""
