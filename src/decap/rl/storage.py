"""Rollout storage: preallocated tensors, written through a step index on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass
class Batch:
  """N samples of a rollout, in any order."""

  inputs: dict[str, Tensor]  # network -> its normalised observation [N, D]
  actions: Tensor  # [N, A]
  log_prob: Tensor  # [N]
  mean: Tensor  # [N, A]
  values: Tensor  # [N]
  returns: Tensor  # [N]
  advantages: Tensor  # [N]
  cost_returns: Tensor  # [N, K]
  cost_advantages: Tensor  # [N, K]

  def part(self, index: int, count: int) -> Batch:
    """One of `count` mini-batches of equal size; views, and without the remainder."""
    size = self.actions.shape[0] // count
    rows = slice(index * size, (index + 1) * size)
    return Batch(
      inputs={name: x[rows] for name, x in self.inputs.items()},
      **{name: getattr(self, name)[rows] for name in _STORED},
    )


_STORED = tuple(field.name for field in fields(Batch) if field.name != "inputs")
"""What a batch takes from the storage as it is."""


class RolloutStorage:
  """One rollout of T steps of B environments.

  The write position is a device tensor, so that one recorded step can be replayed T
  times; it wraps around, so that a full storage is ready for the next rollout.
  """

  def __init__(
    self,
    num_steps: int,
    num_envs: int,
    obs: Mapping[str, Tensor],
    num_actions: int,
    num_costs: int,
    device: str,
  ) -> None:
    self.num_steps, self.num_envs = num_steps, num_envs
    self.device = device

    def zeros(*shape: int) -> Tensor:
      return torch.zeros(num_steps, num_envs, *shape, device=device)

    self.observations = {
      name: torch.zeros(
        num_steps, num_envs, *value.shape[1:], dtype=value.dtype, device=device
      )
      for name, value in obs.items()
    }
    self.actions = zeros(num_actions)  # [T, B, A]
    self.log_prob = zeros()  # [T, B]
    self.mean = zeros(num_actions)  # [T, B, A]
    self.rewards, self.dones, self.delta = zeros(), zeros(), zeros()  # [T, B]
    self.values, self.returns, self.advantages = zeros(), zeros(), zeros()  # [T, B]
    self.costs = zeros(num_costs)  # [T, B, K]
    self.bootstrapped_costs = zeros(num_costs)  # [T, B, K]
    self.cost_values = zeros(num_costs)  # [T, B, K]
    self.cost_returns = zeros(num_costs)  # [T, B, K]
    self.cost_advantages = zeros(num_costs)  # [T, B, K]
    self.step = torch.zeros(1, dtype=torch.long, device=device)
    self.indices = torch.arange(num_steps * num_envs, device=device)  # [T * B]

  def write_observations(self, observations: Mapping[str, Tensor]) -> None:
    """Write the observations of the current step, group by group."""
    for name, buffer in self.observations.items():
      buffer.index_copy_(0, self.step, observations[name].unsqueeze(0))

  def write(self, **fields: Tensor) -> None:
    """Write the named fields of the current step."""
    for name, value in fields.items():
      buffer = getattr(self, name)
      buffer.index_copy_(0, self.step, value.to(buffer.dtype).unsqueeze(0))

  def advance(self) -> None:
    """Go to the next step."""
    self.step.add_(1).remainder_(self.num_steps)

  def clear(self) -> None:
    """Start the next rollout at the first step."""
    self.step.zero_()

  def shuffle(self) -> None:
    """Draw the permutation that the mini-batches of one update share."""
    self.indices.copy_(torch.randperm(self.indices.shape[0], device=self.device))

  def gather(
    self,
    indices: Tensor,  # [N]
    networks: Mapping[str, Callable[[Mapping[str, Tensor]], Tensor]],
  ) -> Batch:
    """The samples at flat `indices` (t · B + b), as each network observes them."""

    def take(x: Tensor) -> Tensor:
      return x.flatten(0, 1).index_select(0, indices)

    observations = {name: take(x) for name, x in self.observations.items()}
    return Batch(
      inputs={name: observe(observations) for name, observe in networks.items()},
      **{name: take(getattr(self, name)) for name in _STORED},
    )
