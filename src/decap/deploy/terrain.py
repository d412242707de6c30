"""Grounds of the simulated robot, and courses made of them.

Every ground is a surface with a friction, a softness and, for some, a relief. A course
runs along x: a pad to start on, then one ground or several. The feet of mjlab's G1 have
contact priority 1, so grounds have 2: theirs are the friction and softness that count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import mujoco
import numpy as np

from decap.errors import unknown

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
  text: str = ""
  """What it stands for, in a few words."""


GROUNDS: dict[str, Ground] = {
  "flat": Ground(0.6, text="hard floor with the friction that training starts from"),
  "carpet": Ground(
    0.9,
    ((0.03, 1.0), (0.3, 0.9, 0.006)),
    rgba=(0.45, 0.35, 0.4, 1.0),
    text="gives way by millimetres, holds the feet",
  ),
  "grass": Ground(
    0.7,
    ((0.1, 1.0), (0.05, 0.9, 0.03)),
    rgba=(0.25, 0.5, 0.2, 1.0),
    text="soft: a standing robot sinks in by at least 15 mm",
  ),
  "gravel": Ground(
    0.6,
    stone_m=0.02,
    rgba=(0.5, 0.47, 0.42, 1.0),
    text="stones of 2 cm: heights uniform at random on cells of 4 cm",
  ),
  "slope": Ground(0.8, slope_deg=10.0, text="uphill"),
  "inverse-slope": Ground(0.8, slope_deg=-10.0, text="downhill"),
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
  text: str

  @property
  def is_plane(self) -> bool:
    """One smooth level ground without end: a plane, which is fastest."""
    ground = GROUNDS[self.stretches[0][0]]
    return len(self.stretches) == 1 and not (ground.slope_deg or ground.stone_m)


PAD_M = 2.0
"""Length of the pad that a course starts on; the robot stands one metre before its end."""

TERRAINS: dict[str, Course] = {
  "flat": Course((("flat", math.inf),), "a plane"),
  "carpet": Course((("carpet", math.inf),), "a plane of carpet"),
  "grass": Course((("grass", math.inf),), "a plane of grass"),
  "gravel": Course((("flat", PAD_M), ("gravel", 20.0)), "from the pad onto gravel"),
  "slope": Course((("flat", PAD_M), ("slope", 20.0)), "from the pad uphill, 10°"),
  "inverse-slope": Course(
    (("flat", PAD_M), ("inverse-slope", 20.0)), "from the pad downhill, 10°"
  ),
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
    "carpet, grass, gravel, up and down a ramp, grass, carpet",
  ),
}
"""Terrains by name."""


def check_terrain(name: str) -> None:
  """Refuse a terrain that does not exist."""
  if name not in TERRAINS:
    raise unknown("terrain", name, TERRAINS)


def add_terrain(
  spec: mujoco.MjSpec, name: str, friction: float | None = None, seed: int = 0
) -> None:
  """Put a terrain into a model, its start at the origin and level.

  Args:
    spec: Model to extend.
    name: One of `TERRAINS`.
    friction: Replaces the grounds' own coefficients.
    seed: Of the gravel's stones.
  """
  check_terrain(name)
  course = TERRAINS[name]
  if course.is_plane:
    ground = GROUNDS[course.stretches[0][0]]
    _surface(spec.worldbody.add_geom(name="ground", size=(0, 0, 1)), ground, friction)
    return
  x, z = 1.0 - course.stretches[0][1], 0.0
  lowest = 0.0
  for index, (kind, length) in enumerate(course.stretches):
    ground = GROUNDS[kind]
    rise = length * math.tan(math.radians(ground.slope_deg))
    label = f"ground{index}_{kind}"
    if ground.stone_m:
      geom = _gravel(spec, label, ground, x, z, length, seed + index)
    elif ground.softness != HARD:
      geom = _slab(spec, label, x, z, length)
    else:
      geom = _board(spec, label, x, z, length, math.radians(ground.slope_deg))
    _surface(geom, ground, friction)
    x, z = x + length, z + rise
    lowest = min(lowest, z)
  below = spec.worldbody.add_geom(
    name="below", size=(0, 0, 1), pos=(0, 0, lowest - DEPTH_M)
  )
  _surface(below, GROUNDS["flat"], friction)


def ground_height(
  model: mujoco.MjModel, data: mujoco.MjData, position: np.ndarray
) -> float:
  """Height of the terrain under a point, m."""
  start = np.array([position[0], position[1], position[2] + 0.5])
  only_ground = np.array([1, 0, 0, 0, 0, 0], np.uint8)
  hit = np.zeros(1, np.int32)
  distance = mujoco.mj_ray(
    model, data, start, np.array([0.0, 0.0, -1.0]), only_ground, 1, -1, hit
  )
  return float(start[2] - distance) if distance >= 0 else -math.inf


def _surface(geom: mujoco.MjsGeom, ground: Ground, friction: float | None) -> None:
  if geom.type == mujoco.mjtGeom.mjGEOM_SPHERE:  # The type of a geom without one.
    geom.type = mujoco.mjtGeom.mjGEOM_PLANE
  solref, solimp = ground.softness
  geom.friction[0] = ground.friction if friction is None else friction
  geom.solref[:] = solref
  geom.solimp[:3] = solimp
  geom.priority, geom.condim, geom.group = 2, 3, 0
  geom.rgba = ground.rgba


def _board(
  spec: mujoco.MjSpec, name: str, x: float, z: float, length: float, slope: float
) -> mujoco.MjsGeom:
  """A thick board whose upper face starts at (x, z)."""
  half = 0.5 * length / math.cos(slope)
  thickness = 0.25
  middle = np.array([x + 0.5 * length, 0.0, z + 0.5 * length * math.tan(slope)])
  normal = np.array([-math.sin(slope), 0.0, math.cos(slope)])
  return spec.worldbody.add_geom(
    name=name,
    type=mujoco.mjtGeom.mjGEOM_BOX,
    size=(half, 0.5 * WIDTH_M, thickness),
    pos=middle - thickness * normal,
    quat=(math.cos(0.5 * slope), 0.0, -math.sin(0.5 * slope), 0.0),
  )


def _slab(
  spec: mujoco.MjSpec, name: str, x: float, z: float, length: float
) -> mujoco.MjsGeom:
  """A level field of two large triangles: feet sink into it without finding sides."""
  return _field(spec, name, np.zeros((2, 2)), 0.0, (x, z), length)


def _gravel(
  spec: mujoco.MjSpec,
  name: str,
  ground: Ground,
  x: float,
  z: float,
  length: float,
  seed: int,
) -> mujoco.MjsGeom:
  shape = (round(WIDTH_M / CELL_M) + 1, round(length / CELL_M) + 1)
  heights = np.random.default_rng(seed).uniform(size=shape)
  heights = (heights - heights.min()) / np.ptp(heights)
  return _field(spec, name, heights, ground.stone_m, (x, z), length)


def _field(
  spec: mujoco.MjSpec,
  name: str,
  heights: np.ndarray,
  top_m: float,
  start: tuple[float, float],
  length: float,
) -> mujoco.MjsGeom:
  x, z = start
  spec.add_hfield(
    name=name,
    nrow=heights.shape[0],
    ncol=heights.shape[1],
    # Heights are normalised; a field without any must still have some room for them.
    size=(0.5 * length, 0.5 * WIDTH_M, top_m or 1e-3, 0.25),
    userdata=heights.astype(np.float32).flatten().tolist(),
  )
  return spec.worldbody.add_geom(
    name=name,
    type=mujoco.mjtGeom.mjGEOM_HFIELD,
    hfieldname=name,
    pos=(x + 0.5 * length, 0.0, z),
  )
