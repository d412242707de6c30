"""PPO on rsl_rl with hooks, free of host syncs and fit for CUDA graphs.

A method is a subclass that overrides a hook or two: `reward`, `policy_input`,
`policy_advantages`, `losses`, `loss_weights`. Nothing in here branches on the value of
a tensor, reads one back to the host or rebinds a buffer, so that rollout step and
update can be recorded once and replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import rsl_rl.algorithms
import torch
from torch import Tensor, nn

from decap import collective
from decap.constraints.composition import Composition
from decap.rl import gaussian, losses, optimizer, schedules
from decap.rl.config import PpoCfg
from decap.rl.feasibility import Feasibility
from decap.rl.losses import NetworkOutputs
from decap.rl.modules import Model, Models
from decap.rl.progress import Progress
from decap.rl.returns import standardise, survival_gae
from decap.rl.storage import Batch, RolloutStorage


class PPO(rsl_rl.algorithms.PPO):
  """rsl_rl's PPO, verb for verb, with survival-adjusted returns."""

  actor: Model
  critic: Model
  storage: RolloutStorage
  learning_rate: Tensor

  def __init__(
    self,
    models: Models,
    storage: RolloutStorage,
    cfg: PpoCfg,
    device: str,
    cost_names: Sequence[str] = (),
    action_groups: Mapping[str, Sequence[int]] | None = None,
    progress_names: Sequence[str] = (),
    feasibility: Feasibility | None = None,
    mirrors: Mapping[str, Tensor] | None = None,
    composition: Composition | None = None,
  ) -> None:
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
    self.networks: dict[str, Model] = {"actor": self.actor, "critic": self.critic}
    if models.cost_critic is not None:
      self.networks["cost_critic"] = models.cost_critic.to(device)
    self.learning_rate = torch.tensor(cfg.learning_rate, device=device)
    parameters = chain.from_iterable(net.parameters() for net in self.networks.values())
    self.optimizer = optimizer.make_adam(parameters, self.learning_rate)
    self.action_groups = {
      name: torch.tensor(list(ids), device=device)
      for name, ids in (action_groups or {}).items()
    }
    fade = 1.0 if feasibility is None else feasibility.cfg.fade
    self.progress = Progress(progress_names, device, fade)
    self.feasibility = feasibility
    self._p_max = composition.p_max if composition else torch.zeros(0)
    self._whole_p_max = self._p_max.clone()
    self.set_p_max(0.0)
    self.mirrors = {name: m.to(device) for name, m in (mirrors or {}).items()}
    # The δ̄ that is applied, and steps: sums over an iteration.
    self.applied = torch.zeros(2, device=device)
    weights = self.loss_weights()
    self._loss_names = tuple(weights)
    self._loss_weights = torch.tensor(list(weights.values()), device=device)
    self._loss_sums = torch.zeros_like(self._loss_weights)
    self._weigh()
    # Of the policy that acted [A]: the same for all samples.
    self._old_std = torch.zeros_like(self.std)
    self._kl_sum = torch.zeros_like(self.std)  # [A]
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

    `extras` may hold "time_outs" [B], "fell" [B] (else what ends without a time-out),
    "progress" and "constraints", as ConstrainedEnv's does. A timed-out step gains
    γ (1 − δ̄) V(s_t), after any clipping: the state that follows no longer exists.
    `obs` is rsl_rl's argument; the next `act` stores it.
    """
    self.hear(dones, extras)
    delta = torch.zeros_like(rewards)
    if self.cfg.survival or self.cfg.reward_rule == "scale-clip":
      delta = self.termination(extras["constraints"]).to(rewards.dtype)
    fell = extras.get("fell")
    if fell is None:
      fell = dones.bool() & ~extras.get("time_outs", torch.zeros_like(dones)).bool()
    self.progress.hear(extras.get("progress"), fell)
    rewards = self.reward(rewards, delta)
    delta = delta if self.cfg.survival else torch.zeros_like(delta)
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

  def begin_update(self) -> None:
    """Draw the permutation that all epochs share."""
    self.storage.shuffle()

  def learn(self) -> dict[str, Tensor]:
    """All mini-batches of the drawn permutation, several times over."""
    self._loss_sums.zero_()
    self._kl_sum.zero_()
    self._old_std.copy_(self.std)
    samples = self.samples()
    for _ in range(self.num_learning_epochs):
      for index in range(self.num_mini_batches):
        self.update_mini_batch(samples.part(index, self.num_mini_batches))
    return self.end_update()

  @torch.no_grad()
  def samples(self) -> Batch:
    """The rollout in the drawn order, observations normalised.

    Once per update, since permutation and normalisers stay the same throughout.
    """
    observe = {name: net.observe for name, net in self.networks.items()}
    if self.mirrors:
      mirror = self.mirrors["actor"]
      observe["mirror"] = lambda obs: self.actor.observe(
        {"actor": obs["actor"] @ mirror}
      )
    return self.storage.gather(self.storage.indices, observe)

  def update_mini_batch(self, batch: Batch) -> None:
    """One step of the optimiser."""
    evaluation = self.evaluate(batch)
    with torch.no_grad():
      kl = gaussian.kl_divergence(
        batch.mean, self._old_std, evaluation.mean, evaluation.std
      )  # [A]
    by_name = self.losses(batch, evaluation)
    terms = torch.stack([by_name[name] for name in self._loss_names])
    # Freed, so that backward writes gradients instead of adding them to zeros; those of
    # a recorded update live in the recording's own memory.
    self.optimizer.zero_grad()
    (terms * self._loss_weights).sum().backward()
    parameters = [p for net in self.networks.values() for p in net.parameters()]
    # The divergence goes along: its rate is for the step below.
    collective.average([kl, *(p.grad for p in parameters if p.grad is not None)])
    self.adapt_learning_rate(kl.sum())
    for net in self.networks.values():
      nn.utils.clip_grad_norm_(net.parameters(), self.max_grad_norm)
    self.optimizer.step()
    self.actor.gaussian.project()
    self._kl_sum.add_(kl)
    self._loss_sums.add_(terms.detach())

  def end_update(self) -> dict[str, Tensor]:
    """Move the normalisers, empty the storage and return the means of the update."""
    self.fit_normalisers(self.networks.values())
    return self.metrics()

  def fit_normalisers(self, networks: Iterable[Model]) -> None:
    """Take the rollout into the networks' normalisers, and empty the storage."""
    for net in networks:
      net.update_normalization(self.storage.observations)  # ty: ignore[invalid-argument-type]
    self.storage.clear()

  def between_iterations(self, share: float) -> None:
    """What is decided once per rollout, outside of what is recorded.

    Args:
      share: How much of the run is done, in [0, 1].
    """
    self.progress.between_iterations()
    if self.feasibility is not None:
      self.feasibility.between_iterations(self.progress)
    self._weigh()
    self.set_p_max(share)
    if self.cfg.schedule == "fixed":
      rate = schedules.fixed_rate(self.cfg.learning_rate, self.cfg.rate_final, share)
      self.learning_rate.fill_(rate)

  def set_p_max(self, share: float) -> None:
    """What is in force of p_max when this share of the run is done."""
    if ramp := self.cfg.p_max_ramp:
      self._p_max.copy_(schedules.ramped(self._whole_p_max, ramp, share))

  # Hooks.

  def hear(self, dones: Tensor, extras: Mapping[str, Any]) -> None:
    """Take in what else an environment reports of a step."""

  def termination(self, constraints: Mapping[str, Any]) -> Tensor:
    """The δ̄ [B] that is applied, from what the environment reports."""
    delta = constraints["delta"]
    applied = delta
    if self.feasibility is not None:
      applied = self.feasibility.apply(constraints["quantities"], delta)
    mean = applied.mean()
    self.applied.add_(torch.stack((mean, torch.ones_like(mean))))
    return applied

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
    return batch.inputs["actor"]

  def loss_weights(self) -> dict[str, float]:
    """What each term of `losses` counts."""
    return {
      "surrogate": 1.0,
      "value": self.cfg.value_loss_coef,
      "entropy": -self.cfg.entropy_coef,
      **({"mirror": self.cfg.mirror_loss_coef} if self.mirrors else {}),
    }

  def losses(self, batch: Batch, evaluation: NetworkOutputs) -> dict[str, Tensor]:
    """Terms of the loss by name."""
    clip = self.clip_param
    old_values = batch.values if self.use_clipped_value_loss else None
    out = {
      "surrogate": losses.surrogate(batch.advantages, evaluation.ratio, clip),
      "value": losses.value(evaluation.values, batch.returns, clip, old_values),
      "entropy": evaluation.entropy,
    }
    if self.mirrors:
      out["mirror"] = self.mirror_loss(batch, evaluation)
    return out

  def mirror_loss(self, batch: Batch, evaluation: NetworkOutputs) -> Tensor:
    """How far the policy is from its own mirror image, in squared σ per action. # []"""
    seen = batch.inputs["mirror"]
    mean, std = self.actor.gaussian.moments(self.actor.mlp(seen))
    return losses.mirror(mean, evaluation.mean @ self.mirrors["actions"], std)

  def metrics(self) -> dict[str, Tensor]:
    """Means over the update's mini-batches, and the state that they led to."""
    num_updates = self.num_learning_epochs * self.num_mini_batches
    means, kl, std = self._loss_sums / num_updates, self._kl_sum / num_updates, self.std
    out = {f"Loss/{n}": x for n, x in zip(self._loss_names, means, strict=True)}
    out |= self.progress.metrics()
    if self.cfg.survival:
      total, steps = self.applied
      out["Constraint/delta_applied"] = total / steps.clamp(min=1.0)
      self.applied.zero_()
    if self.feasibility is not None:
      out |= self.feasibility.metrics()
    out["Policy/entropy_coef"] = -self._weight("entropy")
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

  def _weigh(self) -> None:
    """Weights that change as robots settle: less entropy, more symmetry."""
    cfg = self.cfg
    settled = (self.progress.steady_iterations / cfg.entropy_iterations).clamp(max=1.0)
    if cfg.entropy_final is not None and cfg.entropy_coef > 0.0:
      change = torch.pow(cfg.entropy_final / cfg.entropy_coef, settled)
      self._weight("entropy").copy_(-cfg.entropy_coef * change)
    if self.mirrors:
      self._weight("mirror").copy_(cfg.mirror_loss_coef * settled)

  def _weight(self, name: str) -> Tensor:
    """A view of what a term of the loss counts. # []"""
    return self._loss_weights[self._loss_names.index(name)]

  def evaluate(self, batch: Batch) -> NetworkOutputs:
    """Run the current networks on a mini-batch."""
    policy_input = self.policy_input(batch)
    mean, std = self.actor.gaussian.moments(self.actor.mlp(policy_input))
    log_prob = gaussian.log_prob(batch.actions, mean, std)
    return NetworkOutputs(
      policy_input=policy_input,
      log_prob=log_prob,
      ratio=(log_prob - batch.log_prob).exp(),
      entropy=gaussian.entropy(std),
      mean=mean,
      std=std,
      values=self.critic.mlp(batch.inputs["critic"]).squeeze(-1),
    )

  def adapt_learning_rate(self, kl: Tensor) -> None:
    """rsl_rl's rule: slower above twice the desired KL, faster below half of it."""
    if self.schedule != "fixed":
      rate = schedules.adaptive_rate(self.learning_rate, kl, self.desired_kl)
      self.learning_rate.copy_(rate)

  def state_dict(self) -> dict[str, Any]:
    """All that training needs to go on; network names are rsl_rl's."""
    state = super().save() | {"progress": self.progress.state_dict()}
    if self.feasibility is not None:
      state["feasibility"] = self.feasibility.state_dict()
    return state

  def load_state_dict(self, state: Mapping[str, Any]) -> None:
    """Restore `state_dict`; before anything is recorded, since Adam's state moves."""
    self.actor.load_state_dict(state["actor_state_dict"])
    self.critic.load_state_dict(state["critic_state_dict"])
    optimizer.restore(self.optimizer, self.learning_rate, state["optimizer_state_dict"])
    self.progress.load_state_dict(state["progress"])
    self._weigh()
    if self.feasibility is not None:
      self.feasibility.load_state_dict(state["feasibility"])

  def save(self) -> dict[str, Any]:
    """rsl_rl's name for `state_dict`."""
    return self.state_dict()

  def load(self, loaded_dict: dict, load_cfg: dict | None, strict: bool) -> bool:
    """rsl_rl's name for `load_state_dict`; partial loading is not supported."""
    if load_cfg is not None or not strict:
      raise ValueError("decap loads whole checkpoints; load_cfg must be None.")
    self.load_state_dict(loaded_dict)
    return True
