"""Power spectra of long rollouts without keeping them: Welch's method, streaming."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy import signal as signal_tools

WINDOW = 128
"""Steps of a window: 2.56 s at 50 Hz, a resolution of 0.39 Hz."""

STRIDE = WINDOW // 2
"""Steps between two windows: they overlap by half."""

JITTER_HZ = 5.0
"""Above this frequency motion is jitter: a step of walking takes 0.4 s, 2.5 Hz."""


class Spectrum:
  """One-sided power spectral density of signals [B, C], mean over windows.

  Each window is centred and weighted with a Hann window. Windows that contain a reset
  or steps that do not count are left out.
  """

  def __init__(self, num_envs: int, num_signals: int, rate_hz: float, device: str):
    self.rate_hz = rate_hz
    self._ring = torch.zeros(WINDOW, num_envs, num_signals, device=device)
    self._power = np.zeros((WINDOW // 2 + 1, num_signals))
    self._windows = self._step = 0

  def add(self, signal: torch.Tensor, counted: torch.Tensor) -> None:
    """Take in a step's signals [B, C], and how many steps up to it count in a row [B]."""
    slot = self._step % WINDOW
    self._ring[slot].copy_(signal)
    self._step += 1
    if self._step < WINDOW or (self._step - WINDOW) % STRIDE:
      return
    complete = counted >= WINDOW
    window = self._ring.roll(-slot - 1, 0)[:, complete].cpu().numpy()  # [W, B', C]
    if not window.shape[1]:
      return
    _, power = signal_tools.periodogram(window, self.rate_hz, "hann", axis=0)
    self._power += power.sum(1, dtype=np.float64)
    self._windows += window.shape[1]

  def result(self) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Frequencies in Hz [F], density per signal [F, C] on the host, windows."""
    frequency = torch.arange(WINDOW // 2 + 1) * (self.rate_hz / WINDOW)
    density = torch.from_numpy(self._power / max(self._windows, 1))
    return frequency, density, self._windows


def jitter(frequency: torch.Tensor, power: torch.Tensor) -> float:
  """Share of the power [F] above 5 Hz; NaN without any power."""
  total = float(power.sum())
  if total <= 0.0:
    return math.nan
  return float(power[frequency > JITTER_HZ].sum()) / total
