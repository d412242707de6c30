"""Overrides of config fields: which belong to a method, and which would do nothing."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from decap.errors import UserError, closest

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnvCfg
  from decap.methods import Method
  from decap.rl.config import AgentCfg

AID = "agent.algorithm.feasibility"
METHOD_OPTIONS = (
  "env.termination.*",
  "env.groups.*.p-max",
  f"{AID}.*",
  "agent.algorithm.survival",
  "agent.algorithm.reward-rule",
  "agent.algorithm.p-max-ramp",
  "agent.algorithm.class-name",
)
"""Options that belong to methods; the others belong to every run."""

RUN_OPTIONS = {
  "env.seed": "--seed",
  "agent.seed": "--seed",
  "env.scene.num-envs": "--num-envs",
  "agent.iterations": "--iterations",
  "env.backend": "--backend",
  "env.num-threads": "--threads",
  "agent.logger": "--logger",
}
"""Fields that an option of the command line sets, which would win over them."""


def check_options(method: Method, overrides: list[str]) -> None:
  """Refuse overrides that the method, or the run, would ignore.

  Args:
    overrides: Command-line tokens such as ``["--env.termination.kappa", "3"]``.
  """
  for option in option_names(overrides):
    if option in RUN_OPTIONS:
      raise UserError(f"Give {RUN_OPTIONS[option]} instead of --{option}.")
    owned = any(fnmatchcase(option, pattern) for pattern in METHOD_OPTIONS)
    used = any(fnmatchcase(option, pattern) for pattern in method.uses)
    if owned and not used:
      section, _, name = option.rpartition(".")
      # Whole options are all alike in their sections.
      beside = [use.split(".")[-1] for use in method.uses if use.startswith(section)]
      raise UserError(
        f"Method '{method.name}' does not use --{option}{closest(name, beside)}."
      )


def check_effects(
  env: ConstrainedEnvCfg, agent: AgentCfg, overrides: list[str]
) -> None:
  """Refuse overrides that other settings leave without effect."""
  ppo, termination = agent.algorithm, env.termination
  aid, fixed = ppo.feasibility, ppo.schedule == "fixed"
  untold = aid and aid.target is None and "target None"
  no_barrier = not termination.barrier and "barrier False"
  idle = {
    "env.termination.scale-floor": termination.scale_floor_abs is not None
    and "scale-floor-abs",
    "env.termination.rho": no_barrier,
    "env.termination.kappa": no_barrier,
    f"{AID}.shrink": aid and aid.quantile is None and "quantile None",
    **{f"{AID}.{name}": untold for name in ("keep", "rate", "tolerance", "fade")},
    f"{AID}.budget-range": untold,
    "agent.algorithm.entropy-iterations": ppo.entropy_final is None
    and "entropy-final None",
    "agent.algorithm.desired-kl": fixed and "schedule fixed",
    "agent.algorithm.rate-final": not fixed and "schedule adaptive",
  }
  for name, term in env.constraints.items():
    option = f"env.constraints.{name}.p-max".replace("_", "-")
    idle[option] = isinstance(term.limits, dict) and "the p-max of body groups"
  for option in option_names(overrides):
    if reason := idle.get(option):
      raise UserError(f"--{option} has no effect beside {reason}.")


def option_names(overrides: list[str]) -> list[str]:
  """Names such as "env.termination.kappa" among command-line tokens."""
  return [
    token[2:].split("=")[0].replace("_", "-")
    for token in overrides
    if token.startswith("--")
  ]
