"""Numbers of several rollouts as plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch


def summary(values: torch.Tensor | Sequence[float]) -> dict[str, Any]:
  """Mean, standard deviation (n - 1; 0 for one) and the values themselves. # [R]"""
  values = torch.as_tensor(values, dtype=torch.float64)
  std = values.std() if len(values) > 1 else torch.zeros(())
  return {
    "mean": number(float(values.mean())),
    "std": number(float(std)),
    "rollouts": [number(v) for v in values.tolist()],
  }


def number(value: float) -> float | None:
  """JSON has no NaN: a number that does not exist is null."""
  return value if math.isfinite(value) else None
