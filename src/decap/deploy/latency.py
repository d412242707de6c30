"""How long each stage of a control cycle takes, over the last cycles."""

from __future__ import annotations

from collections import deque

import numpy as np

STAGES = ("read", "observe", "infer", "publish")
WINDOW = 50


class Latency:
  """Durations of the stages over a window of cycles, and the last of each."""

  def __init__(self) -> None:
    self.last_s: dict[str, float] = dict.fromkeys(STAGES, 0.0)
    self._window: dict[str, deque[float]] = {s: deque(maxlen=WINDOW) for s in STAGES}

  def add(self, stage: str, seconds: float) -> None:
    self.last_s[stage] = seconds
    self._window[stage].append(seconds)

  def median_ms(self) -> dict[str, float]:
    """Median of each stage, ms."""
    return {s: 1e3 * float(np.median(w)) if w else 0.0 for s, w in self._window.items()}

  def worst_ms(self) -> dict[str, float]:
    """Longest of each stage, ms."""
    return {s: 1e3 * max(w, default=0.0) for s, w in self._window.items()}
