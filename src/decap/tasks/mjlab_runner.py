"""The runner that mjlab's registry holds for our tasks, and its config.

mjlab's own ``play`` builds it and asks it for a policy; with it, mjlab's viewers run
checkpoints of `decap train`. mjlab's own ``train`` keeps working as for any task.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from mjlab.rl import (
  MjlabOnPolicyRunner,
  RslRlModelCfg,
  RslRlOnPolicyRunnerCfg,
  RslRlPpoAlgorithmCfg,
)

from decap.errors import UserError
from decap.rl import checkpoint
from decap.rl.config import AgentCfg
from decap.rl.modules import policy_from_state


class MjlabRunner(MjlabOnPolicyRunner):
  """mjlab's runner that also reads our checkpoints, whatever their network's shape."""

  _policy: torch.nn.Module | None = None

  def load(
    self,
    path: str,
    load_cfg: dict | None = None,
    strict: bool = True,
    map_location: str | None = None,
  ) -> dict[str, Any]:
    """Load a checkpoint of `decap train`, or one of mjlab's own."""
    self._policy = None
    try:
      state = checkpoint.load(Path(path), map_location or "cpu")
    except UserError:
      return super().load(path, load_cfg, strict, map_location)
    self._policy = policy_from_state(state, str(map_location or self.device))
    self.current_learning_iteration = state["iter"]
    return state["infos"]

  def get_inference_policy(self, device: str | None = None) -> Any:
    """The policy of the checkpoint that was loaded last."""
    if self._policy is not None:
      return self._policy.to(device)
    return super().get_inference_policy(device)


def rsl_rl_cfg(agent: AgentCfg) -> RslRlOnPolicyRunnerCfg:
  """Our agent's networks and plain PPO as mjlab's config of rsl_rl."""
  policy, ppo = agent.policy, agent.algorithm
  std = policy.init_std
  shared = ("hidden_dims", "activation", "obs_normalization")
  network: dict[str, Any] = {name: getattr(policy, name) for name in shared}
  distribution = {
    "class_name": "GaussianDistribution",
    # rsl_rl has one value for all joints.
    "init_std": 1.0 if isinstance(std, dict) else std,
    "std_type": policy.std_type,
  }
  names = {f.name for f in dataclasses.fields(RslRlPpoAlgorithmCfg)} - {"class_name"}
  algorithm = {name: getattr(ppo, name) for name in names if hasattr(ppo, name)}
  return RslRlOnPolicyRunnerCfg(
    seed=agent.seed,
    num_steps_per_env=agent.num_steps_per_env,
    max_iterations=agent.iterations,
    actor=RslRlModelCfg(**network, distribution_cfg=distribution),
    critic=RslRlModelCfg(**network),
    algorithm=RslRlPpoAlgorithmCfg(**algorithm),
  )
