"""What tells the paper's methods apart, and what they refuse."""

import dataclasses
import inspect

import pytest

from decap.envs.constraint_manager import ConstraintTermCfg
from decap.envs.mdp import tilt
from decap.errors import UserError
from decap.methods import METHODS, get_method
from decap.options.overrides import RUN_OPTIONS, check_options
from decap.rl.config import FeasibilityCfg, LagrangianCfg, LcpCfg, NIpoCfg, PpoCfg
from decap.runs import RunSpec, build_configs, plain
from decap.tasks import TASKS

ROBOT = TASKS["g1-flat"].describe()
BY_GROUP = {n: limits for n, limits in ROBOT.limits.items() if isinstance(limits, dict)}
WHOLE_BODY_LIMITS = ROBOT.limits | {
  name: dict.fromkeys(limits, max(limits.values())) for name, limits in BY_GROUP.items()
}

# Algorithm, survival, reward rule, rule of termination, whole-body limits.
TABLE = {
  "whole-body-rl": (PpoCfg, False, "raw", "decap", False),
  "smoothness-rewards": (PpoCfg, False, "raw", "decap", False),
  "lcp": (LcpCfg, False, "raw", "decap", False),
  "cat": (PpoCfg, True, "scale-clip", "cat", True),
  "n-ipo": (NIpoCfg, False, "raw", "decap", True),
  "ppo-lagrangian": (LagrangianCfg, False, "raw", "decap", False),
  "decap-no-barrier": (PpoCfg, True, "clip", "decap", False),
  "decap": (PpoCfg, True, "clip", "decap", False),
  "decap-calm-torso": (PpoCfg, True, "clip", "decap", False),
  "decap-exact": (PpoCfg, True, "raw", "decap", False),
}


def _configs(method: str, **options):
  return build_configs(RunSpec("g1-flat", method, **options))


@pytest.mark.parametrize("method", TABLE)
def test_values_of_each_method(method):
  algorithm, survival, reward_rule, rule, whole_body = TABLE[method]
  env, agent = _configs(method)
  assert type(agent.algorithm) is algorithm
  assert agent.algorithm.survival is survival
  assert agent.algorithm.reward_rule == reward_rule
  assert env.termination.rule == rule
  limits = {name: term.limits for name, term in env.constraints.items()}
  if method == "decap-calm-torso":
    assert limits.pop("torso_ang_vel") == 0.5
    assert limits["joint_torque"] == {"upper": 4.0, "lower": 60.0}
    limits["joint_torque"] = ROBOT.limits["joint_torque"]
  assert limits == (WHOLE_BODY_LIMITS if whole_body else ROBOT.limits)
  one = dict.fromkeys(ROBOT.groups, 0.025 if method == "cat" else 0.25)
  own = {name: group.p_max for name, group in ROBOT.groups.items()}
  p_max = {name: group.p_max for name, group in env.groups.items()}
  assert p_max == (one if whole_body else own)
  aids = {
    "decap": FeasibilityCfg(),
    "decap-no-barrier": FeasibilityCfg(),
    "decap-calm-torso": FeasibilityCfg(target=0.95, keep=0.97, fade=0.9999),
  }
  assert agent.algorithm.feasibility == aids.get(method)
  assert env.termination.barrier == (method != "decap-no-barrier")
  exact_floor = 1e-6 if method in ("cat", "decap-exact") else None
  assert env.termination.scale_floor_abs == exact_floor


def test_values_of_the_smoothness_rewards():
  def weights(method):
    rewards = _configs(method)[0].rewards
    return {k: rewards[k].weight for k in rewards if k.startswith("action_")}

  assert weights("whole-body-rl") == {"action_rate_l2": -0.01}
  expected = {"action_rate_l2": -0.01, "action_acc_l2": -0.05}
  assert weights("smoothness-rewards") == expected
  for method in METHODS.keys() - {"whole-body-rl", "smoothness-rewards"}:
    assert weights(method) == {}


def test_values_of_the_other_losses():
  lcp = _configs("lcp")[1].algorithm
  assert isinstance(lcp, LcpCfg) and lcp.gradient_penalty_coef == 0.0005
  n_ipo = _configs("n-ipo")[1].algorithm
  assert isinstance(n_ipo, NIpoCfg)
  values = (n_ipo.cost_limit, n_ipo.threshold_margin, n_ipo.barrier_t)
  assert values == (0.01, 0.02, 8000.0)
  lagrangian = _configs("ppo-lagrangian")[1].algorithm
  assert isinstance(lagrangian, LagrangianCfg)
  assert (lagrangian.cost_limit, lagrangian.multiplier_lr) == (0.01, 1e-4)
  assert (n_ipo.costs, lagrangian.costs) == ("terms", "rows")
  # Whoever builds a config by hand starts from the same values.
  assert LcpCfg().gradient_penalty_coef == lcp.gradient_penalty_coef
  assert NIpoCfg().barrier_t == n_ipo.barrier_t
  assert LagrangianCfg().multiplier_lr == lagrangian.multiplier_lr


def test_whole_body_baselines_have_one_p_max_for_the_whole_robots_quantities_too():
  env, agent = _configs("decap")
  env.constraints["tilt"] = ConstraintTermCfg(func=tilt, limits=0.5, p_max=0.4)
  get_method("cat").edit(env, agent)
  assert env.constraints["tilt"].p_max == env.groups["upper"].p_max == 0.025


def test_a_calm_torso_needs_no_limit_on_torque():
  env, agent = _configs("decap")
  del env.constraints["joint_torque"]
  get_method("decap-calm-torso").edit(env, agent)
  assert "torso_ang_vel" in env.constraints


def test_a_method_is_config_only():
  """What a run folder records says all that a method does."""
  assert plain(_configs("n-ipo")[1])["algorithm"]["costs"] == "terms"
  assert plain(_configs("cat")[1])["algorithm"]["p_max_ramp"] == [0.2, 0.5]


def test_methods_differ_in_nothing_else():
  """Same task, network, noise and PPO for all: what a fair comparison needs."""

  def shared(method):
    env, agent = _configs(method)
    ppo = {f.name: getattr(agent.algorithm, f.name) for f in dataclasses.fields(PpoCfg)}
    for name in ("class_name", "survival", "reward_rule", "feasibility", "p_max_ramp"):
      del ppo[name]
    rewards = {
      name: (term.weight, term.params)
      for name, term in env.rewards.items()
      if name not in ("action_rate_l2", "action_acc_l2")
    }
    terms = [set(env.events), set(env.terminations), set(env.observations)]
    return agent.policy, ppo, agent.num_steps_per_env, repr(rewards), terms

  reference = shared("decap")
  for method in METHODS:
    assert shared(method) == reference, method


def test_editing_one_method_leaves_the_next_alone():
  _configs("cat")
  env, _ = _configs("decap")
  assert env.groups["upper"].p_max == 0.5
  assert env.constraints["joint_vel"].limits == {"upper": 1.5, "lower": 10.0}


@pytest.mark.parametrize(
  "method, option",
  [
    ("lcp", "--env.termination.kappa"),
    ("lcp", "--env.groups.upper.p-max"),
    ("whole-body-rl", "--agent.algorithm.reward-rule"),
    ("decap-no-barrier", "--env.termination.kappa"),
    ("decap-no-barrier", "--env.termination.rho"),
    ("cat", "--env.termination.rho"),
    ("cat", "--env.termination.scale-floor"),
    ("decap-exact", "--agent.algorithm.feasibility.budget"),
    ("cat", "--agent.algorithm.feasibility.quantile"),
    ("decap-exact", "--agent.algorithm.reward-rule"),
    ("decap", "--agent.algorithm.survival"),
    ("decap", "--env.termination.rule"),
    ("decap", "--agent.algorithm.class_name=lcp"),
  ],
)
def test_options_that_a_method_does_not_use_are_refused(method, option):
  with pytest.raises(UserError, match=f"Method '{method}' does not use --"):
    check_options(get_method(method), [option, "3"])


@pytest.mark.parametrize("method", ["decap", "lcp"])
def test_options_with_a_name_of_their_own_are_refused(method):
  for field, option in RUN_OPTIONS.items():
    with pytest.raises(UserError, match=f"Give {option} instead of --{field}"):
      check_options(get_method(method), [f"--{field.replace('-', '_')}=1"])


AID = "--agent.algorithm.feasibility"


@pytest.mark.parametrize(
  "overrides, message",
  [
    (
      ("--env.termination.scale-floor=0.02", "--env.termination.scale-floor-abs=1"),
      "--env.termination.scale-floor has no effect beside scale-floor-abs",
    ),
    (
      (f"{AID}.shrink=0.8", f"{AID}.quantile=None"),
      f"{AID}.shrink has no effect beside quantile None",
    ),
    (
      (f"{AID}.rate=0.1", f"{AID}.target=None"),
      f"{AID}.rate has no effect beside target None",
    ),
    (
      (
        "--agent.algorithm.entropy-iterations=9",
        "--agent.algorithm.entropy-final=None",
      ),
      "--agent.algorithm.entropy-iterations has no effect beside entropy-final None",
    ),
    (
      (f"{AID}.fade=0.9", f"{AID}.target=None"),
      f"{AID}.fade has no effect beside target None",
    ),
    (
      ("--agent.algorithm.desired-kl=0.02",),
      "--agent.algorithm.desired-kl has no effect beside schedule fixed",
    ),
    (
      ("--agent.algorithm.rate-final=0.1", "--agent.algorithm.schedule=adaptive"),
      "--agent.algorithm.rate-final has no effect beside schedule adaptive",
    ),
    (
      ("--env.constraints.joint_vel.p_max", "0.4"),
      "--env.constraints.joint-vel.p-max has no effect beside the p-max of body",
    ),
  ],
)
def test_options_without_effect_are_refused(overrides, message):
  with pytest.raises(UserError, match=message):
    _configs("decap", overrides=overrides)


def test_options_with_an_effect_are_accepted():
  _, agent = _configs("decap", overrides=(f"{AID}.shrink=0.8", f"{AID}.quantile=0.9"))
  assert agent.algorithm.feasibility == FeasibilityCfg(shrink=0.8, quantile=0.9)


def test_a_blind_run_differs_in_the_clock_alone():
  for name in ("actor", "critic"):
    seen = list(_configs("decap")[0].observations[name].terms)
    blind = list(_configs("decap", blind=True)[0].observations[name].terms)
    assert [term for term in seen if term != "clock"] == blind != seen


@pytest.mark.parametrize("method", METHODS)
def test_options_that_a_method_uses_exist(method):
  """A pattern in `uses` that matches no METHOD_OPTIONS would never be asked."""
  for pattern in METHODS[method].uses:
    check_options(METHODS[method], [f"--{pattern.replace('*', 'x')}", "1"])
  check_options(METHODS[method], ["--env.rewards.track-xy.weight", "2"])


def test_ablations_come_from_the_command_line():
  overrides = (
    "--env.termination.kappa",
    "6",
    "--env.termination.rho=0.5",
    "--env.groups.upper.p-max",
    "0.3",
    "--env.constraints.joint-vel.limits",
    "{'upper': 2.0, 'lower': 8.0}",
  )
  env, _ = _configs("decap", overrides=overrides)
  assert (env.termination.kappa, env.termination.rho) == (6.0, 0.5)
  assert env.groups["upper"].p_max == 0.3 and env.groups["lower"].p_max == 0.25
  assert env.constraints["joint_vel"].limits == {"upper": 2.0, "lower": 8.0}


def test_a_third_group_comes_from_the_command_line():
  overrides = (
    "--env.groups.mid_body.joint-names",
    "('waist_.*',)",
    "--env.groups.mid-body.p-max",
    "0.3",
    "--env.groups.lower.joint-names",
    "('.*_(hip|knee|ankle)_.*',)",
  )
  limits = {name: {"mid_body": 3.0} for name in BY_GROUP}
  env, _ = _configs("decap", overrides=overrides, limits=limits)
  assert list(env.groups) == ["upper", "lower", "mid_body"]
  assert env.groups["mid_body"].joint_names == ("waist_.*",)
  assert env.groups["mid_body"].p_max == 0.3
  assert env.constraints["joint_vel"].limits == {
    "upper": 1.5,
    "lower": 10.0,
    "mid_body": 3.0,
  }
  # A whole-body method needs no limits of it.
  env, _ = _configs("n-ipo", overrides=(*overrides[:2], *overrides[4:]))
  assert env.constraints["joint_vel"].limits["mid_body"] == 10.0
  # Without its joints a group's name is more likely mistyped.
  with pytest.raises(UserError, match="Unrecognized options: --env.groups.uper.p-max"):
    _configs("decap", overrides=("--env.groups.uper.p-max", "0.3"))


def test_limits_come_before_the_method():
  limits = {"joint_vel": {"lower": 7.0}}
  assert _configs("decap", limits=limits)[0].constraints["joint_vel"].limits == {
    "upper": 1.5,
    "lower": 7.0,
  }
  assert _configs("cat", limits=limits)[0].constraints["joint_vel"].limits == {
    "upper": 7.0,
    "lower": 7.0,
  }


def test_each_method_is_a_few_lines():
  for method in METHODS.values():
    assert len(inspect.getsource(method.edit).splitlines()) <= 10, method.name


@pytest.mark.parametrize(
  ("method", "option", "hint"),
  [
    ("decap", "--env.termination.kapa", " (did you mean 'kappa'?)"),
    ("cat", "--env.termination.scale_flor", " (did you mean 'scale-floor-abs'?)"),
    # What the method has beside it is no better name.
    ("cat", "--env.termination.kappa", ""),
    ("lcp", "--env.termination.kapa", ""),
  ],
)
def test_a_misspelt_option_gets_a_hint_at_one_that_the_method_uses(
  method, option, hint
):
  with pytest.raises(UserError) as found:
    check_options(get_method(method), [option, "3"])
  option = option.replace("_", "-")
  assert str(found.value) == f"Method '{method}' does not use {option}{hint}."


def test_a_barrier_that_is_off_has_no_shape():
  overrides = ("--env.termination.barrier=False", "--env.termination.kappa=3")
  with pytest.raises(UserError, match="kappa has no effect beside barrier False"):
    _configs("decap-exact", overrides=overrides)
