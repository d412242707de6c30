"""Terms that act on a mask of environments, and what stands in for mjlab's own.

mjlab hands its event, command and curriculum terms the indices of the environments
concerned, which the host must wait for. Ours get a boolean mask and write with
``torch.where``: the same code runs eagerly and inside a CUDA graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
  from mjlab.envs import ManagerBasedRlEnv

T = TypeVar("T")


def masked(func: Callable[..., T]) -> Callable[..., T]:
  """Marks a term that takes a mask [B] (or None for all) instead of indices.

  mjlab's own environment passes indices [n]; a mask is made of them, so that a config
  runs in both.
  """

  @functools.wraps(func)
  def call(
    env: ManagerBasedRlEnv, mask: torch.Tensor | None, *args: Any, **params: Any
  ) -> T:
    if mask is not None and mask.dtype != torch.bool:
      indices = mask.long()
      mask = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)
      mask.index_fill_(0, indices, True)
    return func(env, mask, *args, **params)

  call.masked = True  # type: ignore[attr-defined]
  return call


def is_masked(func: Any) -> bool:
  return getattr(func, "masked", False)


def terms_of(manager: Any) -> dict[str, Any]:
  """Terms of an action or a command manager by name."""
  return {name: manager.get_term(name) for name in manager.active_terms}


def kept(env: ManagerBasedRlEnv, key: Any, make: Callable[[], T]) -> T:
  """What never changes, made on the first call and kept by the environment."""
  cache: dict[Any, T] = env.__dict__.setdefault("_constants", {})
  if key not in cache:
    cache[key] = make()
  return cache[key]


def constant(env: ManagerBasedRlEnv, key: Any, values: Any) -> torch.Tensor:
  """A device tensor of ``values``.

  Creating a tensor from host values waits for the device; a term must not do it at
  every step.
  """
  return kept(env, key, lambda: torch.as_tensor(values, device=env.device))


def write_where(
  target: torch.Tensor, mask: torch.Tensor | None, values: torch.Tensor
) -> None:
  """target[mask] = values[mask], without indices. mask [B], target [B, …]."""
  if mask is None:
    target.copy_(values)
  else:
    shaped = mask.view(-1, *(1,) * (target.dim() - 1))
    torch.where(shaped, values, target, out=target)


def redraw_where(
  target: torch.Tensor, mask: torch.Tensor, bounds: tuple[float, float]
) -> None:
  """Uniform values between the bounds where the mask says. mask, target [B]"""
  low, high = bounds
  if low == high:
    target.masked_fill_(mask, low)
  else:
    write_where(target, mask, torch.empty_like(target).uniform_(low, high))
