"""DeCap as an algorithm of rsl_rl's own `OnPolicyRunner`.

With ``algorithm["class_name"] = "decap.rl.stock_runner:SurvivalPPO"`` the runner trains
in any `VecEnv` whose extras hold "constraints" at every step, and which has the
`Composition` that reports them as its own ``composition`` (or its constraint manager's).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from rsl_rl.env import VecEnv
from rsl_rl.models import MLPModel
from rsl_rl.modules.distribution import GaussianDistribution
from rsl_rl.utils import resolve_callable, resolve_obs_groups
from torch import Tensor

from decap.constraints.composition import Composition
from decap.errors import UserError, check_known
from decap.rl.build import require_samples
from decap.rl.config import FeasibilityCfg, PpoCfg
from decap.rl.feasibility import Feasibility
from decap.rl.modules import Gaussian, Model, Models, resolve_init_std
from decap.rl.ppo import PPO
from decap.rl.storage import RolloutStorage

ONLY = {
  "multi_gpu": None,
  "torch_compile_mode": None,
  "rnd_cfg": None,
  "symmetry_cfg": None,
  "share_cnn_encoders": False,
  "normalize_advantage_per_mini_batch": False,
  "optimizer": "adam",
  "mirror_loss_coef": 0.0,
}
"""Values of runner and algorithm of which there is one only here."""


class SurvivalPPO(PPO):
  """Our PPO in rsl_rl's loop: built from its config, and told when an iteration ends."""

  iteration = 0
  planned = math.inf
  """Iterations of the run, where its config says so."""
  env: Any
  violations: Tensor
  """Sum over an iteration's steps of the share of robots above each row's limit. # [K]"""

  @classmethod
  def construct_algorithm(
    cls, obs: Mapping[str, Tensor], env: VecEnv, cfg: dict[str, Any], device: str
  ) -> SurvivalPPO:
    """What the runner calls, with its whole config.

    ``cfg["algorithm"]`` takes the fields of `PpoCfg`, which have rsl_rl's names where both
    have them; `survival`, `reward_rule` and `feasibility` are DeCap's unless given. With
    ``action_names`` the actor's ``init_std`` may be one per name pattern.
    """
    source = getattr(env, "unwrapped", env)
    composition = _composition(source, device)
    progress_names = tuple(getattr(source, "progress_names", ()))
    algorithm, names = _algorithm(cfg, guarded=bool(progress_names))
    names = names or [f"action_{i}" for i in range(env.num_actions)]
    if len(names) != env.num_actions:
      raise UserError(f"{env.num_actions} actions, but {len(names)} action_names.")
    cfg["algorithm"]["rnd_cfg"] = None  # The runner and its logger read it.
    sets = ["actor", "critic"]
    cfg["obs_groups"] = resolve_obs_groups(obs, cfg.get("obs_groups") or {}, sets)  # ty: ignore
    actor, critic = (cfg["obs_groups"][name] for name in sets)
    models = Models(
      Model(obs, "actor", len(names), groups=actor, **_network(cfg["actor"], names)),
      Model(obs, "critic", 1, groups=critic, **_network(cfg["critic"])),
      cost_critic=None,
    )
    seen = {name: obs[name] for name in (*actor, *critic)}
    size = cfg["num_steps_per_env"], env.num_envs
    require_samples(math.prod(size), algorithm)
    aid = algorithm.feasibility
    alg = cls(
      models,
      RolloutStorage(*size, seen, len(names), num_costs=0, device=device),
      algorithm,
      device,
      cost_names=composition.row_names,
      progress_names=progress_names,
      feasibility=None if aid is None else Feasibility(aid, composition),
      composition=composition,
    )
    alg.env, alg.planned = source, cfg.get("max_iterations", math.inf)
    alg.violations = torch.zeros(len(composition.rows), device=device)
    return alg

  def update(self) -> dict[str, float]:  # ty: ignore
    """Train on the rollout, and decide what is decided once per iteration.

    The first rollout only fits the normalisers, as in our own loop.
    """
    # Later none is new, and to ask would wait for the device.
    nets = self.networks.values() if self.iteration == 0 else ()
    if new := [net for net in nets if net.normaliser_is_new]:
      self.fit_normalisers(new)
      self.applied.zero_()
      self.violations.zero_()
      self._flush()
      return {}
    log = super().update()
    self.iteration += 1
    self.between_iterations(self.share)
    # One copy to the host for all.
    values = torch.stack([value.float() for value in log.values()]).tolist()
    out = dict(zip((name.removeprefix("Loss/") for name in log), values, strict=True))
    with torch.inference_mode():  # As in the rollout, where it made its tensors.
      getattr(self.env, "between_iterations", dict)()  # `ConstrainedEnv` expects it.
    return out | self._flush()

  @torch.inference_mode()
  def _flush(self) -> dict[str, float]:
    """The log of an environment that keeps one, as `ConstrainedEnv` does."""
    return getattr(self.env, "flush_log", dict)()

  def hear(self, dones: Tensor, extras: Mapping[str, Any]) -> None:
    if "constraints" not in extras:
      raise UserError(f"{type(self.env).__name__} reports no extras['constraints'].")
    self.violations.add_(extras["constraints"]["costs"].mean(0))

  def metrics(self) -> dict[str, Tensor]:
    shares = self.violations / self.storage.num_steps
    self.violations.zero_()
    names = (f"Constraint/{row}/violation" for row in self.cost_names)
    return super().metrics() | dict(zip(names, shares, strict=True))

  @property
  def share(self) -> float:
    """How much of the run is done; all of it in what is added to a finished run."""
    return min(1.0, self.iteration / self.planned)

  def state_dict(self) -> dict[str, Any]:
    return super().state_dict() | {"iteration": self.iteration}

  def load_state_dict(self, state: Mapping[str, Any]) -> None:
    super().load_state_dict(state)
    self.iteration = state["iteration"]
    self.set_p_max(self.share)


def _composition(env: object, device: str) -> Composition:
  found = getattr(getattr(env, "constraint_manager", env), "composition", None)
  if not isinstance(found, Composition):
    raise UserError(
      f"{type(env).__name__} has no `composition`, the decap.constraints.Composition "
      "of what it reports."
    )
  if not same_device(found.limit.device, torch.device(device)):
    raise UserError(f"The limits are on {found.limit.device}, the agent on {device}.")
  return found


def same_device(
  a: torch.device,
  b: torch.device,
  current: Callable[[], int] = torch.cuda.current_device,
) -> bool:
  """Whether two names are of one device; a GPU without a number is the current one."""
  if a.type != b.type or a.type != "cuda":
    return a.type == b.type
  one, other = (current() if d.index is None else d.index for d in (a, b))
  return one == other


def _algorithm(cfg: Mapping[str, Any], guarded: bool) -> tuple[PpoCfg, list[str]]:
  """Our config, DeCap's where nothing is said, and the names of the actions.

  Unless `guarded` by what the environment reports of the task, the budget of violations
  stays: moved by who keeps on their feet, it would end in robots that stand still.
  """
  runner: dict[str, Any] = {
    name: cfg.get(name) for name in ("multi_gpu", "torch_compile_mode")
  }
  given: dict[str, Any] = {**runner, **cfg["algorithm"]}
  for name, only in ONLY.items():
    if (value := given.pop(name, only)) != only:
      raise UserError(f"SurvivalPPO takes {name}={only!r} only, not {value!r}.")
  names = list(given.pop("action_names", ()))
  known = [field.name for field in fields(PpoCfg)]
  for name in given:
    check_known("value of the algorithm", name, known)
  del given["class_name"]
  given = {"survival": True, "reward_rule": "clip", "feasibility": {}, **given}
  if given["feasibility"] is not None:
    stays = {} if guarded else {"target": None}
    given["feasibility"] = FeasibilityCfg(**{**stays, **given["feasibility"]})
  algorithm = PpoCfg(**given)
  follows_run = algorithm.p_max_ramp or algorithm.rate_final != 1.0
  if follows_run and "max_iterations" not in cfg:
    raise UserError("p_max_ramp and rate_final need the runner's max_iterations.")
  return algorithm, names


def _network(
  cfg: Mapping[str, Any], action_names: Sequence[str] = ()
) -> dict[str, Any]:
  """Our form of rsl_rl's config of a network; only an actor's has actions."""
  given: dict[str, Any] = {"class_name": "MLPModel", **cfg}
  noise: dict[str, Any] = {"class_name": "GaussianDistribution", "init_std": 1.0}
  noise |= given.pop("distribution_cfg", None) or {}
  classes = {MLPModel: given.pop("class_name")}
  classes[GaussianDistribution] = noise.pop("class_name")
  for ours, name in classes.items():
    if resolve_callable(name) is not ours:
      raise UserError(f"SurvivalPPO needs a {ours.__name__}, not {name}.")
  if action_names:
    std = resolve_init_std(noise.pop("init_std"), action_names)
    given["distribution_cfg"] = {"class_name": Gaussian, "init_std": std, **noise}
  return given
