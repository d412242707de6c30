"""What numbers are averaged over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Pick = Callable[[torch.Tensor], Any]
"""From a number per bin [K] to what a file says: a summary, or one of the numbers."""


@dataclass(frozen=True)
class Bins:
  """Rollouts first, then groups of environments with one command."""

  rollouts: int
  envs: int
  """Environments of each rollout."""
  commands: int = 0
  robots: int = 0
  """Environments of each command."""

  @property
  def random(self) -> int:
    """Environments with random commands; they come first."""
    return self.rollouts * self.envs

  @property
  def batch(self) -> int:
    return self.random + self.commands * self.robots

  @property
  def count(self) -> int:
    return self.rollouts + self.commands

  def sum(self, values: torch.Tensor) -> torch.Tensor:
    """Sums over the environments of each bin. # [B, …] -> [R + C, …]"""
    shape = values.shape[1:]
    parts = (
      values[: self.random].view(self.rollouts, self.envs, *shape),
      values[self.random :].view(self.commands, self.robots, *shape),
    )
    return torch.cat([part.sum(1, dtype=torch.float64) for part in parts])
