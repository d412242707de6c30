"""Networks: rsl_rl's, made free of host syncs and fit for CUDA graphs."""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rsl_rl.models import MLPModel
from rsl_rl.modules import EmpiricalNormalization
from rsl_rl.modules.distribution import GaussianDistribution
from torch import Tensor, nn

from decap import collective
from decap.rl import gaussian
from decap.rl.config import PolicyCfg


class Gaussian(GaussianDistribution):
  """rsl_rl's Gaussian with one initial σ per action, sampled without a host sync.

  The network's outputs are multiplied by a gain proportional to the initial σ: Adam
  moves all outputs alike, and an action with little noise must move as much less, or
  its share of the KL divergence, (Δμ/σ)², holds the learning rate of all others down.
  """

  gain: Tensor
  largest: Tensor | None
  _moments: tuple[Tensor, Tensor]

  def __init__(
    self,
    output_dim: int,
    init_std: Sequence[float],
    std_growth: float | None = None,
    **kwargs,
  ) -> None:
    super().__init__(output_dim, **kwargs)
    std = torch.tensor(init_std, dtype=torch.get_default_dtype())
    parameter = self.std_param if self.std_type == "scalar" else self.log_std_param
    with torch.no_grad():
      parameter.copy_(std if self.std_type == "scalar" else std.log())
    largest = None if std_growth is None else parameter.detach() + math.log(std_growth)
    if largest is not None and self.std_type == "scalar":
      largest = std * std_growth
    self.register_buffer("largest", largest, persistent=False)
    gain = std / std.max()
    # With equal noise there is none, and the weights are rsl_rl's, name for name.
    self.register_buffer("gain", gain, persistent=bool((gain < 1.0).any()))

  @property
  def current_std(self) -> Tensor:
    """Standard deviation of each action [A], whatever the last observation."""
    return self._clamped_std().detach()

  @property
  def mean(self) -> Tensor:
    return self._moments[0]

  @property
  def std(self) -> Tensor:
    return self._moments[1].expand_as(self.mean)

  @property
  def entropy(self) -> Tensor:
    return gaussian.entropy(self._moments[1]).expand(self.mean.shape[:-1])

  def moments(self, mlp_output: Tensor) -> tuple[Tensor, Tensor]:
    """Mean [..., A] and standard deviation [A] for the network's output."""
    return mlp_output * self.gain, self._clamped_std()

  def update(self, mlp_output: Tensor) -> None:
    self._moments = self.moments(mlp_output)  # ty: ignore[unresolved-attribute]

  def log_prob(self, outputs: Tensor) -> Tensor:
    return gaussian.log_prob(outputs, *self._moments)

  def deterministic_output(self, mlp_output: Tensor) -> Tensor:
    return mlp_output * self.gain

  def as_deterministic_output_module(self) -> nn.Module:
    return _Gain(self.gain)

  def sample(self) -> Tensor:
    """Sample; `torch.normal` with tensor parameters would wait for the device."""
    mean, std = self._moments
    return (mean + std * torch.randn_like(mean)).detach()

  def _clamped_std(self) -> Tensor:
    if self.std_type == "scalar":
      return self.std_param.clamp(*self.std_range)
    return self.log_std_param.clamp(*self.log_std_range).exp()

  @torch.no_grad()
  def project(self) -> None:
    """Put σ back to its largest value after a step of the optimiser.

    Clamped only where it is used, a parameter beyond would have no gradient to return.
    """
    if self.largest is not None:
      parameter = self.std_param if self.std_type == "scalar" else self.log_std_param
      torch.minimum(parameter, self.largest, out=parameter)


class _Gain(nn.Module):
  """The last step of an exported policy."""

  # TorchScript reads no annotation that is a string, as it would be here.
  def __init__(self, gain: Tensor) -> None:
    super().__init__()
    self.register_buffer("gain", gain.clone())

  def forward(self, mlp_output: Tensor) -> Tensor:
    return mlp_output * self.gain


class FrozenNormalization(EmpiricalNormalization):
  """Running normalisation that only moves when told to, once per iteration.

  A normaliser that moves between rollout and update changes the policy behind PPO's
  back: the first mini-batch then already sees a large KL, and on small batches the
  adaptive learning rate falls to its floor and stays there. So the statistics are
  merged after each update, from the whole rollout, and the KL starts at zero. All
  buffers are written in place: a CUDA graph would go on reading a rebound one's old
  memory.
  """

  def update(self, x: Tensor) -> None:
    """Merge the moments of a batch `x` [..., D] (Chan et al., 1979)."""
    x = x.reshape(-1, x.shape[-1])
    mean = x.mean(dim=0, keepdim=True)
    var = x.var(dim=0, unbiased=False, keepdim=True)
    if collective.size() > 1:
      own, mean = mean, collective.mean(mean)
      var = collective.mean(var + (own - mean).square())
    count = x.shape[0] * collective.size()
    self.count.add_(count)
    rate = count / self.count
    shift = mean - self._mean
    self._mean.add_(rate * shift)
    self._var.add_(rate * (var - self._var + shift * (mean - self._mean)))
    self._std.copy_(self._var.sqrt())


_ONEDNN = (
  platform.machine() in ("x86_64", "AMD64")
  and torch.backends.mkldnn.is_available()
  # What torch's compiler calls; it may be gone one day.
  and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
  """x Wᵀ + b [N, D], on an x86 CPU by oneDNN.

  Torch itself asks MKL there, which leaves half of the width of AMD's vector units idle.
  """
  # Of what oneDNN computes nothing can be differentiated once more.
  if _ONEDNN and x.is_cpu and x.dtype == torch.float32 and not torch.is_grad_enabled():
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
  return nn.functional.linear(x, weight, bias)


class _LinearFunction(torch.autograd.Function):
  """x Wᵀ + b, whose bias gradient is a product instead of a sum over rows.

  On a GPU the sum takes several times as long, and there is one per layer and batch.
  """

  @staticmethod
  def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    ctx.save_for_backward(x, weight)
    return linear(x, weight, bias)

  @staticmethod
  def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
    x, weight = ctx.saved_tensors
    rows = grad.new_ones(grad.shape[0])
    return (
      linear(grad, weight.t()) if ctx.needs_input_grad[0] else None,
      linear(grad.t(), x.t()),
      rows @ grad,
    )


class Linear(nn.Linear):
  """torch's layer, faster for batches [N, D], and back through them."""

  def forward(self, x: Tensor) -> Tensor:
    if x.dim() != 2 or torch.onnx.is_in_onnx_export():
      return super().forward(x)
    return _LinearFunction.apply(x, self.weight, self.bias)

  @classmethod
  def like(cls, layer: nn.Linear) -> Linear:
    """A layer with the same parameters."""
    new = cls(layer.in_features, layer.out_features, device="meta")
    new.weight, new.bias = layer.weight, layer.bias
    return new

  def plain(self) -> nn.Linear:
    """torch's own layer with the same parameters."""
    new = nn.Linear(self.in_features, self.out_features, device="meta")
    new.weight, new.bias = self.weight, self.bias
    return new


class Model(MLPModel):
  """rsl_rl's MLP model on plain dictionaries of tensors, with the frozen normaliser.

  Parameter names are rsl_rl's; where noise differs by joint, a gain comes on top. It sees
  the observation group of its name, or the `groups` that stand for it.
  """

  def __init__(
    self,
    obs: Mapping[str, Tensor],
    obs_group: str,
    *args,
    groups: Sequence[str] = (),
    **kwargs,
  ):
    seen = {obs_group: list(groups) or [obs_group]}
    super().__init__(obs, seen, obs_group, *args, **kwargs)  # ty: ignore
    if self.obs_normalization:
      self.obs_normalizer = FrozenNormalization(self.obs_dim)
    for index, layer in enumerate(self.mlp):
      if isinstance(layer, nn.Linear):
        self.mlp[index] = Linear.like(layer)
      elif isinstance(layer, nn.ELU):
        # In place its gradient comes from its result, without exponentials.
        self.mlp[index] = nn.ELU(layer.alpha, inplace=True)

  @property
  def gaussian(self) -> Gaussian:
    """The actor's action distribution."""
    assert isinstance(self.distribution, Gaussian)
    return self.distribution

  @property
  def normaliser_is_new(self) -> bool:
    """Whether there is a normaliser that has seen nothing yet; waits for the device."""
    return self.obs_normalization and int(self.obs_normalizer.count) == 0  # ty: ignore

  def observe(self, obs: Mapping[str, Tensor]) -> Tensor:
    """The normalised network input [..., D]."""
    return self.get_latent(obs)  # ty: ignore[invalid-argument-type]

  def as_jit(self) -> nn.Module:
    """rsl_rl's copy for TorchScript, which cannot read our layers."""
    copy = super().as_jit()
    for index, layer in enumerate(copy.mlp):  # ty: ignore[invalid-argument-type]
      if isinstance(layer, Linear):
        copy.mlp[index] = layer.plain()  # ty: ignore
    return copy


@dataclass
class Models:
  """The networks of one agent."""

  actor: Model
  critic: Model
  cost_critic: Model | None
  """One network with a head per cost; only for methods that weigh costs."""


def build_models(
  cfg: PolicyCfg,
  obs: Mapping[str, Tensor],
  action_names: Sequence[str],
  num_costs: int = 0,
) -> Models:
  """Build actor, critic and, where there are costs, the cost critic."""
  if "actor" not in obs:
    raise ValueError(f"No observation group 'actor' among {sorted(obs)}.")
  distribution_cfg = {
    "class_name": Gaussian,
    "init_std": resolve_init_std(cfg.init_std, action_names),
    "std_type": cfg.std_type,
    "std_range": cfg.std_range,
    "learn_std": cfg.learn_std,
    "std_growth": cfg.std_growth,
  }
  common: dict[str, Any] = {
    "hidden_dims": cfg.hidden_dims,
    "activation": cfg.activation,
    "obs_normalization": cfg.obs_normalization,
  }
  critic_group = "critic" if "critic" in obs else "actor"
  return Models(
    actor=Model(
      obs, "actor", len(action_names), distribution_cfg=distribution_cfg, **common
    ),
    critic=Model(obs, critic_group, 1, **common),
    cost_critic=Model(obs, critic_group, num_costs, **common) if num_costs else None,
  )


def resolve_init_std(
  init_std: float | Mapping[str, float], action_names: Sequence[str]
) -> list[float]:
  """One initial σ per action, from one value or from name patterns (full match)."""
  by_pattern = (
    {".*": float(init_std)} if isinstance(init_std, (int, float)) else dict(init_std)
  )
  stds = []
  for pattern, std in by_pattern.items():
    if std <= 0.0:
      raise ValueError(f"init_std of {pattern!r} is {std}; it must be positive.")
    if not any(re.fullmatch(pattern, name) for name in action_names):
      raise ValueError(
        f"init_std pattern {pattern!r} matches no action of {list(action_names)}."
      )
  for name in action_names:
    matches = [p for p in by_pattern if re.fullmatch(p, name)]
    if len(matches) != 1:
      raise ValueError(
        f"Action {name!r} must match exactly one init_std pattern, not {matches}."
      )
    stds.append(by_pattern[matches[0]])
  return stds


def deterministic_weights(actor: Mapping[str, Tensor]) -> dict[str, Tensor]:
  """An actor's normaliser and layers, with the distribution's gain in the last."""
  weights = {k: v for k, v in actor.items() if not k.startswith("distribution.")}
  gain = actor.get("distribution.gain")
  if gain is None:  # rsl_rl's own
    return weights
  bias = [name for name in weights if name.endswith(".bias")][-1]
  weight = bias.replace(".bias", ".weight")
  weights[weight] = weights[weight] * gain.unsqueeze(1)
  weights[bias] = weights[bias] * gain
  return weights


def policy_from_state(state: dict[str, Any], device: str = "cpu") -> Model:
  """The deterministic policy of a checkpoint: call it with a dict of observations.

  The network's shape comes from its weights, so no config is needed.

  Args:
    state: What `decap.rl.checkpoint.load` returns.
  """
  weights = deterministic_weights(state["actor_state_dict"])
  layers = [value for name, value in weights.items() if name.endswith(".weight")]
  model = Model(
    {"actor": torch.zeros(1, layers[0].shape[1])},
    "actor",
    layers[-1].shape[0],
    hidden_dims=[layer.shape[0] for layer in layers[:-1]],
    activation=state["policy"]["network"]["activation"],
    obs_normalization="obs_normalizer._mean" in weights,
  )
  model.load_state_dict(weights)
  return model.to(device).eval()
