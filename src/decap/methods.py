"""The methods side by side: each is a few lines over the same task.

A method edits the configs of environment and agent. The environment reports all
constraint values whatever the method; the method decides what they cost. Importing
this file imports neither torch nor mjlab.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from decap.errors import UserError, check_known

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnvCfg
  from decap.envs.constraint_manager import ConstraintTermCfg
  from decap.rl.config import AgentCfg, PpoCfg

Edit = Callable[["ConstrainedEnvCfg", "AgentCfg"], None]

_SURVIVAL_OPTIONS = (
  "env.termination.scale-decay",
  "env.termination.scale-floor-abs",
  "env.groups.*.p-max",
  "agent.algorithm.reward-rule",
)
_DECAP_OPTIONS = (
  *_SURVIVAL_OPTIONS,
  "env.termination.scale-floor",
  "agent.algorithm.feasibility.*",
)
_BARRIER_OPTIONS = ("env.termination.rho", "env.termination.kappa")


@dataclass(frozen=True)
class Method:
  """A named way to train: edits of the configs, and the options that it uses."""

  name: str
  title: str
  """What tables call it."""
  summary: str
  """One line for `decap list`."""
  edit: Edit
  """Changes the configs of environment and agent in place."""
  uses: tuple[str, ...] = ()
  """Patterns of options of methods that have an effect; others are refused."""


def get_method(name: str) -> Method:
  """The method of that name."""
  check_known("method", name, METHODS)
  return METHODS[name]


# Edits.


def _whole_body_rl(env: ConstrainedEnvCfg, agent: AgentCfg) -> None:
  from mjlab.envs import mdp
  from mjlab.managers import RewardTermCfg

  env.rewards["action_rate_l2"] = RewardTermCfg(func=mdp.action_rate_l2, weight=-0.01)


def _smoothness_rewards(env: ConstrainedEnvCfg, agent: AgentCfg) -> None:
  from mjlab.envs import mdp
  from mjlab.managers import RewardTermCfg

  _whole_body_rl(env, agent)
  env.rewards["action_acc_l2"] = RewardTermCfg(func=mdp.action_acc_l2, weight=-0.05)


def _lcp(env: ConstrainedEnvCfg, agent: AgentCfg) -> None:
  from decap.rl.config import LcpCfg

  agent.algorithm = _algorithm(LcpCfg, agent)


def _cat(env: ConstrainedEnvCfg, agent: AgentCfg) -> None:
  """A tenth of the paper's p_max, 0.25, follows best of three (lab book, series 10)."""
  _loosest_limits_everywhere(env, p_max=0.025)
  env.termination.rule = "cat"
  env.termination.scale_floor_abs = 1e-6
  agent.algorithm.survival = True
  agent.algorithm.reward_rule = "scale-clip"
  # As in its authors' code: over 1000 of 2000 iterations.
  agent.algorithm.p_max_ramp = (0.2, 0.5)


def _n_ipo(env: ConstrainedEnvCfg, agent: AgentCfg) -> None:
  from decap.rl.config import NIpoCfg

  _loosest_limits_everywhere(env, p_max=0.25)
  agent.algorithm = _algorithm(NIpoCfg, agent, costs="terms")


def _ppo_lagrangian(env: ConstrainedEnvCfg, agent: AgentCfg) -> None:
  from decap.rl.config import LagrangianCfg

  agent.algorithm = _algorithm(LagrangianCfg, agent)


def _decap(env: ConstrainedEnvCfg, agent: AgentCfg, **aid: Any) -> None:
  from decap.rl.config import FeasibilityCfg

  agent.algorithm.feasibility = FeasibilityCfg(**aid)
  agent.algorithm.survival = True
  agent.algorithm.reward_rule = "clip"


def _decap_calm_torso(env: ConstrainedEnvCfg, agent: AgentCfg) -> None:
  """A torso that sways costs what a joint beyond its limits costs.

  The legs may push harder then: within the paper's 20 Nm a G1 can stand on one leg only
  by leaning over it, so it has to sway. With that room they can be asked to follow more.
  """
  _decap(env, agent, target=0.95, keep=0.97, fade=0.9999)
  env.constraints["torso_ang_vel"] = _torso_angular_speed(env, limit=0.5)
  if torque := env.constraints.get("joint_torque"):
    _loosen_largest(torque, factor=3.0)


def _decap_no_barrier(env: ConstrainedEnvCfg, agent: AgentCfg) -> None:
  _decap(env, agent)
  env.termination.barrier = False


def _decap_exact(env: ConstrainedEnvCfg, agent: AgentCfg) -> None:
  env.termination.scale_floor_abs = 1e-6
  agent.algorithm.survival = True
  agent.algorithm.reward_rule = "raw"


# Their parts.


def _torso_angular_speed(env: ConstrainedEnvCfg, limit: float) -> ConstraintTermCfg:
  from mjlab.managers import SceneEntityCfg

  from decap.envs import mdp
  from decap.envs.constraint_manager import ConstraintTermCfg

  if env.torso is None:
    raise UserError("This method needs a task that names its robot's torso.")
  bodies = SceneEntityCfg(env.constrained_entity, body_names=(env.torso,))
  params = {"asset_cfg": bodies}
  return ConstraintTermCfg(
    func=mdp.body_angular_speed, limits=limit, params=params, unit="rad/s"
  )


def _loosen_largest(term: ConstraintTermCfg, factor: float) -> None:
  """Raise the limit of the group that does the work."""
  if isinstance(term.limits, dict):
    group, limit = max(term.limits.items(), key=lambda item: item[1])
    term.limits = {**term.limits, group: factor * limit}


def _loosest_limits_everywhere(env: ConstrainedEnvCfg, p_max: float) -> None:
  """The paper's whole-body baselines: limits that leave every group room, one p_max.

  They are those of the group that does the work, a humanoid's lower body. The groups
  stay, so that all methods log the same rows.
  """
  for term in env.constraints.values():
    if isinstance(term.limits, dict):
      term.limits = dict.fromkeys(env.groups, max(term.limits.values()))
    else:
      term.p_max = p_max
  # New objects: configs of several tasks may share these.
  env.groups = {
    name: dataclasses.replace(group, p_max=p_max) for name, group in env.groups.items()
  }


def _algorithm(cls: type[PpoCfg], agent: AgentCfg, **values: Any) -> PpoCfg:
  """The agent's PPO settings as a config of another algorithm."""
  shared = {
    field.name: getattr(agent.algorithm, field.name)
    for field in dataclasses.fields(agent.algorithm)
    if field.name != "class_name"
  }
  return cls(**shared, **values)


METHODS = {
  method.name: method
  for method in (
    Method(
      "whole-body-rl",
      "Whole-body RL",
      "plain PPO with a first-order action-rate reward",
      _whole_body_rl,
    ),
    Method(
      "smoothness-rewards",
      "Smoothness rewards",
      "plain PPO with first- and second-order action-rate rewards",
      _smoothness_rewards,
    ),
    Method(
      "lcp",
      "LCP",
      "Lipschitz-constrained policy: a penalty on the policy's gradient",
      _lcp,
    ),
    Method(
      "cat",
      "CaT",
      "constraints as terminations: the loosest limits for the whole body, linear rule",
      _cat,
      uses=(*_SURVIVAL_OPTIONS, "agent.algorithm.p-max-ramp"),
    ),
    Method(
      "n-ipo",
      "N-IPO",
      "interior-point PPO: cost critics and a log barrier, whole-body limits",
      _n_ipo,
    ),
    Method(
      "ppo-lagrangian",
      "PPO-Lagrangian",
      "cost critics and one multiplier per quantity and body group",
      _ppo_lagrangian,
    ),
    Method(
      "decap-no-barrier",
      "DeCap w/o barrier",
      "DeCap without the soft barrier below the limits",
      _decap_no_barrier,
      uses=_DECAP_OPTIONS,
    ),
    Method(
      "decap",
      "DeCap",
      "decoupled limits, soft barrier, survival-adjusted returns",
      _decap,
      uses=(*_DECAP_OPTIONS, *_BARRIER_OPTIONS),
    ),
    Method(
      "decap-calm-torso",
      "DeCap, calm torso",
      "DeCap with a limit on the torso's angular velocity, too",
      _decap_calm_torso,
      uses=(*_DECAP_OPTIONS, *_BARRIER_OPTIONS),
    ),
    Method(
      "decap-exact",
      "DeCap (exact)",
      "the paper's equations and nothing else: no reward clip, no feasibility aid",
      _decap_exact,
      uses=(
        *_BARRIER_OPTIONS,
        "env.termination.barrier",
        "env.groups.*.p-max",
        "env.termination.scale-decay",
      ),
    ),
  )
}
"""All methods by name, in the order of tables."""
