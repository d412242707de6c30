"""Adam whose learning rate is a tensor, so that a recorded update can change it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn


def make_adam(parameters: Iterable[nn.Parameter], rate: Tensor) -> torch.optim.Adam:
  """Adam that reads its rate from this tensor and never waits for the device."""
  return torch.optim.Adam(
    parameters,
    lr=rate,
    # Fused also on a CPU: the other implementations read the step count back.
    fused=True,
    capturable=rate.device.type == "cuda",
  )


def restore(
  optimizer: torch.optim.Optimizer, rate: Tensor, state: Mapping[str, Any]
) -> None:
  """Load a state; the rate stays the tensor that is adapted."""
  load_moments(optimizer, state)
  (group,) = optimizer.param_groups
  rate.copy_(torch.as_tensor(group["lr"]))
  group["lr"] = rate


def load_moments(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
  """Load a state; the flags stay this device's.

  Fused, Adam reads as many moments as there are weights, whatever there is in memory.
  """
  (group,) = optimizer.param_groups
  for index, moments in state["state"].items():
    shapes = {moments[name].shape for name in ("exp_avg", "exp_avg_sq")}
    if shapes != {group["params"][index].shape}:
      raise ValueError(f"moments of weight {index} have another shape")
  flags = {key: group[key] for key in ("capturable", "fused")}
  optimizer.load_state_dict(dict(state))
  optimizer.param_groups[0].update(flags)
