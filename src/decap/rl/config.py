"""Configs of the agents. Free of torch, so that the command line reads them fast."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

# fmt: off
Activation = Literal[
  "elu", "selu", "relu", "crelu", "lrelu", "tanh",
  "sigmoid", "softplus", "gelu", "swish", "mish", "identity",
]
# fmt: on


@dataclass
class PolicyCfg:
  """Networks of actor and critics, and the actor's exploration noise."""

  hidden_dims: tuple[int, ...] = (512, 256, 128)
  """Widths of the hidden layers of actor, critic and cost critic."""
  activation: Activation = "elu"
  """Activation between the layers, by rsl_rl's name for it."""
  init_std: float | dict[str, float] = 1.0
  """Initial standard deviation of the actions: one value, or one per joint-name
  pattern. Exploration that is decoupled like the limits keeps δ̄ away from saturation
  at the start."""
  std_type: Literal["scalar", "log"] = "scalar"
  """What is learnt: σ itself, or log σ, whose steps are relative to σ."""
  std_range: tuple[float, float] = (1e-6, 1e6)
  """The standard deviation is clamped to this range."""
  learn_std: bool = True
  """Whether σ is learnt or stays at `init_std`."""
  obs_normalization: bool = True
  """Whether observations are normalised by their running mean and variance."""
  std_growth: float | None = None
  """σ stays below this multiple of its initial value. None: it may grow."""

  def __post_init__(self) -> None:
    stds = (
      self.init_std.values() if isinstance(self.init_std, dict) else [self.init_std]
    )
    if not all(0.0 < std < math.inf for std in stds):
      raise ValueError(f"init_std must be above 0 and finite, not {self.init_std}.")
    if not self.hidden_dims or min(self.hidden_dims) < 1:
      raise ValueError(
        f"hidden_dims must be one or more widths above 0, not {self.hidden_dims}."
      )


@dataclass
class FeasibilityCfg:
  """How much of the constraints is in force while a policy does not comply yet."""

  budget: float = 0.005
  """Largest mean termination probability over the population, at first; its inverse is
  the horizon in steps that violations leave."""
  budget_range: tuple[float, float] = (4e-4, 1.0)
  """What the budget may become."""
  target: float | None = 0.85
  """The share of every command, and of staying upright, that robots should achieve: the
  budget grows above it and shrinks below. None: the budget stays."""
  keep: float = 0.96
  """Where less was ever achieved, this share of the best is the target."""
  fade: float = 1.0
  """What is left of the best after an iteration; below 1 a seed may give up in time what
  it once did."""
  tolerance: float = 0.05
  """Distance from the target at which the budget moves at its full rate."""
  rate: float = 0.01
  """Largest relative growth of the budget per iteration; it shrinks three times as
  fast."""
  quantile: float | None = 0.98
  """Limits start at this quantile of the policy's own quantities and shrink to ε, in
  (0, 1]. None: limits are ε from the start."""
  shrink: float = 0.9
  """Limit over that quantile, in (0, 1]; below 1 it always pulls."""
  decay: float = 0.99
  """Decay of the running averages per control step, in [0, 1)."""

  def __post_init__(self) -> None:
    if not 0.0 <= self.decay < 1.0:
      raise ValueError(f"decay must be in [0, 1), got {self.decay}.")
    low, high = self.budget_range
    if not 0.0 < low <= self.budget <= high <= 1.0:
      raise ValueError(
        f"budget_range must be within (0, 1] around the budget {self.budget}, got "
        f"{self.budget_range}."
      )
    for name in ("target", "keep", "fade", "quantile", "shrink"):
      value = getattr(self, name)
      if value is not None and not 0.0 < value <= 1.0:
        raise ValueError(f"{name} must be in (0, 1], got {value}.")
    _require_above(self, 0, "tolerance", "rate")


@dataclass
class PpoCfg:
  """PPO, with or without returns that end early where constraints are violated."""

  class_name: Literal["ppo"] = "ppo"
  """Which algorithm this config belongs to."""
  learning_rate: float = 1e-3
  """Learning rate of Adam; where the adaptive schedule starts."""
  schedule: Literal["adaptive", "fixed"] = "adaptive"
  """Adaptive: the rate follows `desired_kl` as in rsl_rl, between 1e-5 and 1e-2."""
  desired_kl: float = 0.01
  """The KL divergence per update that the adaptive schedule aims at."""
  num_learning_epochs: int = 5
  """How often each sample is used."""
  num_mini_batches: int = 4
  """Mini-batches per epoch."""
  clip_param: float = 0.2
  """Range of the probability ratio, and of the value change, beyond which neither
  is rewarded."""
  gamma: float = 0.99
  """Discount factor."""
  lam: float = 0.95
  """λ of generalised advantage estimation."""
  entropy_coef: float = 0.01
  """Weight of the entropy bonus, until robots stay on their feet."""
  entropy_final: float | None = None
  """What it falls to from then on, over `entropy_iterations`. None: it stays."""
  entropy_iterations: int = 400
  """Iterations that the fall takes."""
  value_loss_coef: float = 1.0
  """Weight of the value loss."""
  use_clipped_value_loss: bool = True
  """Whether the value loss is clipped as the policy's is."""
  max_grad_norm: float = 1.0
  """Gradient norm, per network, above which gradients are scaled down."""
  survival: bool = False
  """Whether the return continues past step t only with probability 1 − δ̄_t."""
  reward_rule: Literal["raw", "clip", "scale-clip"] = "raw"
  """What happens to the reward first. clip: max(r, 0), since dying pays wherever
  values are negative. scale-clip: CaT's max(r (1 − δ̄), 0)."""
  feasibility: FeasibilityCfg | None = None
  """Aid for returns that end early, while the policy does not comply."""
  mirror_loss_coef: float = 0.0
  """Weight of the mean squared distance, in σ, between what the policy does in a mirrored
  situation and the mirror image of what it does in the situation itself. It comes in as
  the entropy bonus goes: from the start on, it favours hopping on both feet."""
  p_max_ramp: tuple[float, float] | None = None
  """Share of p_max that is in force at the start, and share of the run after which all
  of it is; in between the expected lifetime 1/p falls linearly. None: all of it, always."""
  rate_final: float = 1.0
  """Of a fixed schedule: share of the learning rate that is left at the end of the run;
  it falls linearly from the middle on."""

  def __post_init__(self) -> None:
    _require_finite(self)
    _require_at_least(self, 1, "num_learning_epochs", "num_mini_batches")
    _require_above(self, 0, "learning_rate", "desired_kl", "clip_param")
    _require_above(self, 0, "max_grad_norm", "rate_final")
    _require_at_least(self, 0, "entropy_coef", "mirror_loss_coef")
    _require_at_least(self, 1, "entropy_iterations")
    if self.p_max_ramp and not all(0.0 < share <= 1.0 for share in self.p_max_ramp):
      raise ValueError(f"p_max_ramp must be shares in (0, 1], not {self.p_max_ramp}.")
    for name in ("gamma", "lam"):
      if not 0.0 <= getattr(self, name) <= 1.0:
        raise ValueError(f"{name} must be in [0, 1], not {getattr(self, name)}.")


@dataclass
class LcpCfg(PpoCfg):
  """PPO with a penalty on the policy's gradient (Lipschitz-constrained policies)."""

  class_name: Literal["lcp"] = "lcp"  # ty: ignore[invalid-assignment]
  gradient_penalty_coef: float = 0.0005
  """Weight of the mean ‖∇_obs log π(a | obs)‖². Comparable between runs only at the
  same σ, since the gradient grows as 1/σ². A quarter of the published 0.002 learns
  fastest of four (docs/paper.md)."""

  def __post_init__(self) -> None:
    super().__post_init__()
    _require_at_least(self, 0, "gradient_penalty_coef")


@dataclass
class CostPpoCfg(PpoCfg):
  """What methods with cost critics share."""

  cost_limit: float = 0.01
  """D: the share of steps at which each cost may occur. 1 %: what the paper's baselines
  reach, so a limit that this method can be expected to meet."""
  costs: Literal["rows", "terms"] = "rows"
  """What has a cost of its own: each quantity in each body group, or each quantity over
  the whole body."""
  cost_value_loss_coef: float = 1.0
  """Weight of the cost critic's loss."""

  def __post_init__(self) -> None:
    super().__post_init__()
    _require_at_least(self, 0, "cost_limit")
    if self.gamma == 1.0:
      raise ValueError("gamma must be below 1 where discounted costs have a limit.")


@dataclass
class NIpoCfg(CostPpoCfg):
  """Interior-point policy optimisation with adaptive thresholds."""

  class_name: Literal["n-ipo"] = "n-ipo"  # ty: ignore[invalid-assignment]
  barrier_t: float = 8000.0
  """t: sharpness of the log barrier, whose weight is 1/t. Of six values, from the published 50
  to this, only the last walks (docs/paper.md)."""
  threshold_margin: float = 0.02
  """α: an infeasible cost's threshold is this share of the limit above the cost."""

  def __post_init__(self) -> None:
    super().__post_init__()
    _require_above(self, 0, "cost_limit", "barrier_t", "threshold_margin")


@dataclass
class LagrangianCfg(CostPpoCfg):
  """PPO-Lagrangian with one multiplier per cost."""

  class_name: Literal["lagrangian"] = "lagrangian"  # ty: ignore[invalid-assignment]
  multiplier_init: float = 0.0
  """Every multiplier's first value."""
  multiplier_lr: float = 1e-4
  """Adam's learning rate for the multipliers, which move once per iteration. The
  slowest of six: with it robots move most (docs/paper.md)."""
  multiplier_max: float = 100.0
  """Upper bound of each multiplier."""

  def __post_init__(self) -> None:
    super().__post_init__()
    _require_at_least(self, 0, "multiplier_init")
    _require_above(self, 0, "multiplier_lr", "multiplier_max")


@dataclass
class AgentCfg:
  """One training run: the algorithm, its networks and the loop around them."""

  seed: int = 1
  """Seed of the networks, the environment and the exploration."""
  iterations: int = 3000
  """Number of rollouts, each followed by one update."""
  num_steps_per_env: int = 24
  """Steps of each environment per iteration."""
  policy: PolicyCfg = field(default_factory=PolicyCfg)
  """Networks and exploration noise."""
  algorithm: PpoCfg = field(default_factory=PpoCfg)
  """The algorithm; which one is decided by the config's class."""
  save_interval: int = 100
  """Iterations between checkpoints."""
  save_every_s: float = 120.0
  """Seconds after which a checkpoint is written anyway: a kill loses no more."""
  keep_checkpoints: int = 5
  """How many of the newest checkpoints are kept, beside the best one."""
  eval_interval: int = 100
  """Iterations between short evaluations of the deterministic policy; 0: none. Those
  that would take more than 2 % of the training time are left out."""
  logger: Literal["tensorboard", "wandb"] = "tensorboard"
  """Where the curves go; wandb writes TensorBoard events too."""
  wandb_project: str = "decap"
  """Project name on W&B."""

  def __post_init__(self) -> None:
    _require_at_least(self, 1, "iterations", "num_steps_per_env", "save_interval")
    _require_at_least(self, 1, "keep_checkpoints")
    _require_at_least(self, 0, "eval_interval")
    _require_above(self, 0, "save_every_s")


def _require_finite(cfg: object) -> None:
  for name, value in vars(cfg).items():
    if isinstance(value, float) and not math.isfinite(value):
      raise ValueError(f"{name} must be finite, not {value}.")


def _require_at_least(cfg: object, least: float, *names: str) -> None:
  for name in names:
    if not getattr(cfg, name) >= least:
      raise ValueError(f"{name} must be at least {least}, not {getattr(cfg, name)}.")


def _require_above(cfg: object, bound: float, *names: str) -> None:
  for name in names:
    if not getattr(cfg, name) > bound:
      raise ValueError(f"{name} must be above {bound}, not {getattr(cfg, name)}.")
