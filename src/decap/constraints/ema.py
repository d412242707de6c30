"""Exponential moving averages that start with their first sample, in place."""

from __future__ import annotations

import torch


def update_ema(
  average: torch.Tensor,
  gain: torch.Tensor,
  sample: torch.Tensor,
  heard: torch.Tensor,
  decay: float,
) -> None:
  """Takes a sample into an average where it is ``heard``.

  ``gain`` is the weight of the sample: 1 before an element's first, 1 − decay after.
  """
  torch.where(heard, torch.lerp(average, sample, gain), average, out=average)
  gain.masked_fill_(heard, 1.0 - decay)
