"""A run whose numbers are no longer numbers says so and ends.

A NaN in one weight makes every later action NaN, and the environment, which resets what
breaks, would go on for hours with a robot that does nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from decap.errors import UserError
from decap.rl import checkpoint_files

NETWORKS = ("actor_state_dict", "critic_state_dict", "cost_critic_state_dict")
"""Where a checkpoint has them."""


class Diverged(UserError):
  """Training ended in numbers that are not finite."""

  exit_code = 1


def marks(networks: Mapping[str, nn.Module]) -> Tensor:
  """One value per tensor of `names`: 0, or NaN where the tensor is not finite. [n]

  On the device, so that it can be part of a CUDA graph; 0 · x is NaN where x is not
  finite.
  """
  tensors = [tensor for _, tensor in _tensors(networks)]
  return torch.stack([(tensor.detach() * 0.0).sum() for tensor in tensors])


def names(networks: Mapping[str, nn.Module]) -> list[str]:
  """Names of parameters and buffers as `marks` orders them."""
  return [name for name, _ in _tensors(networks)]


def findings(
  networks: list[str],
  marks: list[float],
  log: Mapping[str, float],
  broken: Mapping[str, int],
) -> list[str]:
  """What of an iteration is not finite, in words.

  Args:
    networks: The names that belong to `marks`.
    log: The iteration's log, of which the losses count.
    broken: Term → first environment where it was not finite. Observations count;
      physics and rewards do not: the environment ends such episodes.
  """
  found = [
    f"{term} (first in environment {index})"
    for term, index in broken.items()
    if term.startswith("observation ")
  ]
  found += [
    f"loss {name.removeprefix('Loss/')}"
    for name, value in log.items()
    if name.startswith("Loss/") and not math.isfinite(value)
  ]
  bad = [
    name for name, mark in zip(networks, marks, strict=True) if not math.isfinite(mark)
  ]
  if bad:
    more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    found.append(f"network weights {bad[0]}{more}")
  return found


def error(found: list[str], iteration: int, run_dir: Path | None) -> Diverged:
  """The sentence that ends the run."""
  kept = checkpoint_files.list_checkpoints(run_dir) if run_dir else []
  return Diverged(
    f"Training diverged in iteration {iteration}: not finite are {', '.join(found)}. "
    + (
      f"The last good checkpoint is {kept[-1][1]}."
      if kept
      else "There is no checkpoint from before."
    )
  )


def require_finite(state: Mapping[str, Any], name: object) -> None:
  """Refuse a checkpoint whose networks are not finite."""
  for key in NETWORKS:
    for tensor, value in state.get(key, {}).items():
      if not bool(value.isfinite().all()):
        network = key.removesuffix("_state_dict")
        raise UserError(
          f"{name} holds a policy that diverged: {network} {tensor} is not finite."
        )


def _tensors(networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
  for network, module in networks.items():
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
      if tensor.is_floating_point():
        yield f"{network} {name}", tensor
