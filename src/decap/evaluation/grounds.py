"""Where on a generated terrain a robot is: kind of ground, and how hard it is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

BAND = 2
"""Levels that are told of together."""


@dataclass(frozen=True)
class Grounds:
  """Cells of a terrain around the origin: a row per level, a column per kind of ground."""

  kinds: tuple[str, ...]
  levels: int
  size: tuple[float, float]
  """Of a cell, along levels and along kinds, in m."""

  @property
  def names(self) -> tuple[str, ...]:
    """The kinds, then the bands of levels: what numbers are told of."""
    firsts = range(0, self.levels, BAND)
    lasts = [min(first + BAND, self.levels) - 1 for first in firsts]
    bands = [f"levels {a}–{b}" for a, b in zip(firsts, lasts, strict=True)]
    return (*(kind.replace("_", " ") for kind in self.kinds), *bands)

  def at(self, xy: torch.Tensor) -> torch.Tensor:
    """Indices in `names` of kind and band; beyond the cells their number. # [B, 2]"""
    # A robot whose state is not finite must not become an index out of range.
    x, y = xy.nan_to_num().unbind(1)
    level = (x / self.size[0] + self.levels / 2).floor()
    kind = (y / self.size[1] + len(self.kinds) / 2).floor()
    inside = (
      (level >= 0) & (level < self.levels) & (kind >= 0) & (kind < len(self.kinds))
    )
    band = torch.div(level, BAND, rounding_mode="floor") + len(self.kinds)
    found = torch.stack((kind, band), 1)  # [B, 2]
    return found.masked_fill(~inside.unsqueeze(1), len(self.names)).long()


def grounds_of(env: Any) -> Grounds | None:
  """Those of an environment; None on a plane, and where kinds are mixed at random."""
  terrain = env.scene.terrain
  generator = terrain.cfg.terrain_generator if terrain is not None else None
  if generator is None or not generator.curriculum:
    return None
  levels = terrain.terrain_origins.shape[0]
  return Grounds(tuple(generator.sub_terrains), levels, tuple(generator.size))
