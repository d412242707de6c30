"""Our tasks in mjlab's registry, so that mjlab's own commands and viewers run them.

mjlab imports this module, its plugin, while it is itself being imported, and only
warns when that fails. What imported mjlab may well be a module of ours that is not
complete yet, so nothing of ours is imported here: a task's configs are made when mjlab
asks for them.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from mjlab.rl import (
  RslRlModelCfg,
  RslRlOnPolicyRunnerCfg,
  RslRlPpoAlgorithmCfg,
)

from decap import mjlab_private
from decap.tasks import TASKS, env_cfg, mjlab_id


class LazyTask:
  """Has the attributes of the registry's own entries, each made on first use."""

  def __init__(self, name: str):
    self._name = name

  @cached_property
  def env_cfg(self) -> Any:
    return env_cfg(self._name)

  @cached_property
  def play_env_cfg(self) -> Any:
    return env_cfg(self._name, play=True)

  @cached_property
  def rl_cfg(self) -> RslRlOnPolicyRunnerCfg:
    return _rl_cfg(self._name)

  @cached_property
  def runner_cls(self) -> type:
    from decap.tasks.mjlab_runner import MjlabRunner

    return MjlabRunner


def _rl_cfg(name: str) -> RslRlOnPolicyRunnerCfg:
  """Plain PPO with our networks, for mjlab's ``train``; its environment only measures."""
  return RslRlOnPolicyRunnerCfg(
    actor=RslRlModelCfg(
      hidden_dims=(512, 256, 128),
      activation="elu",
      obs_normalization=True,
      distribution_cfg={
        "class_name": "GaussianDistribution",
        "init_std": 1.0,
        "std_type": "scalar",
      },
    ),
    critic=RslRlModelCfg(
      hidden_dims=(512, 256, 128), activation="elu", obs_normalization=True
    ),
    algorithm=RslRlPpoAlgorithmCfg(entropy_coef=0.01),
    experiment_name=name,
    num_steps_per_env=24,
    max_iterations=3000,
  )


for _name in TASKS:
  mjlab_private.register(mjlab_id(_name), LazyTask(_name))
