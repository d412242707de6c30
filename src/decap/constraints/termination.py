"""Termination probabilities: DeCap's barrier and rule (Eq. 2-4), CaT's rule beside it.

Everything here runs inside a control step that may be a CUDA graph: no Python branch
on tensor values, state written in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from decap.constraints.ema import update_ema


@dataclass
class TerminationCfg:
  """How a constrained quantity becomes a termination probability."""

  rule: Literal["decap", "cat"] = "decap"
  """Eq. 4, or CaT's rule, which starts from zero at the limit."""
  rho: float = 0.7
  """Share of the limit at which the barrier starts (ρ_s), in (0, 1)."""
  kappa: float = 2.0
  """Tightness of the barrier (κ), > 0."""
  barrier: bool = True
  """False: nothing below the limit (the ablation without barrier)."""
  scale_decay: float = 0.95
  """Decay of the violation scale c̄ per control step, in [0, 1)."""
  scale_floor: float = 0.01
  """Least batch violation that enters c̄, as a share of the limit. Without it a joint
  that was long quiet saturates at its first tiny violation."""
  scale_floor_abs: float | None = None
  """The same as an absolute value, instead of `scale_floor` (CaT's code: 1e-6)."""

  def __post_init__(self) -> None:
    if self.rule not in ("decap", "cat"):
      raise ValueError(f"rule must be 'decap' or 'cat', got '{self.rule}'.")
    if not 0.0 < self.rho < 1.0:
      raise ValueError(f"rho must be in (0, 1), got {self.rho}.")
    if not self.kappa > 0.0:
      raise ValueError(f"kappa must be > 0, got {self.kappa}.")
    if not 0.0 <= self.scale_decay < 1.0:
      raise ValueError(f"scale_decay must be in [0, 1), got {self.scale_decay}.")
    if not self.scale_floor > 0.0:
      raise ValueError(f"scale_floor must be > 0, got {self.scale_floor}.")
    if self.scale_floor_abs is not None and not self.scale_floor_abs > 0.0:
      raise ValueError(f"scale_floor_abs must be > 0, got {self.scale_floor_abs}.")

  def floor(self, limit: torch.Tensor) -> torch.Tensor:
    """Floor of the violation scale for these limits. # [J]"""
    if self.scale_floor_abs is not None:
      return torch.full_like(limit, self.scale_floor_abs)
    return limit * self.scale_floor


class ViolationScale:
  """Running scale c̄ of the violations: EMA of the largest one over environments.

  Seeded with the first batch, then updated before each use, as in CaT. The batch
  maximum is raised to the floor *before* it enters the average. Non-finite violations
  never enter (one infinity would stay for good); a joint without any finite violation
  in a batch keeps its value.
  """

  def __init__(
    self,
    shape: Sequence[int],
    *,
    floor: torch.Tensor,
    decay: float = 0.95,
    device: torch.device | str = "cpu",
  ) -> None:
    floor = floor.to(device=device, dtype=torch.float32)
    if not bool(((floor > 0) & floor.isfinite()).all()):
      raise ValueError(f"The floor must be finite and > 0, got {floor.tolist()}.")
    self.floor = floor.broadcast_to(tuple(shape)).clone()  # [J]
    self.value = self.floor.clone()  # [J]
    self.gain = torch.ones_like(self.value)  # [J]
    self._decay = decay

  def update(self, violation: torch.Tensor) -> None:
    """Take in c = q − ε of all environments, in place.

    Args:
      violation: Signed violations. # [B, J]
    """
    self.update_largest(largest_finite(violation))

  def update_largest(self, largest: torch.Tensor) -> None:
    """The same with the largest finite c over environments, −∞ without any. # [J]"""
    heard = largest > -torch.inf
    largest = torch.maximum(largest, self.floor)
    update_ema(self.value, self.gain, largest, heard, self._decay)


def largest_finite(values: torch.Tensor) -> torch.Tensor:
  """Largest finite value over environments, −∞ where there is none.

  Args:
    values: Any values. # [B, …]
  """
  low = -torch.inf
  return torch.nan_to_num(values, nan=low, posinf=low, neginf=low).amax(dim=0)


def barrier(c_hat: torch.Tensor, rho: float, kappa: float) -> torch.Tensor:
  """Soft barrier φ = 1 − (1 − u)^κ in the coordinate u of Eq. 2, clipped to [0, 1].

  It is a log barrier behind a saturating map: it warns before the limit, and stays
  bounded at it. 0 up to ρ, 1 from the limit on.

  Args:
    c_hat: Quantity over its limit, ĉ = q/ε.
    rho: Onset of the barrier.
    kappa: Tightness of the barrier.
  """
  return 1.0 - _headroom(c_hat, rho) ** kappa


# decap_probability has a switch that is named like the function.
_phi = barrier


def decap_probability(
  q: torch.Tensor,
  limit: torch.Tensor | float,
  p_max: torch.Tensor | float,
  scale: torch.Tensor | float,
  *,
  rho: float,
  kappa: float,
  barrier: bool = True,
) -> torch.Tensor:
  """Per-step termination probability δ of each environment and joint (Eq. 4).

  Nothing below ρ·ε, the barrier up to the limit, and from p_max to 1 beyond it, graded
  by the violation over its running scale. A non-finite quantity gives 1.

  Args:
    q: Constrained quantity. # [B, J]
    limit: ε > 0. # [J]
    p_max: Probability at the limit, in (0, 1). # [J]
    scale: Running violation scale c̄ > 0. # [J]
    rho: Onset of the barrier.
    kappa: Tightness of the barrier.
    barrier: Whether there is a barrier below the limit.
  """
  graded = _graded(q - limit, scale)  # [B, J]
  phi = _phi(q / limit, rho, kappa) if barrier else (q >= limit).to(graded.dtype)
  # All three cases of Eq. 4: graded is 0 up to the limit, φ is 1 from there on.
  return _one_unless_finite(torch.lerp(graded, phi, p_max), q)


def cat_probability(
  q: torch.Tensor,
  limit: torch.Tensor | float,
  p_max: torch.Tensor | float,
  scale: torch.Tensor | float,
) -> torch.Tensor:
  """CaT's termination probability: clip(c / c̄, 0, 1) · p_max. # [B, J]

  It starts from zero at the limit and ends at p_max, where DeCap's starts at p_max. A
  non-finite quantity gives 1 here too.
  """
  return _one_unless_finite(_graded(q - limit, scale) * p_max, q)


def _headroom(c_hat: torch.Tensor, rho: float) -> torch.Tensor:
  """1 − u of Eq. 2: what is left of the barrier region, 1 at ρ and 0 at the limit."""
  return ((1.0 - c_hat) / (1.0 - rho)).clamp(0.0, 1.0)


def _graded(violation: torch.Tensor, scale: torch.Tensor | float) -> torch.Tensor:
  """clip(c / c̄, 0, 1): how large a violation is among the recent ones."""
  return (violation / scale).clamp(0.0, 1.0)


def _one_unless_finite(delta: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
  """δ, or 1 where q is not finite: there 0 · q is NaN."""
  return torch.add(delta, q, alpha=0.0).nan_to_num(nan=1.0)
