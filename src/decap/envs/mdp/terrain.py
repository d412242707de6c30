"""Height of the ground below a point, without rays.

The surface of the whole terrain is rasterised once into one grid of heights on the
device; a lookup is then four gathers. On a plane it is zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mujoco
import numpy as np
import torch

from decap.envs.masked import kept

if TYPE_CHECKING:
  from mjlab.envs import ManagerBasedRlEnv

CELL_M = 0.05
"""Spacing of the grid: half of the generators' height-field cells."""


@dataclass(frozen=True)
class HeightGrid:
  """Heights [X, Y] at ``origin`` + index · CELL_M, and 0 beyond them."""

  heights: torch.Tensor
  origin: tuple[float, float]

  def at(self, xy: torch.Tensor) -> torch.Tensor:
    """Bilinear height at world positions. xy [..., 2] -> [...]"""
    rows, columns = self.heights.shape
    u = ((xy[..., 0] - self.origin[0]) / CELL_M).clamp(0.0, rows - 1.001)
    v = ((xy[..., 1] - self.origin[1]) / CELL_M).clamp(0.0, columns - 1.001)
    # A robot whose state is not finite must not become an index out of range.
    u, v = u.nan_to_num(), v.nan_to_num()
    i, j = u.long(), v.long()
    du, dv = u - i, v - j
    flat, corner = self.heights.view(-1), i * columns + j
    low = flat[corner] * (1 - dv) + flat[corner + 1] * dv
    corner = corner + columns
    high = flat[corner] * (1 - dv) + flat[corner + 1] * dv
    return low * (1 - du) + high * du


def terrain_height(env: ManagerBasedRlEnv, xy: torch.Tensor) -> torch.Tensor:
  """Height of the terrain at world positions. xy [..., 2] -> [...]"""
  grid = height_grid(env)
  return torch.zeros_like(xy[..., 0]) if grid is None else grid.at(xy)


def height_above_terrain(
  env: ManagerBasedRlEnv, position: torch.Tensor
) -> torch.Tensor:
  """Height of points above the terrain below them. position [..., 3] -> [...]"""
  height, grid = position[..., 2], height_grid(env)
  return height if grid is None else height - grid.at(position[..., :2])


def height_grid(env: ManagerBasedRlEnv) -> HeightGrid | None:
  """The environment's grid, made on the first call; None on a plane."""
  terrain = env.scene.terrain
  if terrain is None or terrain.cfg.terrain_type == "plane":
    return None
  return kept(
    env, "heights", lambda: rasterise(env.sim.mj_model, "terrain", env.device)
  )


def rasterise(model: mujoco.MjModel, body: str, device: str) -> HeightGrid:
  """The upper surface of a static body's boxes and height fields.

  The grid ends where the ground becomes the generators' wide border at height 0.
  """
  body_id = model.body(body).id
  geoms = [g for g in range(model.ngeom) if model.geom_bodyid[g] == body_id]
  spans = np.array([_span(model, g) for g in geoms])  # [G, 2 (x, y), 2 (low, high)]
  inner = spans[[not _is_at_zero(model, g) for g in geoms]]
  if not len(inner):
    return HeightGrid(torch.zeros(2, 2, device=device), (0.0, 0.0))
  origin = inner[:, :, 0].min(0) - CELL_M
  extent = inner[:, :, 1].max(0) + CELL_M - origin
  shape = np.ceil(extent / CELL_M).astype(int) + 1
  heights = np.full(shape, -np.inf)
  for geom, span in zip(geoms, spans, strict=True):
    first = np.ceil((span[:, 0] - origin) / CELL_M - 1e-6).astype(int)
    last = np.floor((span[:, 1] - origin) / CELL_M + 1e-6).astype(int) + 1
    first, last = first.clip(0, shape), last.clip(0, shape)
    window = heights[first[0] : last[0], first[1] : last[1]]
    x = origin[0] + CELL_M * np.arange(first[0], last[0])
    y = origin[1] + CELL_M * np.arange(first[1], last[1])
    np.maximum(window, _surface(model, geom, x, y), out=window)
  heights[np.isneginf(heights)] = 0.0
  return HeightGrid(
    torch.as_tensor(heights, dtype=torch.float32, device=device),
    (float(origin[0]), float(origin[1])),
  )


def _is_at_zero(model: mujoco.MjModel, geom: int) -> bool:
  """A box whose top is at height 0, as the border's are."""
  top = model.geom_pos[geom, 2] + model.geom_size[geom, 2]
  return model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_BOX and abs(top) < 1e-6


def _half_size(model: mujoco.MjModel, geom: int) -> np.ndarray:
  if not np.allclose(model.geom_quat[geom], (1.0, 0.0, 0.0, 0.0)):
    raise ValueError(f"terrain geom '{model.geom(geom).name}' is rotated")
  kind = model.geom_type[geom]
  if kind == mujoco.mjtGeom.mjGEOM_BOX:
    return model.geom_size[geom, :2]
  if kind == mujoco.mjtGeom.mjGEOM_HFIELD:
    return model.hfield_size[model.geom_dataid[geom], :2]
  name = mujoco.mjtGeom(kind).name
  raise ValueError(f"heights of a terrain of type {name} are not implemented")


def _span(model: mujoco.MjModel, geom: int) -> np.ndarray:
  half, centre = _half_size(model, geom), model.geom_pos[geom, :2]
  return np.stack((centre - half, centre + half), axis=1)


def _surface(
  model: mujoco.MjModel, geom: int, x: np.ndarray, y: np.ndarray
) -> np.ndarray:
  """Heights of a geom's upper side over a grid of world positions."""
  if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_BOX:
    top = model.geom_pos[geom, 2] + model.geom_size[geom, 2]
    return np.full((len(x), len(y)), top)
  field = model.geom_dataid[geom]
  rows, columns = model.hfield_nrow[field], model.hfield_ncol[field]
  start = model.hfield_adr[field]
  data = model.hfield_data[start : start + rows * columns].reshape(rows, columns)
  half, centre = _half_size(model, geom), model.geom_pos[geom, :2]
  # Columns run along x, rows along y.
  u = np.clip((x - centre[0] + half[0]) / (2 * half[0]), 0, 1) * (columns - 1)
  v = np.clip((y - centre[1] + half[1]) / (2 * half[1]), 0, 1) * (rows - 1)
  i, j = np.minimum(u.astype(int), columns - 2), np.minimum(v.astype(int), rows - 2)
  du, dv = (u - i)[:, None], (v - j)[None, :]
  corner = [data[np.ix_(j + b, i + a)].T for a in (0, 1) for b in (0, 1)]
  low = corner[0] * (1 - dv) + corner[1] * dv
  high = corner[2] * (1 - dv) + corner[3] * dv
  scale = model.hfield_size[field, 2]
  return model.geom_pos[geom, 2] + scale * (low * (1 - du) + high * du)
