"""Reductions over the processes of one training; without a group, the identity.

Constraints are one problem for all processes only if their statistics are: the scale of
violations, the mean of δ̄, what robots achieve, cost rates, normalisers. Each is reduced
where it is made, by these functions. They are called at the same points in the same
order by every process. On GPUs they are NCCL's, which CUDA graphs can record; gloo's, on
CPUs, run eagerly as everything does there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
from torch import distributed as dist


def active() -> bool:
  """Whether there is a group to reduce over; it may be of one process."""
  return dist.is_available() and dist.is_initialized()


def size() -> int:
  """Number of processes that train together."""
  return dist.get_world_size() if active() else 1


def rank() -> int:
  """This process's number; 0 writes logs, checkpoints and the bundle."""
  return dist.get_rank() if active() else 0


def maximum(values: Tensor) -> Tensor:
  """Largest value over processes, element by element; exact."""
  return _reduced(values, dist.ReduceOp.MAX) if active() else values


def total(values: Tensor) -> Tensor:
  """Sum over processes, element by element."""
  return _reduced(values, dist.ReduceOp.SUM) if active() else values


def mean(values: Tensor) -> Tensor:
  """Mean over processes, element by element."""
  return total(values) / size() if active() else values


def average(tensors: Iterable[Tensor]) -> None:
  """Mean over processes of each tensor, in place, in one reduction for all."""
  if not active():
    return
  tensors = list(tensors)
  flat = torch.cat([tensor.flatten() for tensor in tensors])
  dist.all_reduce(flat, dist.ReduceOp.SUM)
  parts = flat.split([tensor.numel() for tensor in tensors])
  for tensor, part in zip(tensors, parts, strict=True):
    torch.div(part.view_as(tensor), size(), out=tensor)


def share(tensors: Iterable[Tensor]) -> None:
  """Give every process the tensors of the first, in place."""
  if size() > 1:
    for tensor in tensors:
      dist.broadcast(tensor.detach(), 0)


def differences(values: Mapping[str, object]) -> list[str]:
  """Names of plain values that are not the same on every process."""
  if size() == 1:
    return []
  everywhere: list[Mapping[str, object]] = [{}] * size()
  dist.all_gather_object(everywhere, dict(values))
  names = dict.fromkeys(name for other in everywhere for name in other)
  missing = object()
  return [
    name
    for name in names
    if any(o.get(name, missing) != everywhere[0].get(name, missing) for o in everywhere)
  ]


def _reduced(values: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
  values = values.clone()
  dist.all_reduce(values, operation)
  return values
