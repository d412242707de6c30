"""PPO-Lagrangian: one multiplier per cost, raised while the cost is too frequent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from decap.rl import optimizer
from decap.rl.config import LagrangianCfg
from decap.rl.cost_critic import CostPPO


def lagrangian_advantages(
  advantages: Tensor,  # [T, B]
  cost_advantages: Tensor,  # [T, B, K]
  multipliers: Tensor,  # [K]
) -> Tensor:
  """(A − Σ_k λ_k A_Ck) / (1 + Σ_k λ_k); the divisor keeps the step's size.

  A is standardised. A_Ck is only centred, as usual: it counts expected steps above the
  limit, so that a cost which hardly varies does not become noise of size one.
  """
  costs = (cost_advantages * multipliers).sum(dim=-1)
  return (advantages - costs) / (1.0 + multipliers.sum())


class Lagrangian(CostPPO):
  """PPO on the Lagrangian of the constrained problem.

  The multipliers follow Adam on the violation (share of steps − D) once per
  iteration, before the policy's advantages are mixed, and never fall below zero. Adam
  makes their pace independent of the costs' unit.
  """

  cfg: LagrangianCfg

  def __init__(
    self, models, storage, cfg: LagrangianCfg, device: str, **kwargs
  ) -> None:
    super().__init__(models, storage, cfg, device, **kwargs)
    self.multipliers = torch.full_like(self.cost_rates, cfg.multiplier_init)  # [K]
    self.multipliers.grad = torch.zeros_like(self.multipliers)
    self.multiplier_optimizer = torch.optim.Adam(
      [self.multipliers],
      lr=cfg.multiplier_lr,
      maximize=True,
      fused=True,
      capturable=torch.device(device).type == "cuda",
    )

  def policy_advantages(self, advantages: Tensor) -> Tensor:
    self._update_multipliers()
    return lagrangian_advantages(
      super().policy_advantages(advantages),
      self.storage.cost_advantages,
      self.multipliers,
    )

  def metrics(self) -> dict[str, Tensor]:
    return super().metrics() | {
      f"Multiplier/{name}": value.clone()
      for name, value in zip(self.cost_names, self.multipliers, strict=True)
    }

  def state_dict(self) -> dict[str, Any]:
    return super().state_dict() | {
      "multipliers": self.multipliers,
      "multiplier_optimizer_state_dict": self.multiplier_optimizer.state_dict(),
    }

  def load_state_dict(self, state: Mapping[str, Any]) -> None:
    super().load_state_dict(state)
    self.multipliers.copy_(state["multipliers"])
    optimizer.load_moments(
      self.multiplier_optimizer, state["multiplier_optimizer_state_dict"]
    )

  def _update_multipliers(self) -> None:
    assert self.multipliers.grad is not None
    self.multipliers.grad.copy_(self.cost_rates - self.cfg.cost_limit)
    self.multiplier_optimizer.step()
    self.multipliers.clamp_(0.0, self.cfg.multiplier_max)
