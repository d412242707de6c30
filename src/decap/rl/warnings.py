"""What a user should hear while a run goes on, though it goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from decap.constraints.composition import Composition
from decap.rl.display import violations

INFEASIBLE_AFTER = 50
"""Iterations in a row at which a limit is violated at every step before we say so."""
QUANTILES = (0.05, 0.5, 0.95)
"""Which quantiles of a quantity that report names."""


class Warnings:
  """Limits that nobody meets, and physics that breaks or overflows."""

  def __init__(self, composition: Composition):
    self._composition = composition
    self.infeasible: dict[str, int] = {}
    """Row → iterations in a row without a step below its limit."""

  def __call__(
    self,
    log: Mapping[str, float],
    quantities: Mapping[str, torch.Tensor],
    broken: Mapping[str, int],
  ) -> Iterator[str]:
    """Sentences about the iteration that has just ended.

    Args:
      quantities: Constraint → its values at the last step, [B, J] or [B].
      broken: Term → first environment where it was not finite.
    """
    yield from self._infeasible_limits(dict(log), quantities)
    for term, index in broken.items():
      yield f"Warning: {term} was not finite, first in environment {index}."
    for name, share in log.items():
      if name.startswith("Physics/") and share > 1.0:
        yield (
          f"Warning: {name.split('/')[1]} reached {share:.2f} of what is allocated: "
          "some contacts were dropped; raise env.sim.njmax or env.sim.nconmax."
        )

  def _infeasible_limits(
    self, log: dict[str, float], quantities: Mapping[str, torch.Tensor]
  ) -> Iterator[str]:
    """Limits that no step has respected for long, once each."""
    for row, rate in violations(log).items():
      self.infeasible[row] = self.infeasible.get(row, 0) + 1 if rate >= 0.999 else 0
      if self.infeasible[row] == INFEASIBLE_AFTER:
        mean = log[f"Constraint/{row}/mean"]
        measured = ", ".join(f"{v:.3g}" for v in self._quantiles(row, quantities))
        yield (
          f"Warning: the limit of {row} was exceeded at every step of the last "
          f"{INFEASIBLE_AFTER} iterations: it may be infeasible. Measured: mean over "
          f"joints {mean:.3g}; largest joint of an environment {measured} at the "
          f"quantiles {', '.join(f'{q:g}' for q in QUANTILES)}."
        )

  def _quantiles(self, row: str, quantities: Mapping[str, torch.Tensor]) -> list[float]:
    """QUANTILES over environments of a row's largest joint, at the last step."""
    peaks = self._composition.peaks(self._composition.join(quantities))  # [B, K]
    peak = peaks[:, self._composition.row_names.index(row)].cpu()  # [B]
    peak = peak[peak.isfinite()]
    if not len(peak):
      return [float("nan")] * len(QUANTILES)
    return peak.quantile(peak.new_tensor(QUANTILES)).tolist()
