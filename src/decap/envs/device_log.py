"""Statistics that accumulate on the device and reach the host once per iteration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

import torch

Names = tuple[str, ...]


class DeviceLog:
  """Named means, shares and maxima in device buffers.

  Reducing over environments is slow on a GPU. A step therefore only adds to buffers of
  the values' own shape and reads nothing back, so it may be part of a CUDA graph;
  ``flush`` reduces them, copies all results to the host at once and clears them. They
  are made on first use, hence each name must be logged once before a capture.

  Values are [n, B] for n names, or [B] or a scalar for one. Rows of the same name are
  taken together.
  """

  def __init__(self, device: str):
    self._device = device
    self._means: dict[tuple[Names, ...], list[torch.Tensor]] = {}
    self._shares: dict[Names, torch.Tensor] = {}
    self._maxima: dict[Names, torch.Tensor] = {}
    self._flags: dict[Names, torch.Tensor] = {}

  def mean(
    self, values: Mapping[Names, torch.Tensor], where: torch.Tensor | None = None
  ) -> None:
    """Adds samples of all environments, or of those ``where`` [B], to named means."""
    key = tuple(values)
    if key not in self._means:
      counted = torch.zeros(()) if where is None else where
      self._means[key] = [self._buffer(v) for v in (counted, *values.values())]
    count, *sums = self._means[key]
    if where is None:
      count.add_(1.0)
      for total, value in zip(sums, values.values(), strict=True):
        total.add_(value)
    else:
      # Once for all: kernels of mixed types take three times as long.
      weight = where.float()
      count.add_(weight)
      for total, value in zip(sums, values.values(), strict=True):
        total.addcmul_(value, weight)

  def share(self, names: Names, chosen: torch.Tensor, weight: torch.Tensor) -> None:
    """Counts which of the names is ``chosen`` [B], by its index, with a weight [B]."""
    if names not in self._shares:
      self._shares[names] = self._buffer(weight.expand(len(names), -1))
    self._shares[names].scatter_add_(0, chosen.unsqueeze(0), weight.unsqueeze(0))

  def maximum(self, names: Names, values: torch.Tensor) -> None:
    """Raises the named maxima to ``values`` where these are larger."""
    if names not in self._maxima:
      self._maxima[names] = self._buffer(values).fill_(-torch.inf)
    highest = self._maxima[names]
    torch.maximum(highest, values, out=highest)

  def flag(self, names: Names, values: torch.Tensor) -> None:
    """Remembers where ``values`` are NaN or infinite."""
    if names not in self._flags:
      self._flags[names] = self._buffer(values)
    # 0 · x is NaN there, which stays.
    self._flags[names].add_(values, alpha=0.0)

  def flagged(self) -> dict[str, int]:
    """Name → first environment flagged since the last call; a copy to the host."""
    rows = []
    for names, flags in self._flags.items():
      bad = _rows(names, flags).isnan()
      index = torch.arange(bad.shape[1], device=self._device)
      rows.append((names, torch.where(bad, index, torch.inf).amin(1), min))
      flags.zero_()
    return {name: int(index) for name, index in _to_host(rows).items()}

  def flush(self) -> dict[str, float]:
    """Everything logged since the last flush; names without samples are left out."""
    rows = []
    for key, (count, *sums) in self._means.items():
      for names, total in zip(key, sums, strict=True):
        mean = _rows(names, total).mean(1)
        rows.append((names, _over(mean, count.mean()), fmean))
        total.zero_()
      count.zero_()
    for names, counts in self._shares.items():
      rows.append((names, _over(counts.sum(1), counts.sum()), fmean))
      counts.zero_()
    for names, highest in self._maxima.items():
      rows.append((names, _rows(names, highest).amax(1), max))
      highest.fill_(-torch.inf)
    return _to_host(rows)

  def _buffer(self, like: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(like, dtype=torch.float32, device=self._device)


def _rows(names: Names, buffer: torch.Tensor) -> torch.Tensor:
  """A row per name; there may be none. # [n, B or 1]"""
  return buffer.reshape(len(names), buffer.numel() // max(1, len(names)))


def _over(total: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
  """total / count, or −∞ without samples."""
  return (total / count).masked_fill(count == 0, -torch.inf)


def _to_host(
  rows: list[tuple[Names, torch.Tensor, Callable[[Any], float]]],
) -> dict[str, float]:
  """Copies all rows at once and combines those of a name; infinite ones are empty."""
  host = iter(torch.cat([row for _, row, _ in rows]).tolist() if rows else ())
  found: dict[str, list[float]] = {}
  combine: dict[str, Callable[[Any], float]] = {}
  for names, _, function in rows:
    for name in names:
      value = next(host)
      if not math.isinf(value):
        found.setdefault(name, []).append(value)
        combine[name] = function
  return {name: combine[name](values) for name, values in found.items()}
