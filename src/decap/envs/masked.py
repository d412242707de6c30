"""Terms that act on a mask of environments, and what stands in for mjlab's own.

mjlab hands its event, command and curriculum terms the indices of the environments
concerned, which the host must wait for. Ours get a boolean mask and write with
``torch.where``: the same code runs eagerly and inside a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
  from mjlab.envs import ManagerBasedRlEnv

F = TypeVar("F", bound=Callable[..., Any])


def masked(func: F) -> F:
  """Marks a term that takes a mask [B] (or None for all) instead of indices."""
  func.masked = True  # type: ignore[attr-defined]
  return func


def is_masked(func: Any) -> bool:
  return getattr(func, "masked", False)


def constant(env: ManagerBasedRlEnv, key: Any, values: Any) -> torch.Tensor:
  """A device tensor of ``values``, made on the first call and kept by the environment.

  Creating a tensor from host values waits for the device; a term must not do it at
  every step.
  """
  cache: dict[Any, torch.Tensor] = env.__dict__.setdefault("_constants", {})
  if key not in cache:
    cache[key] = torch.as_tensor(values, device=env.device)
  return cache[key]


def write_where(
  target: torch.Tensor, mask: torch.Tensor | None, values: torch.Tensor
) -> None:
  """target[mask] = values[mask], without indices. mask [B], target [B, …]."""
  if mask is None:
    target[:] = values
  else:
    shaped = mask.view(-1, *(1,) * (target.dim() - 1))
    target[:] = torch.where(shaped, values, target[:])
