"""N-IPO: interior-point policy optimisation with adaptive thresholds."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from decap.rl.config import NIpoCfg
from decap.rl.cost_critic import CostPPO
from decap.rl.losses import NetworkOutputs
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
  margin: Tensor,  # [K]
) -> Tensor:
  """−Σ_k log(d_k^i − J_Ck − E[ratio · A_Ck]), continued below the margin.

  The mini-batch's own E[A_Ck], zero but for sampling, is taken off: it is of the
  size of the thresholds' margin and would otherwise close the barrier by chance.
  """
  change = ((ratio - 1.0).unsqueeze(-1) * cost_advantages).mean(dim=0)
  return -extended_log(thresholds - cost - change, margin).sum()


def extended_log(x: Tensor, margin: Tensor) -> Tensor:
  """log x, and below `margin` its tangent there.

  A clamp would do as well for the value, but has no gradient where the policy has
  just become worse, which is where it is needed.
  """
  inside = x.clamp_min(margin).log()
  return inside + ((x - margin) / margin).clamp_max(0.0)


class NIPO(CostPPO):
  """PPO with a logarithmic barrier at each cost's threshold.

  J_Ck is the share of steps with cost k, d_k = D, and A_Ck gets the same scale: the
  advantage of the discounted cost times 1 − γ. (Times 1 / (1 − γ) all three are the
  discounted sums of the literature; the barrier's gradient is the same.)
  """

  cfg: NIpoCfg

  def __init__(self, models, storage, cfg: NIpoCfg, device: str, **kwargs) -> None:
    super().__init__(models, storage, cfg, device, **kwargs)
    self.limits = torch.full_like(self.cost_rates, cfg.cost_limit)  # [K]
    self.thresholds = self.limits.clone()  # [K]

  @torch.no_grad()
  def compute_returns(self, obs: Mapping[str, Tensor]) -> None:
    super().compute_returns(obs)
    self.thresholds.copy_(
      adaptive_thresholds(self.cost_rates, self.limits, self.cfg.threshold_margin)
    )

  def loss_weights(self) -> dict[str, float]:
    return super().loss_weights() | {"barrier": 1.0 / self.cfg.barrier_t}

  def losses(self, batch: Batch, evaluation: NetworkOutputs) -> dict[str, Tensor]:
    barrier = log_barrier(
      evaluation.ratio,
      (1.0 - self.gamma) * batch.cost_advantages,
      self.cost_rates,
      self.thresholds,
      self.cfg.threshold_margin * self.limits,
    )
    return super().losses(batch, evaluation) | {"barrier": barrier}

  def metrics(self) -> dict[str, Tensor]:
    return super().metrics() | {
      f"Threshold/{name}": value.clone()
      for name, value in zip(self.cost_names, self.thresholds, strict=True)
    }
