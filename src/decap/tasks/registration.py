"""Our tasks in mjlab's registry, so that mjlab's own commands and viewers run them.

mjlab imports this module, its plugin, while it is itself being imported, and only
warns when that fails. What imported mjlab may well be a module of ours that is not
complete yet, so of ours only that is imported here which imports nothing of mjlab: a
task's configs are made when mjlab asks for them.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

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
  def rl_cfg(self) -> Any:
    """Plain PPO with our networks, for mjlab's ``train``; its environment only measures."""
    from decap.rl.config import AgentCfg
    from decap.tasks.mjlab_runner import rsl_rl_cfg

    cfg = rsl_rl_cfg(AgentCfg(seed=42))  # mjlab's own.
    cfg.experiment_name = self._name
    return cfg

  @cached_property
  def runner_cls(self) -> type:
    from decap.tasks.mjlab_runner import MjlabRunner

    return MjlabRunner


for _name in TASKS:
  mjlab_private.register(mjlab_id(_name), LazyTask(_name))
