"""Terrains of the simulated robot in MuJoCo.

The feet of mjlab's G1 have contact priority 1, so grounds have 2: theirs are the friction
and softness that count.
"""

from __future__ import annotations

import math

import mujoco
import numpy as np

from decap.deploy.grounds import (
  CELL_M,
  DEPTH_M,
  GROUNDS,
  HARD,
  START_M,
  TERRAINS,
  WIDTH_M,
  Ground,
)

_DOWN = np.array([0.0, 0.0, -1.0])
_ONLY_GROUND = np.array([1, 0, 0, 0, 0, 0], np.uint8)


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
  course = TERRAINS[name]
  if course.is_plane:
    ground = GROUNDS[course.stretches[0][0]]
    _surface(spec.worldbody.add_geom(name="ground", size=(0, 0, 1)), ground, friction)
    return
  x, z = START_M - course.stretches[0][1], 0.0
  lowest = 0.0
  for index, (kind, length) in enumerate(course.stretches):
    ground = GROUNDS[kind]
    rise = length * math.tan(math.radians(ground.slope_deg))
    label = f"ground{index}_{kind}"
    if ground.stone_m:
      heights = _stones(length, seed + index)
      geom = _field(spec, label, x, z, length, heights, ground.stone_m)
    elif ground.softness != HARD:
      # Level, of two large triangles: feet sink into it without finding sides.
      geom = _field(spec, label, x, z, length, np.zeros((2, 2)))
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
  model: mujoco.MjModel, data: mujoco.MjData, x: float, y: float, z: float
) -> float:
  """Height of the terrain under a point, m."""
  start, hit = np.array([x, y, z + 0.5]), np.zeros(1, np.int32)
  distance = mujoco.mj_ray(model, data, start, _DOWN, _ONLY_GROUND, 1, -1, hit)
  return z + 0.5 - distance if distance >= 0 else -math.inf


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


def _stones(length: float, seed: int) -> np.ndarray:
  """Heights of gravel from 0 to 1."""
  shape = (round(WIDTH_M / CELL_M) + 1, round(length / CELL_M) + 1)
  heights = np.random.default_rng(seed).uniform(size=shape)
  return (heights - heights.min()) / np.ptp(heights)


def _field(
  spec: mujoco.MjSpec,
  name: str,
  x: float,
  z: float,
  length: float,
  heights: np.ndarray,
  top_m: float = 1e-3,
) -> mujoco.MjsGeom:
  """A field of heights from 0 to 1, which stand for 0 to `top_m`."""
  spec.add_hfield(
    name=name,
    nrow=heights.shape[0],
    ncol=heights.shape[1],
    size=(0.5 * length, 0.5 * WIDTH_M, top_m, 0.25),
    userdata=heights.astype(np.float32).flatten().tolist(),
  )
  return spec.worldbody.add_geom(
    name=name,
    type=mujoco.mjtGeom.mjGEOM_HFIELD,
    hfieldname=name,
    pos=(x + 0.5 * length, 0.0, z),
  )
