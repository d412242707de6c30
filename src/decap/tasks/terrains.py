"""Rough ground: slopes, inverse slopes, random roughness and low stairs."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from mjlab.terrains import (
  BoxInvertedPyramidStairsTerrainCfg,
  BoxPyramidStairsTerrainCfg,
  HfPyramidSlopedTerrainCfg,
  HfRandomUniformTerrainCfg,
  TerrainEntityCfg,
  TerrainGeneratorCfg,
)
from mjlab.terrains.terrain_generator import TerrainOutput

THICKNESS_M = 0.5
"""By which the ground goes deeper than mjlab's; its surface stays where it is."""


class Solid:
  """Ground that no foot is pushed through.

  mjlab's is as thick as it is high: 2 µm of stairs and 1 cm of slope at level 0. A foot that
  sinks into it by more than half of that leaves it below; robots fell within two seconds.
  """

  def function(
    self, difficulty: float, spec: mujoco.MjSpec, rng: np.random.Generator
  ) -> TerrainOutput:
    output = super().function(difficulty, spec, rng)  # ty: ignore[unresolved-attribute]
    for geometry in output.geometries:
      if geometry.hfield is not None:
        geometry.hfield.size[3] += THICKNESS_M
      elif geometry.geom is not None:
        geometry.geom.size[2] += THICKNESS_M / 2
        geometry.geom.pos[2] -= THICKNESS_M / 2
    return output


class SlopeCfg(Solid, HfPyramidSlopedTerrainCfg):
  """mjlab's slopes, solid."""


class RandomRoughCfg(Solid, HfRandomUniformTerrainCfg):
  """mjlab's random heights, solid."""


class StairsCfg(Solid, BoxPyramidStairsTerrainCfg):
  """mjlab's stairs, solid."""


class InvertedStairsCfg(Solid, BoxInvertedPyramidStairsTerrainCfg):
  """mjlab's stairs downwards, solid."""


def flat() -> TerrainEntityCfg:
  """An endless plane."""
  return TerrainEntityCfg(terrain_type="plane")


def rough(play: bool = False) -> TerrainEntityCfg:
  """A column per kind of ground, ten levels from flat to hard.

  In play a small random selection, without levels. The robot does not see the ground,
  so stairs stay low.
  """
  slope: dict[str, Any] = {"slope_range": (0.0, 0.4), "platform_width": 2.0}
  stairs: dict[str, Any] = {"step_height_range": (0.0, 0.1), "step_width": 0.4}
  stairs |= {"platform_width": 2.0, "border_width": 1.0}
  generator = TerrainGeneratorCfg(
    size=(8.0, 8.0),
    border_width=10.0,
    num_rows=5 if play else 10,
    num_cols=5,
    curriculum=not play,
    sub_terrains={
      "slope": SlopeCfg(**slope, border_width=0.25),
      "inverse_slope": SlopeCfg(**slope, border_width=0.25, inverted=True),
      "random_rough": RandomRoughCfg(
        noise_range=(0.0, 0.08),
        noise_step=0.005,
        border_width=0.25,
        scale_with_difficulty=True,
      ),
      "stairs": StairsCfg(**stairs),
      "inverse_stairs": InvertedStairsCfg(**stairs),
    },
  )
  return TerrainEntityCfg(
    terrain_type="generator", terrain_generator=generator, max_init_terrain_level=3
  )
