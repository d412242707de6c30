"""PPO on rsl_rl with hooks, free of host syncs and fit for CUDA graphs.

A method is a subclass that overrides a hook or two: `reward`, `policy_input`,
`policy_advantages`, `losses`. Nothing in here branches on the value of a tensor,
reads one back to the host or rebinds a buffer, so that rollout step and update can
be recorded once and replayed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import rsl_rl.algorithms
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from decap.rl.config import PpoCfg
from decap.rl.modules import Model, Models
from decap.rl.returns import standardise, survival_gae
from decap.rl.storage import Batch, RolloutStorage

LEARNING_RATE_RANGE = (1e-5, 1e-2)
"""Bounds of rsl_rl's adaptive learning rate."""


@dataclass
class Evaluation:
  """What the current networks say about a mini-batch."""

  policy_input: Tensor  # [N, D], normalised actor observation
  log_prob: Tensor  # [N], of the stored actions
  ratio: Tensor  # [N], to the policy that acted
  entropy: Tensor  # [N]
  mean: Tensor  # [N, A]
  std: Tensor  # [N, A]
  values: Tensor  # [N]


class PPO(rsl_rl.algorithms.PPO):
  """rsl_rl's PPO, verb for verb, with survival-adjusted returns."""

  actor: Model
  critic: Model
  storage: RolloutStorage

  def __init__(
    self,
    models: Models,
    storage: RolloutStorage,
    cfg: PpoCfg,
    device: str,
    cost_names: Sequence[str] = (),
    action_groups: Mapping[str, Sequence[int]] | None = None,
    **unsupported: Any,
  ) -> None:
    _refuse(models, storage, cfg, unsupported)
    super().__init__(
      models.actor,
      models.critic,
      storage,  # ty: ignore[invalid-argument-type]
      num_learning_epochs=cfg.num_learning_epochs,
      num_mini_batches=cfg.num_mini_batches,
      clip_param=cfg.clip_param,
      gamma=cfg.gamma,
      lam=cfg.lam,
      value_loss_coef=cfg.value_loss_coef,
      entropy_coef=cfg.entropy_coef,
      max_grad_norm=cfg.max_grad_norm,
      use_clipped_value_loss=cfg.use_clipped_value_loss,
      schedule=cfg.schedule,
      desired_kl=cfg.desired_kl,
      device=device,
    )
    self.cfg = cfg
    self.cost_names = tuple(cost_names)
    self.networks: list[Model] = [self.actor, self.critic]
    if models.cost_critic is not None:
      self.networks.append(models.cost_critic.to(device))
    self.learning_rate = torch.tensor(cfg.learning_rate, device=device)
    self.optimizer = torch.optim.Adam(
      chain.from_iterable(net.parameters() for net in self.networks),
      lr=self.learning_rate,
      # Fused also on a CPU: the other implementations read the step count back.
      fused=True,
      capturable=torch.device(device).type == "cuda",
    )
    self.loss_weights = {
      "surrogate": 1.0,
      "value": cfg.value_loss_coef,
      "entropy": -cfg.entropy_coef,
    }
    self.action_groups = {
      name: torch.tensor(list(ids), device=device)
      for name, ids in (action_groups or {}).items()
    }
    self._sums: dict[str, Tensor] = {}
    self._values = torch.zeros(storage.num_envs, device=device)

  # The four verbs.

  @torch.no_grad()
  def act(self, obs: Mapping[str, Tensor]) -> Tensor:
    """Sample actions [B, A] and store them with all that the update needs.

    Observations are stored here, before the environment writes the next ones.
    """
    actions = self.actor(obs, stochastic_output=True)
    self._values.copy_(self.critic(obs).squeeze(-1))
    self.storage.write_observations(obs)
    self.storage.write(
      actions=actions,
      values=self._values,
      log_prob=self.actor.get_output_log_prob(actions),
      mean=self.actor.output_mean,
      std=self.actor.output_std,
    )
    return actions

  @torch.no_grad()
  def process_env_step(
    self,
    obs: Mapping[str, Tensor],
    rewards: Tensor,
    dones: Tensor,
    extras: Mapping[str, Any],
  ) -> None:
    """Store reward, done and δ̄ of one environment step.

    `extras` may hold "time_outs" [B] and "constraints", as ConstrainedEnv's does. A
    timed-out step gains γ (1 − δ̄) V(s_t), after any clipping: the state that follows
    no longer exists. `obs` is rsl_rl's argument; the next `act` stores it.
    """
    delta = torch.zeros_like(rewards)
    if self.cfg.survival or self.cfg.reward_rule == "scale-clip":
      delta = extras["constraints"]["delta"].to(rewards.dtype)
    rewards = self.reward(rewards, delta)
    if not self.cfg.survival:
      delta = torch.zeros_like(rewards)
    if "time_outs" in extras:
      time_outs = extras["time_outs"].to(rewards.dtype)
      rewards = rewards + self.gamma * (1.0 - delta) * self._values * time_outs
    self.storage.write(rewards=rewards, dones=dones, delta=delta)
    self.storage.advance()

  @torch.no_grad()
  def compute_returns(self, obs: Mapping[str, Tensor]) -> None:
    """Write returns and the advantages that the policy is trained on."""
    st = self.storage
    last_values = self.critic(obs).squeeze(-1)
    returns, advantages = survival_gae(
      st.rewards, st.values, last_values, st.dones, st.delta, self.gamma, self.lam
    )
    st.returns.copy_(returns)
    st.advantages.copy_(self.policy_advantages(advantages))

  def update(self) -> dict[str, Tensor]:
    """Train on the rollout; returns named scalars that stay on the device."""
    self.begin_update()
    return self.learn()

  # The parts of an update, so that it can be recorded without drawing numbers.

  def learn(self) -> dict[str, Tensor]:
    """All mini-batches of the drawn permutation, several times over."""
    for _ in range(self.num_learning_epochs):
      for index in range(self.num_mini_batches):
        indices = self.storage.mini_batch_indices(index, self.num_mini_batches)
        self.update_mini_batch(self.storage.gather(indices))
    return self.end_update()

  def begin_update(self) -> None:
    """Draw the permutation and empty the accumulators."""
    self.storage.shuffle()
    for total in self._sums.values():
      total.zero_()

  def update_mini_batch(self, batch: Batch) -> None:
    """One step of the optimiser."""
    evaluation = self.evaluate(batch)
    with torch.no_grad():
      kl = kl_divergence(
        Normal(batch.mean, batch.std), Normal(evaluation.mean, evaluation.std)
      ).mean(dim=0)  # [A]
      self.adapt_learning_rate(kl.sum())
    losses = self.losses(batch, evaluation)
    loss = sum(self.loss_weights[name] * term for name, term in losses.items())
    # Gradients stay allocated: a recorded update writes to fixed memory.
    self.optimizer.zero_grad(set_to_none=False)
    loss.backward()
    for net in self.networks:
      nn.utils.clip_grad_norm_(net.parameters(), self.max_grad_norm)
    self.optimizer.step()
    self._accumulate("kl", kl)
    for name, term in losses.items():
      self._accumulate(name, term)

  def end_update(self) -> dict[str, Tensor]:
    """Move the normalisers, empty the storage and return the means of the update."""
    self.fit_normalisers()
    return self.metrics()

  def fit_normalisers(self) -> None:
    """Take the rollout into the normalisers, and empty the storage."""
    for net in self.networks:
      net.update_normalization(self.storage.observations)  # ty: ignore[invalid-argument-type]
    self.storage.clear()

  # Hooks.

  def reward(self, rewards: Tensor, delta: Tensor) -> Tensor:
    """The reward [B] that is learnt from; see `PpoCfg.reward_rule`."""
    if self.cfg.reward_rule == "scale-clip":
      rewards = rewards * (1.0 - delta)
    if self.cfg.reward_rule != "raw":
      rewards = rewards.clamp_min(0.0)
    return rewards

  def policy_advantages(self, advantages: Tensor) -> Tensor:
    """The advantages [T, B] of the surrogate loss."""
    return standardise(advantages)

  def policy_input(self, batch: Batch) -> Tensor:
    """The actor's normalised observation [N, D]."""
    return self.actor.observe(batch.observations)

  def losses(self, batch: Batch, evaluation: Evaluation) -> dict[str, Tensor]:
    """Terms of the loss by name; `loss_weights` holds what each counts."""
    ratio = evaluation.ratio
    clipped = ratio.clamp(1.0 - self.clip_param, 1.0 + self.clip_param)
    surrogate = torch.max(-batch.advantages * ratio, -batch.advantages * clipped)
    value_loss = (evaluation.values - batch.returns).square()
    if self.use_clipped_value_loss:
      change = evaluation.values - batch.values
      change = change.clamp(-self.clip_param, self.clip_param)
      clipped_loss = (batch.values + change - batch.returns).square()
      value_loss = torch.max(value_loss, clipped_loss)
    return {
      "surrogate": surrogate.mean(),
      "value": value_loss.mean(),
      "entropy": evaluation.entropy.mean(),
    }

  def metrics(self) -> dict[str, Tensor]:
    """Means over the update's mini-batches, and the state that they led to."""
    num_updates = self.num_learning_epochs * self.num_mini_batches
    means = {name: total / num_updates for name, total in self._sums.items()}
    kl, std = means.pop("kl"), self.std
    out = {f"Loss/{name}": value for name, value in means.items()}
    out["Policy/kl"], out["Policy/std"] = kl.sum(), std.mean()
    out["Policy/learning_rate"] = self.learning_rate.clone()
    for name, ids in self.action_groups.items():
      out[f"Policy/kl/{name}"] = kl.index_select(0, ids).sum()
      out[f"Policy/std/{name}"] = std.index_select(0, ids).mean()
    return out

  # Parts.

  @property
  def std(self) -> Tensor:
    """Current standard deviation of each action [A]."""
    return self.actor.gaussian.current_std

  def evaluate(self, batch: Batch) -> Evaluation:
    """Run the current networks on a mini-batch."""
    policy_input = self.policy_input(batch)
    distribution = self.actor.gaussian
    distribution.update(self.actor.mlp(policy_input))
    log_prob = distribution.log_prob(batch.actions)
    return Evaluation(
      policy_input=policy_input,
      log_prob=log_prob,
      ratio=(log_prob - batch.log_prob).exp(),
      entropy=distribution.entropy,
      mean=distribution.mean,
      std=distribution.std,
      values=self.critic(batch.observations).squeeze(-1),
    )

  def adapt_learning_rate(self, kl: Tensor) -> None:
    """rsl_rl's rule: slower above twice the desired KL, faster below half of it."""
    if self.schedule == "fixed":
      return
    rate, (lowest, highest) = self.learning_rate, LEARNING_RATE_RANGE
    slower = (rate / 1.5).clamp_min(lowest)
    faster = (rate * 1.5).clamp_max(highest)
    small = (kl < self.desired_kl / 2.0) & (kl > 0.0)
    rate.copy_(
      torch.where(kl > self.desired_kl * 2.0, slower, torch.where(small, faster, rate))
    )

  def state_dict(self) -> dict[str, Any]:
    """All that training needs to go on; network names are rsl_rl's."""
    return super().save()

  def load_state_dict(self, state: Mapping[str, Any]) -> None:
    """Restore `state_dict`; before anything is recorded, since Adam's state moves."""
    self.actor.load_state_dict(state["actor_state_dict"])
    self.critic.load_state_dict(state["critic_state_dict"])
    flags = {
      key: self.optimizer.param_groups[0][key] for key in ("capturable", "fused")
    }
    self.optimizer.load_state_dict(state["optimizer_state_dict"])
    group = self.optimizer.param_groups[0]
    self.learning_rate.copy_(torch.as_tensor(group["lr"]))
    # The rate must stay the tensor that is adapted, and the flags this device's.
    group.update(flags, lr=self.learning_rate)

  def save(self) -> dict[str, Any]:
    """rsl_rl's name for `state_dict`."""
    return self.state_dict()

  def load(self, loaded_dict: dict, load_cfg: dict | None, strict: bool) -> bool:
    """rsl_rl's name for `load_state_dict`; partial loading is not supported."""
    if load_cfg is not None or not strict:
      raise ValueError("decap loads whole checkpoints; load_cfg must be None.")
    self.load_state_dict(loaded_dict)
    return True

  # Private.

  @torch.no_grad()
  def _accumulate(self, name: str, value: Tensor) -> None:
    if name not in self._sums:
      self._sums[name] = torch.zeros_like(value)
    self._sums[name].add_(value)


def _refuse(
  models: Models, storage: RolloutStorage, cfg: PpoCfg, unsupported: Mapping[str, Any]
) -> None:
  """Raise for what rsl_rl's PPO can do and this one cannot."""
  features = {
    "rnd_cfg": "Random network distillation",
    "symmetry_cfg": "Symmetry augmentation",
    "multi_gpu_cfg": "Multi-GPU training",
  }
  for name, value in unsupported.items():
    if name not in features:
      raise TypeError(f"PPO has no option {name!r}.")
    if value is not None:
      raise ValueError(f"{features[name]} is not supported by decap's PPO.")
  if models.actor.is_recurrent or models.critic.is_recurrent:
    raise ValueError("Recurrent policies are not supported by decap's PPO.")
  samples = storage.num_steps * storage.num_envs
  if samples < cfg.num_mini_batches:
    raise ValueError(
      f"{samples} samples per iteration are too few for {cfg.num_mini_batches} "
      "mini-batches."
    )
