"""Reductions over the processes of one training; with one process, the identity.

Constraints are one problem for all processes only if their statistics are: the scale of
violations, the mean of δ̄, what robots achieve, cost rates, normalisers. Each is reduced
where it is made, by these functions. They are called at the same points in the same
order by every process. On GPUs they are NCCL's, which CUDA graphs can record; gloo's, on
CPUs, run eagerly as everything does there.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch import distributed as dist


def size() -> int:
  """Number of processes that train together."""
  return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
  """This process's number; 0 writes logs, checkpoints and the bundle."""
  return dist.get_rank() if size() > 1 else 0


def maximum(values: Tensor) -> Tensor:
  """Largest value over processes, element by element; exact."""
  return _reduced(values, dist.ReduceOp.MAX) if size() > 1 else values


def total(values: Tensor) -> Tensor:
  """Sum over processes, element by element."""
  return _reduced(values, dist.ReduceOp.SUM) if size() > 1 else values


def mean(values: Tensor) -> Tensor:
  """Mean over processes, element by element."""
  return total(values) / size() if size() > 1 else values


def average_gradients(parameters: Iterable[Tensor]) -> None:
  """Mean of all gradients over processes, in place and in one reduction."""
  if size() == 1:
    return
  gradients = [p.grad for p in parameters if p.grad is not None]
  flat = mean(torch.cat([g.flatten() for g in gradients]))
  start = 0
  for gradient in gradients:
    gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
    start += gradient.numel()


def share(tensors: Iterable[Tensor]) -> None:
  """Give every process the tensors of the first, in place."""
  if size() > 1:
    for tensor in tensors:
      dist.broadcast(tensor.detach(), 0)


def agree(value: object) -> bool:
  """Whether every process holds the same plain value."""
  if size() == 1:
    return True
  values: list[object] = [None] * size()
  dist.all_gather_object(values, value)
  return all(other == value for other in values)


def _reduced(values: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
  values = values.clone()
  dist.all_reduce(values, operation)
  return values
