"""Statistics that accumulate on the device and reach the host once per iteration."""

from __future__ import annotations

from collections.abc import Sequence

import torch


class DeviceLog:
  """Named means and maxima in preallocated device buffers.

  Every call adds to fixed slots without reading anything back, so it may run inside a
  CUDA graph; ``flush`` copies all slots to the host at once and clears them. Slots are
  handed out on first use, hence each name must be logged once before a capture.
  """

  def __init__(self, device: str, capacity: int = 1024):
    self._means: dict[tuple[str, ...], slice] = {}
    self._maxima: dict[tuple[str, ...], slice] = {}
    self._total = torch.zeros(capacity, device=device)
    self._count = torch.zeros(capacity, device=device)
    self._maximum = torch.full((capacity,), -torch.inf, device=device)
    self._flags: dict[tuple[str, ...], slice] = {}
    self._flagged = torch.full((capacity,), torch.inf, device=device)
    self._index: torch.Tensor | None = None

  def mean(
    self,
    names: Sequence[str],
    total: torch.Tensor,
    count: torch.Tensor | float,
  ) -> None:
    """Adds sums ``total`` [n] over ``count`` samples to the named means."""
    slots = self._slots(self._means, names)
    # Not x[s] += y, which also copies x[s] onto itself.
    self._total[slots].add_(total)
    self._count[slots].add_(count)

  def maximum(self, names: Sequence[str], values: torch.Tensor) -> None:
    """Raises the named maxima to ``values`` [n] where these are larger."""
    slots = self._slots(self._maxima, names)
    highest = self._maximum[slots]
    torch.maximum(highest, values, out=highest)

  def flag(self, names: Sequence[str], bad: torch.Tensor) -> None:
    """Remembers for each name the first environment where ``bad`` [n, B] holds."""
    slots = self._slots(self._flags, names)
    if self._index is None:
      self._index = torch.arange(bad.shape[1], device=bad.device, dtype=torch.float32)
    first = torch.where(bad, self._index, torch.inf).amin(1)
    lowest = self._flagged[slots]
    torch.minimum(lowest, first, out=lowest)

  def flagged(self) -> dict[str, int]:
    """Name → first environment flagged since the last call; a copy to the host."""
    host = self._flagged.tolist()
    self._flagged.fill_(torch.inf)
    return {
      name: int(host[slots.start + i])
      for names, slots in self._flags.items()
      for i, name in enumerate(names)
      if host[slots.start + i] < torch.inf
    }

  def flush(self) -> dict[str, float]:
    """Everything logged since the last flush; names without samples are left out."""
    host = torch.stack((self._total, self._count, self._maximum)).cpu()
    self._total.zero_()
    self._count.zero_()
    self._maximum.fill_(-torch.inf)
    out: dict[str, float] = {}
    for names, slots in self._means.items():
      for name, total, count in zip(
        names, host[0, slots].tolist(), host[1, slots].tolist(), strict=True
      ):
        if count > 0:
          out[name] = total / count
    for names, slots in self._maxima.items():
      for name, value in zip(names, host[2, slots].tolist(), strict=True):
        if value > -torch.inf:
          out[name] = value
    return out

  def _slots(self, table: dict[tuple[str, ...], slice], names: Sequence[str]) -> slice:
    key = tuple(names)
    if key not in table:
      start = max((s.stop for s in table.values()), default=0)
      if start + len(key) > len(self._total):
        raise ValueError(f"more than {len(self._total)} logged names")
      table[key] = slice(start, start + len(key))
    return table[key]
