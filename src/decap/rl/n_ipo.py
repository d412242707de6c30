"""N-IPO: interior-point policy optimisation with adaptive thresholds."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from decap.rl.config import NIpoCfg
from decap.rl.cost_critic import CostPPO
from decap.rl.ppo import Evaluation
from decap.rl.storage import Batch


def adaptive_thresholds(cost: Tensor, limit: Tensor, margin: float) -> Tensor:
  """d_k^i = max(d_k, J_Ck + α d_k) [K].

  An infeasible policy thus has a threshold just above where it is, and each
  improvement draws the threshold after it, down to the limit.
  """
  return torch.maximum(limit, cost + margin * limit)


def log_barrier(
  ratio: Tensor,  # [N]
  cost_advantages: Tensor,  # [N, K]
  cost: Tensor,  # [K]
  thresholds: Tensor,  # [K]
) -> Tensor:
  """−Σ_k log(d_k^i − J_Ck − E[ratio · A_Ck]), the argument at least 1e-8.

  The mini-batch's own E[A_Ck], zero but for sampling, is taken off: it is of the
  size of the thresholds' margin and would otherwise close the barrier by chance.
  """
  change = ((ratio - 1.0).unsqueeze(-1) * cost_advantages).mean(dim=0)
  return -(thresholds - cost - change).clamp_min(1e-8).log().sum()


class NIPO(CostPPO):
  """PPO with a logarithmic barrier at each cost's threshold.

  J_Ck is the share of steps with cost k over 1 − γ, the discounted sum that this
  share amounts to, and d_k = D / (1 − γ) in the same units.
  """

  cfg: NIpoCfg

  def __init__(self, models, storage, cfg: NIpoCfg, device: str, **kwargs) -> None:
    super().__init__(models, storage, cfg, device, **kwargs)
    self.limits = torch.full_like(self.cost_rates, cfg.cost_limit / (1.0 - cfg.gamma))
    self.thresholds = self.limits.clone()  # [K]
    self.discounted_costs = torch.zeros_like(self.cost_rates)  # [K]

  @torch.no_grad()
  def compute_returns(self, obs: Mapping[str, Tensor]) -> None:
    super().compute_returns(obs)
    self.discounted_costs.copy_(self.cost_rates / (1.0 - self.gamma))
    self.thresholds.copy_(
      adaptive_thresholds(self.discounted_costs, self.limits, self.cfg.threshold_margin)
    )

  def loss_weights(self) -> dict[str, float]:
    return super().loss_weights() | {"barrier": 1.0 / self.cfg.barrier_t}

  def losses(self, batch: Batch, evaluation: Evaluation) -> dict[str, Tensor]:
    barrier = log_barrier(
      evaluation.ratio, batch.cost_advantages, self.discounted_costs, self.thresholds
    )
    return super().losses(batch, evaluation) | {"barrier": barrier}

  def metrics(self) -> dict[str, Tensor]:
    return super().metrics() | {
      f"Threshold/{name}": value.clone()
      for name, value in zip(self.cost_names, self.thresholds, strict=True)
    }
