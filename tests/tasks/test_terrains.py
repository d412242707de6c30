"""Rough ground: what robots stand on is solid, at every level."""

import mujoco
import numpy as np
import pytest

from decap.tasks.terrains import THICKNESS_M, Solid, rough

GROUNDS = rough().terrain_generator.sub_terrains


def cell(cfg, difficulty: float) -> tuple[np.ndarray, np.ndarray]:
  """Surfaces and thicknesses of the geoms of one cell. # [G] each"""
  spec = mujoco.MjSpec()
  spec.worldbody.add_body(name="terrain")
  cfg.size = (8.0, 8.0)
  output = cfg.function(difficulty, spec, np.random.default_rng(0))
  top, thickness = [], []
  for geometry in output.geometries:
    geom, field = geometry.geom, geometry.hfield
    top.append(geom.pos[2] + (0.0 if field else geom.size[2]))
    thickness.append(field.size[3] if field else 2 * geom.size[2])
  return np.array(top), np.array(thickness)


@pytest.mark.parametrize("difficulty", [0.0, 0.5])
@pytest.mark.parametrize("name", GROUNDS)
def test_ground_is_mjlabs_and_solid(name, difficulty):
  """Without that, the lowest level is 2 µm or 5 mm thick and swallows feet."""
  ours = GROUNDS[name]
  (mjlabs,) = [b for b in type(ours).__bases__ if b is not Solid]
  theirs = mjlabs(**{k: v for k, v in vars(ours).items() if not k.startswith("_")})
  surface, thickness = cell(ours, difficulty)
  expected, thin = cell(theirs, difficulty)
  np.testing.assert_allclose(surface, expected, atol=1e-12)
  np.testing.assert_allclose(thickness, thin + THICKNESS_M)
  assert difficulty or thin.min() < 0.01
