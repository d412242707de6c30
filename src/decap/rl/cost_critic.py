"""What methods that weigh costs share: a cost critic and costs' advantages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from decap.rl.config import CostPpoCfg
from decap.rl.modules import Models
from decap.rl.ppo import PPO, Evaluation
from decap.rl.returns import standardise, survival_gae
from decap.rl.storage import Batch, RolloutStorage


class CostPPO(PPO):
  """PPO that also estimates, for each of K costs, returns and advantages.

  Costs are the indicators in `extras["constraints"]["costs"]` [B, K]. One network
  with K heads predicts their discounted sums.
  """

  cfg: CostPpoCfg

  def __init__(
    self,
    models: Models,
    storage: RolloutStorage,
    cfg: CostPpoCfg,
    device: str,
    **kwargs,
  ) -> None:
    super().__init__(models, storage, cfg, device, **kwargs)
    assert models.cost_critic is not None
    self.cost_critic = models.cost_critic
    num_costs = storage.costs.shape[-1]
    self.cost_rates = torch.zeros(num_costs, device=device)  # [K]
    self._cost_values = torch.zeros(storage.num_envs, num_costs, device=device)

  def act(self, obs: Mapping[str, Tensor]) -> Tensor:
    actions = super().act(obs)
    with torch.no_grad():
      self._cost_values.copy_(self.cost_critic(obs))
    self.storage.write(cost_values=self._cost_values)
    return actions

  def process_env_step(
    self,
    obs: Mapping[str, Tensor],
    rewards: Tensor,
    dones: Tensor,
    extras: Mapping[str, Any],
  ) -> None:
    costs = extras["constraints"]["costs"]
    targets = costs
    if "time_outs" in extras:
      time_outs = extras["time_outs"].to(costs.dtype).unsqueeze(-1)
      targets = costs + self.gamma * self._cost_values * time_outs
    self.storage.write(costs=costs, bootstrapped_costs=targets)
    super().process_env_step(obs, rewards, dones, extras)

  @torch.no_grad()
  def compute_returns(self, obs: Mapping[str, Tensor]) -> None:
    """Costs first: the policy's advantages may depend on theirs."""
    st = self.storage
    returns, advantages = survival_gae(
      st.bootstrapped_costs,
      st.cost_values,
      self.cost_critic(obs),
      st.dones.unsqueeze(-1),
      torch.zeros_like(st.dones).unsqueeze(-1),
      self.gamma,
      self.lam,
    )
    st.cost_returns.copy_(returns)
    st.cost_advantages.copy_(standardise(advantages))
    self.cost_rates.copy_(st.costs.mean(dim=(0, 1)))
    super().compute_returns(obs)

  def loss_weights(self) -> dict[str, float]:
    return super().loss_weights() | {"cost_value": self.cfg.cost_value_loss_coef}

  def losses(self, batch: Batch, evaluation: Evaluation) -> dict[str, Tensor]:
    predicted = self.cost_critic.mlp(batch.inputs["cost_critic"])
    cost_value = (predicted - batch.cost_returns).square().mean()
    return super().losses(batch, evaluation) | {"cost_value": cost_value}

  def metrics(self) -> dict[str, Tensor]:
    return super().metrics() | {
      f"Cost/{name}": rate.clone()
      for name, rate in zip(self.cost_names, self.cost_rates, strict=True)
    }

  def state_dict(self) -> dict[str, Any]:
    return super().state_dict() | {
      "cost_critic_state_dict": self.cost_critic.state_dict()
    }

  def load_state_dict(self, state: Mapping[str, Any]) -> None:
    self.cost_critic.load_state_dict(state["cost_critic_state_dict"])
    super().load_state_dict(state)
