"""Rough ground: slopes, inverse slopes, random roughness and low stairs."""

from __future__ import annotations

from typing import Any

from mjlab.terrains import (
  BoxInvertedPyramidStairsTerrainCfg,
  BoxPyramidStairsTerrainCfg,
  HfPyramidSlopedTerrainCfg,
  HfRandomUniformTerrainCfg,
  TerrainEntityCfg,
  TerrainGeneratorCfg,
)


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
      "slope": HfPyramidSlopedTerrainCfg(**slope, border_width=0.25),
      "inverse_slope": HfPyramidSlopedTerrainCfg(
        **slope, border_width=0.25, inverted=True
      ),
      "random_rough": HfRandomUniformTerrainCfg(
        noise_range=(0.0, 0.08),
        noise_step=0.005,
        border_width=0.25,
        scale_with_difficulty=True,
      ),
      "stairs": BoxPyramidStairsTerrainCfg(**stairs),
      "inverse_stairs": BoxInvertedPyramidStairsTerrainCfg(**stairs),
    },
  )
  return TerrainEntityCfg(
    terrain_type="generator", terrain_generator=generator, max_init_terrain_level=3
  )
