"""Networks that are their own mirror image.

A robot that is symmetric from left to right should answer the mirrored situation with
the mirrored action. Averaging a network over both, f(x) ← (f(x) + M f(M x)) / 2, makes
that exact at every moment of training, so each sample teaches both sides and no gait
limps. (Augmented samples would reach it in the limit only, and their probability ratios
are those of a policy that is not symmetric yet.)
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class SymmetricMLP(nn.Sequential):
  """Layers, averaged over an input and its mirror image.

  Parameters keep the names that the layers had in a sequence of their own.
  """

  mirror_in: Tensor
  mirror_out: Tensor

  def __init__(
    self, layers: Iterable[nn.Module], mirror_in: Tensor, mirror_out: Tensor
  ) -> None:
    """Mirrors are signed permutations that undo themselves: [D, D] and [A, A]."""
    super().__init__(*layers)
    for name, mirror in (("mirror_in", mirror_in), ("mirror_out", mirror_out)):
      if not torch.equal(mirror @ mirror, torch.eye(len(mirror)).to(mirror)):
        raise ValueError("a mirror image of a mirror image must be the original.")
      self.register_buffer(name, mirror.clone())

  def forward(self, x: Tensor) -> Tensor:
    # One pass over both, so that a GPU does half as many steps.
    out, mirrored = super().forward(torch.cat((x, x @ self.mirror_in))).chunk(2)
    return 0.5 * (out + mirrored @ self.mirror_out)
