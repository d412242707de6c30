"""Power spectra of long rollouts without keeping them: Welch's method, streaming."""

from __future__ import annotations

import math

import torch

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
    self._hann = torch.hann_window(WINDOW, device=device)  # [W]
    bins = WINDOW // 2 + 1
    self._power = torch.zeros(bins, num_signals, dtype=torch.float64, device=device)
    self._windows = torch.zeros((), dtype=torch.float64, device=device)
    self._step = 0

  def add(self, signal: torch.Tensor, counted: torch.Tensor) -> None:
    """Take in one step.

    Args:
      signal: Signals of this step. # [B, C]
      counted: How many steps in a row, this one included, count. # [B]
    """
    slot = self._step % WINDOW
    self._ring[slot].copy_(signal)
    self._step += 1
    if self._step < WINDOW or (self._step - WINDOW) % STRIDE:
      return
    window = torch.cat((self._ring[slot + 1 :], self._ring[: slot + 1]))  # [W, B, C]
    complete = (counted >= WINDOW).view(1, -1, 1)
    window = torch.where(complete, window - window.mean(0), 0.0)
    spectrum = torch.fft.rfft(window * self._hann.view(-1, 1, 1), dim=0)  # [F, B, C]
    self._power += spectrum.abs().square().sum(1, dtype=torch.float64)
    self._windows += complete.sum()

  def result(self) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Frequencies in Hz [F], density per signal [F, C] on the host, windows."""
    windows = int(self._windows.item())
    weight = self.rate_hz * float(self._hann.square().sum())
    power = 2.0 * self._power.cpu() / (weight * max(windows, 1))
    power[0] /= 2
    power[-1] /= 2
    frequency = torch.arange(WINDOW // 2 + 1) * (self.rate_hz / WINDOW)
    return frequency, power, windows


def jitter(frequency: torch.Tensor, power: torch.Tensor) -> float:
  """Share of the power above 5 Hz; NaN without any power.

  Args:
    frequency: Hz. # [F]
    power: Density. # [F]
  """
  total = float(power.sum())
  if total <= 0.0:
    return math.nan
  return float(power[frequency > JITTER_HZ].sum()) / total
