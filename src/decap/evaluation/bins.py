"""What numbers are averaged over, and what files say of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Bins:
  """Rollouts first, then groups of environments with one command, then grounds."""

  rollouts: int
  envs: int
  """Environments of each rollout."""
  commands: int = 0
  robots: int = 0
  """Environments of each command."""
  grounds: int = 0
  place: torch.Tensor = field(default_factory=lambda: torch.zeros(0, 2))
  """Grounds that each environment is on now; `grounds` for none of them. # [B, 2]"""

  @property
  def random(self) -> int:
    """Environments with random commands; they come first."""
    return self.rollouts * self.envs

  @property
  def batch(self) -> int:
    return self.random + self.commands * self.robots

  @property
  def count(self) -> int:
    return self.rollouts + self.commands + self.grounds

  def sum(self, values: torch.Tensor) -> torch.Tensor:
    """Sums over the environments of each bin. # [B, …] -> [R + C + G, …]

    On grounds those with random commands count.
    """
    shape = values.shape[1:]
    parts = (
      values[: self.random].view(self.rollouts, self.envs, *shape),
      values[self.random :].view(self.commands, self.robots, *shape),
    )
    sums = [part.sum(1, dtype=torch.float64) for part in parts]
    if self.grounds:
      values = values[: self.random].double()
      table = values.new_zeros(self.grounds + 1, *shape)
      for index in self.place[: self.random].unbind(1):
        table.index_add_(0, index, values)
      sums.append(table[:-1])
    return torch.cat(sums)


def summary(values: torch.Tensor | Sequence[float]) -> dict[str, Any]:
  """Mean, standard deviation (n - 1; none for one) and the values themselves. # [R]"""
  values = torch.as_tensor(values, dtype=torch.float64)
  return {
    "mean": number(float(values.mean())),
    "std": number(float(values.std())) if len(values) > 1 else None,
    "rollouts": [number(v) for v in values.tolist()],
  }


def each(numbers: Any, say: Callable[[torch.Tensor], Any]) -> Any:
  """What files say of every number per bin [K], wherever it stands in a nested dict."""
  if isinstance(numbers, dict):
    return {name: each(inner, say) for name, inner in numbers.items()}
  return say(numbers)


def number(value: float) -> float | None:
  """JSON has no NaN: a number that does not exist is null."""
  return value if math.isfinite(value) else None
