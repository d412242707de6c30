"""Lipschitz-constrained policies: PPO with a penalty on the policy's gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from decap.rl.config import LcpCfg
from decap.rl.losses import NetworkOutputs
from decap.rl.ppo import PPO
from decap.rl.storage import Batch


def gradient_penalty(log_prob: Tensor, policy_input: Tensor) -> Tensor:
  """Mean over samples of ‖∇ log π(a | obs)‖², differentiable once more.

  log_prob: [N], a function of policy_input [N, D] row by row; so the gradient of the
  sum holds each sample's own.
  """
  (gradient,) = torch.autograd.grad(log_prob.sum(), policy_input, create_graph=True)
  return gradient.square().sum(dim=-1).mean()


class LCP(PPO):
  """PPO whose policy changes slowly with its normalised observation."""

  cfg: LcpCfg

  def policy_input(self, batch: Batch) -> Tensor:
    return super().policy_input(batch).detach().requires_grad_()

  def loss_weights(self) -> dict[str, float]:
    weights, coefficient = super().loss_weights(), self.cfg.gradient_penalty_coef
    # At zero it is not computed at all, and this is PPO to the last bit.
    return weights | ({"gradient_penalty": coefficient} if coefficient > 0.0 else {})

  def losses(self, batch: Batch, evaluation: NetworkOutputs) -> dict[str, Tensor]:
    losses = super().losses(batch, evaluation)
    if self.cfg.gradient_penalty_coef > 0.0:
      losses["gradient_penalty"] = gradient_penalty(
        evaluation.log_prob, evaluation.policy_input
      )
    return losses
