"""What the training loop needs of an environment, and no more.

`decap.envs.ConstrainedEnv` has it; so can an environment of another simulator. Nothing
in `rl/` imports an environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from decap.constraints.composition import Composition
from decap.constraints.groups import BodyGroupCfg


class ActionTerm(Protocol):
  """Some of the actions."""

  @property
  def target_names(self) -> Sequence[str]:
    """Joints that they move."""
    ...


class Actions(Protocol):
  """What moves a robot."""

  @property
  def total_action_dim(self) -> int: ...
  @property
  def active_terms(self) -> list[str]: ...
  def get_term(self, name: str) -> ActionTerm: ...


class Constraints(Protocol):
  """What is limited, and where it is composed."""

  groups: dict[str, BodyGroupCfg]
  composition: Composition


class EnvironmentCfg(Protocol):
  """What a loop asks an environment's config."""

  is_finite_horizon: bool
  """Whether nothing comes after a time-out."""


class Environment(Protocol):
  """A batch of environments that report constraints and keep their own log.

  Observations, rewards and the rest stay on the device, in memory of which a step may
  write the same part every time.
  """

  @property
  def cfg(self) -> EnvironmentCfg: ...

  episode_length_buf: Tensor  # [B]
  common_step_counter: int
  sim: Any
  """On a GPU a WarpSimulation, whose stream a recording takes over."""
  constraint_manager: Constraints

  @property
  def num_envs(self) -> int: ...
  @property
  def device(self) -> torch.device | str: ...
  @property
  def max_episode_length(self) -> int: ...
  @property
  def action_manager(self) -> Actions: ...

  @property
  def progress_names(self) -> tuple[str, ...]:
    """Names of the rows of `extras["progress"]`."""
    ...

  @property
  def waiting_terms(self) -> list[str]:
    """Terms for which a step waits for the device; without any it can be recorded."""
    ...

  def reset(self, *, seed: int | None = None) -> tuple[Mapping[str, Any], Any]:
    """Observations of all environments, freshly started, and extras."""
    ...

  def step(
    self, action: Tensor
  ) -> tuple[Mapping[str, Any], Tensor, Tensor, Tensor, Mapping[str, Any]]:
    """Observations, rewards, terminated, time-outs [B], and extras.

    `extras["constraints"]` holds "delta" [B], "costs" [B, rows] and "quantities".
    """
    ...

  def between_iterations(self) -> None:
    """What is decided once per rollout."""

  def set_step_count(self, steps: int) -> None:
    """Correct the counters after steps that ran without Python."""

  def mirrors(self) -> dict[str, Tensor]:
    """Mirrors of the group "actor" and of "actions"."""
    ...

  def flush_log(self) -> dict[str, float]:
    """Means since the last call."""
    ...

  def not_finite(self) -> dict[str, int]:
    """Term → first environment where it was not finite since the last call."""
    ...

  def close(self) -> None: ...
  def state_dict(self) -> dict[str, Any]: ...
  def load_state_dict(self, saved: dict[str, Any]) -> None: ...
