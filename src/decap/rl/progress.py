"""How well the task is being done, as the training loop hears it.

Everything that a recipe decides by what the policy achieves, rather than by counting
iterations, reads it here: when exploration may end, and how much of the constraints the
task can afford.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from decap import collective

ITERATIONS = 20
"""Iterations over which achievements are averaged."""
FALL_STEPS = 1000.0
"""`upright` is 1 minus the falls in so many steps of one robot."""
STEADY = 0.2
"""Robots that stay up and step this well have learnt to walk. Of six trainings whose
exploration ended when they stayed up, four stepped so by then and walk; two hop."""


class Progress:
  """Running averages of what was done of what was asked, by name.

  The environment reports pairs (done, asked) [n, 2], such as metres walked and metres
  commanded; falls are counted here. Of the best achievement `fade` is left after an
  iteration.
  """

  def __init__(
    self,
    names: Sequence[str],
    device: torch.device | str = "cpu",
    fade: float = 1.0,
  ) -> None:
    self.fade = fade
    self.names = (*names, "upright")
    basics = [name in ("upright", "stepping") for name in self.names]
    self._basics = torch.tensor(basics, device=device)
    self.gait = torch.tensor([name == "stepping" for name in self.names], device=device)
    self.sums = torch.zeros(len(self.names), 2, device=device)
    self.average = torch.zeros_like(self.sums)
    self.best = torch.zeros(len(self.names), device=device)
    self.iterations = torch.zeros((), device=device)
    self.steady_iterations = torch.zeros((), device=device)

  def hear(self, reported: Tensor | None, fell: Tensor) -> None:
    """Take in a step: the environment's pairs [n, 2], and who fell [B]."""
    up = (1.0 - FALL_STEPS * fell.to(self.sums.dtype)).sum()
    rows = torch.stack((up, torch.full_like(up, len(fell)))).unsqueeze(0)
    if reported is not None:
      rows = torch.cat((reported, rows))
    if len(rows) != len(self.names):  # One row alone would be added to all.
      promised = ", ".join(self.names[:-1]) or "none"
      raise ValueError(f"{len(rows) - 1} rows of progress, but the names {promised}.")
    self.sums.add_(rows)

  def between_iterations(self) -> None:
    """Average what was heard since the last call."""
    self.iterations.add_(1.0)
    gain = self.iterations.reciprocal().clamp(min=1.0 / ITERATIONS)
    self.average.lerp_(collective.total(self.sums), gain)
    self.sums.zero_()
    achieved = self.achieved
    # Robots that fall forward follow a command, too.
    early = self.steady_iterations == 0.0
    best = torch.maximum(self.best * self.fade, achieved)
    torch.where(early, achieved, best, out=self.best)
    walks = (achieved >= STEADY) | ~self._basics | ~self.asked
    walks = walks.all() & (self.iterations > ITERATIONS)
    # Once steady, always: what follows must not depend on a single bad iteration.
    self.steady_iterations.add_(walks | ~early)

  @property
  def asked(self) -> Tensor:
    """What was ever asked: tasks differ in their commands. # [n]"""
    return self.average[:, 1] > 0.0

  @property
  def achieved(self) -> Tensor:
    """Done over asked, at most 1 and at least 0. # [n]"""
    done, asked = self.average.unbind(1)
    return (done / asked.clamp(min=1e-6)).clamp(0.0, 1.0)

  def metrics(self) -> dict[str, Tensor]:
    """Achievements by name, for the log."""
    return {
      f"Task/{name}": value
      for name, value in zip(self.names, self.achieved, strict=True)
    }

  def state_dict(self) -> dict[str, Tensor]:
    names = ("sums", "average", "best", "iterations", "steady_iterations")
    return {name: getattr(self, name) for name in names}

  def load_state_dict(self, state: dict[str, Tensor]) -> None:
    for name, value in state.items():
      getattr(self, name).copy_(value)
