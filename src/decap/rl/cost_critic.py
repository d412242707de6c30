"""What methods that weigh costs share: a cost critic and costs' advantages.

Values and advantages count steps with a cost, discounted; measured costs and limits are
rates, shares of steps. A rate over 1 − γ is the discounted sum that it amounts to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from decap import collective
from decap.rl.config import CostPpoCfg
from decap.rl.losses import NetworkOutputs
from decap.rl.modules import Models
from decap.rl.ppo import PPO
from decap.rl.returns import survival_gae
from decap.rl.storage import Batch, RolloutStorage


def endless_costs(
  costs: Tensor,  # [B, K]
  values: Tensor,  # [B, K]
  dones: Tensor,  # [B]
  gamma: float,
) -> Tensor:
  """C_t, and where an episode ends γ V_C(s_t) for all that would follow. [B, K]

  At falls as at time-outs: were a fall the end of all costs, a policy that violates
  often would be cheapest where it falls at once, and it would learn to.
  """
  ended = dones.to(costs.dtype).unsqueeze(-1)
  return costs + gamma * ended * values


def cost_gae(
  costs: Tensor,  # [T, B, K]
  values: Tensor,  # [T, B, K]
  last_values: Tensor,  # [B, K]
  dones: Tensor,  # [T, B, 1]
  gamma: float,
  lam: float,
) -> tuple[Tensor, Tensor]:
  """Returns and centred advantages of costs that never end. [T, B, K]

  The mean TD error is taken off before advantages add it up, so the critic learns how
  states differ and never the level that all share. Were it to learn that, from 0 up to
  rate / (1 − γ), it would underrate every state meanwhile, and whoever falls, which
  ends the sum of such errors, would seem to be cheaper.
  """
  next_values = torch.cat((values[1:], last_values.unsqueeze(0)))
  td = costs + gamma * (1.0 - dones) * next_values - values
  level = collective.mean(td.mean(dim=(0, 1)))
  _, advantages = survival_gae(
    costs - level, values, last_values, dones, torch.zeros_like(dones), gamma, lam
  )
  advantages = advantages - collective.mean(advantages.mean(dim=(0, 1)))
  return values + advantages, advantages


class CostPPO(PPO):
  """PPO that also estimates, for each of K costs, returns and advantages.

  Costs are the indicators in `extras["constraints"]["costs"]` [B, K]. One network
  with K heads predicts their discounted sums, up to a constant.
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

  def hear(self, dones: Tensor, extras: Mapping[str, Any]) -> None:
    costs = extras["constraints"]["costs"]
    targets = endless_costs(costs, self._cost_values, dones, self.gamma)
    self.storage.write(costs=costs, bootstrapped_costs=targets)

  @torch.no_grad()
  def compute_returns(self, obs: Mapping[str, Tensor]) -> None:
    """Costs first: the policy's advantages may depend on theirs."""
    st = self.storage
    returns, advantages = cost_gae(
      st.bootstrapped_costs,
      st.cost_values,
      self.cost_critic(obs),
      st.dones.unsqueeze(-1),
      self.gamma,
      self.lam,
    )
    st.cost_returns.copy_(returns)
    st.cost_advantages.copy_(advantages)
    self.cost_rates.copy_(collective.mean(st.costs.mean(dim=(0, 1))))
    super().compute_returns(obs)

  def loss_weights(self) -> dict[str, float]:
    return super().loss_weights() | {"cost_value": self.cfg.cost_value_loss_coef}

  def losses(self, batch: Batch, evaluation: NetworkOutputs) -> dict[str, Tensor]:
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
