"""How constrained quantities stand to their limits, accumulated while a policy runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from decap.evaluation.bins import Bins, number, summary
from decap.evaluation.layout import Layout

HISTOGRAM_BINS = 80
HISTOGRAM_MAX = 2.0
"""Histograms of q/ε have equal bins from 0 to this; the last also holds all above."""


class Violations:
  """Sums by bin of violations and δ̄, of every row of a layout's constraints."""

  def __init__(self, layout: Layout, bins: Bins, device: str) -> None:
    self.layout = layout
    self.bins = bins
    self.composition = layout.composition(device)
    self.delta = torch.zeros(bins.batch, device=device)
    """δ̄ of the last sample. # [B]"""
    columns, rows = len(self.composition.limit), len(self.composition.rows)

    zeros = partial(torch.zeros, dtype=torch.float64, device=device)
    self._values = zeros(bins.count, columns)
    self._above = zeros(bins.count, columns)
    self._any_above = zeros(bins.count, rows)
    self._delta = zeros(bins.count)
    self._share = zeros(rows)
    self._histogram = zeros(rows * HISTOGRAM_BINS, dtype=torch.long)
    self._first_bin = zeros(columns, dtype=torch.long)  # [C]
    for k, row in enumerate(self.composition.rows):
      self._first_bin[list(row.columns)] = k * HISTOGRAM_BINS

  def add(self, q: torch.Tensor, counts: torch.Tensor) -> None:  # [B, C], [B]
    """Take in one control step; fixed buffers only, so that a graph can record it.

    δ̄ is that of DeCap (Eq. 4) under the layout's limits, whatever trained the policy.
    """
    mask = counts.unsqueeze(1)
    margins = self.composition.margins(q)
    self._values += self.bins.sum(q.masked_fill(~mask, 0.0))
    self._above += self.bins.sum(self.composition.above(q) & mask)
    self._any_above += self.bins.sum(self.composition.costs(q) * mask)
    self._add_histogram(margins, mask)
    rows = self.composition.probabilities(q)  # [B, K]
    self.delta.copy_(self.composition.decided(rows)[0])
    counted = self.delta * counts
    self._delta += self.bins.sum(counted)
    decides = (rows == self.delta.unsqueeze(1)).float()
    decides = decides / decides.sum(1, keepdim=True)
    shares = (decides * counted.unsqueeze(1))[: self.bins.random]
    self._share += shares.sum(0, dtype=torch.float64)

  def result(self, counted: torch.Tensor) -> dict[str, Any]:
    """Shares of the steps counted [K] and of joint-steps; of scalars means, too."""
    sums = (self._values, self._above, self._any_above)
    values, above, any_above = (s.cpu() / counted.unsqueeze(1) for s in sums)

    def of(row: int) -> dict[str, Any]:
      columns = list(self.composition.rows[row].columns)
      return {"any_joint": any_above[:, row], "joint_steps": above[:, columns].mean(1)}

    scalars = {
      name: {"mean": values[:, c], "violations": above[:, c]}
      for name, c in self.composition.columns.items()
      if name in self.layout.scalars
    }
    return {"violations": self._by_group(of), "scalars": scalars}

  def delta_result(self, counted: torch.Tensor) -> dict[str, Any]:
    """Mean δ̄ and which row decides it, over random commands."""
    share = self._share.cpu()
    total = float(share.sum())
    return {
      "mean": summary((self._delta.cpu() / counted)[: self.bins.rollouts]),
      "share": {
        name: number(float(share[k]) / total if total else math.nan)
        for k, name in enumerate(self.composition.row_names)
      },
    }

  def histograms(self) -> dict[str, Any]:
    """Counts of q/ε over random commands."""
    counts = self._histogram.view(-1, HISTOGRAM_BINS).cpu().tolist()
    return {
      "largest": HISTOGRAM_MAX,
      "counts": self._by_group(counts.__getitem__),
      "scalars": {name: counts[self._row(name)] for name in self.layout.scalars},
    }

  def joint_shares(self, counted: torch.Tensor) -> dict[str, list[float]]:
    """Quantity -> share of steps that each joint is above its limit."""
    above = self._above.cpu() / counted.unsqueeze(1)  # [K, C]
    share = above[: self.bins.rollouts].mean(0)  # [C]
    columns = self.composition.columns
    return {
      name: share[columns[name]].tolist() for name in self.layout.joint_quantities
    }

  # Private methods.

  def _add_histogram(self, margins: torch.Tensor, mask: torch.Tensor) -> None:
    bins = (margins * (HISTOGRAM_BINS / HISTOGRAM_MAX)).nan_to_num(0.0)
    bins = bins.clamp(0, HISTOGRAM_BINS - 1).long() + self._first_bin
    ones = mask.expand_as(bins).long()
    ones[self.bins.random :] = 0
    self._histogram.scatter_add_(0, bins.flatten(), ones.flatten())

  def _by_group(self, of: Callable[[int], Any]) -> dict[str, Any]:
    """Group → quantity → what is told of its row."""
    return {
      group: {n: of(self._row(f"{n}/{group}")) for n in self.layout.joint_quantities}
      for group in self.layout.groups
    }

  def _row(self, name: str) -> int:
    return self.composition.row_names.index(name)
