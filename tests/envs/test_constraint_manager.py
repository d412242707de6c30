"""Constraints on a robot that is not ours: mjlab's Go1, with values made up by hand."""

import math
from dataclasses import replace

import pytest
import torch
from mjlab.managers.scene_entity_config import SceneEntityCfg
from mjlab.tasks.registry import load_env_cfg

from decap import mjlab_private
from decap.constraints.groups import BodyGroupCfg
from decap.constraints.termination import TerminationCfg
from decap.envs import mdp
from decap.envs.constrained_env import ConstrainedEnv, constrain
from decap.envs.constraint_manager import ConstraintManager, ConstraintTermCfg
from decap.testing import waits

NUM_ENVS, FRONT, REAR = 4, 6, 6
GROUPS = {
  "front": BodyGroupCfg(joint_names=("F.*",), p_max=0.5),
  "rear": BodyGroupCfg(joint_names=("R.*",), p_max=0.25),
}


def made_up(env) -> torch.Tensor:
  return env.made_up


def scalar(env) -> torch.Tensor:
  return env.scalar


TERMS = {
  "joint": ConstraintTermCfg(func=made_up, limits={"front": 10.0, "rear": 100.0}),
  "body": ConstraintTermCfg(func=scalar, limits=2.0, p_max=0.125),
}


@pytest.fixture(scope="module")
def env() -> ConstrainedEnv:
  """A Go1 with two real constraints; tests put managers of their own beside them."""
  cfg = constrain(
    load_env_cfg("Mjlab-Velocity-Flat-Unitree-Go1"),
    constraints={
      "joint_vel": ConstraintTermCfg(
        func=mdp.joint_vel, limits={"front": 8.0, "rear": 12.0}
      ),
      "tilt": ConstraintTermCfg(func=mdp.tilt, limits=0.5),
    },
    groups=GROUPS,
  )
  cfg.scene.num_envs = NUM_ENVS
  env = ConstrainedEnv(cfg, "cpu")
  env.reset(seed=1)
  # Joints in Go1's order: front right, front left, rear right, rear left.
  env.made_up = torch.zeros(NUM_ENVS, FRONT + REAR)
  env.scalar = torch.zeros(NUM_ENVS)
  return env


def manager(env, terms=TERMS, groups=GROUPS, **rule) -> ConstraintManager:
  env.log.flush()
  env.made_up.zero_()
  env.scalar.zero_()
  return ConstraintManager(terms, groups, TerminationCfg(**rule), env)


def test_a_stock_task_reports_joints_and_scalars(env):
  *_, extras = env.step(torch.zeros(NUM_ENVS, FRONT + REAR))
  reported = extras["constraints"]
  names = ("joint_vel/front", "joint_vel/rear", "tilt")
  assert env.constraint_manager.cost_names == names
  assert reported["delta"].shape == (NUM_ENVS,)
  assert reported["costs"].shape == (NUM_ENVS, 3)
  robot = env.scene["robot"].data
  torch.testing.assert_close(reported["quantities"]["joint_vel"], robot.joint_vel.abs())


def test_what_stock_terms_log_is_logged(env):
  env.flush_log()
  for _ in range(2):
    *_, extras = env.step(torch.zeros(NUM_ENVS, FRONT + REAR))
  assert extras["log"] == {}
  assert env.flush_log()["Metrics/slip_velocity_mean"] >= 0.0


def test_tilt_is_the_angle_from_the_vertical(env):
  env.reset(seed=1)
  # Turned by 0.4 rad about its x axis: 0.8 of the limit.
  env.sim.data.qpos[2, 3:7] = torch.tensor([math.cos(0.2), math.sin(0.2), 0.0, 0.0])
  env.sim.forward()
  margin = env.constraint_manager.compute()["margins"]["tilt"]
  assert margin.tolist() == pytest.approx([0.0, 0.0, 0.8, 0.0], abs=2e-3)


def test_constraints_of_a_stock_task_never_wait(env):
  assert waits(env.constraint_manager.compute) == []


def test_delta_is_the_strongest_of_all_rows(env):
  constraints = manager(env)
  env.made_up[0, 0] = 5.0  # Below 0.7 of the limit.
  env.made_up[1, 0] = 8.5  # u = 0.5, φ = 0.75: 0.375 of p_max 0.5.
  env.made_up[1, 7] = 85.0  # The same share of the rear's limit: 0.1875.
  env.scalar[2] = 2.0  # At the limit: its own p_max.
  env.made_up[3, 1] = 20.0  # The largest violation there has been.
  reported = constraints.compute()
  expected = torch.tensor([0.0, 0.375, 0.125, 1.0])
  torch.testing.assert_close(reported["delta"], expected)
  # At the limit is no violation.
  assert reported["costs"].nonzero().tolist() == [[3, 0]]


def test_statistics_by_hand(env):
  constraints = manager(env)
  env.made_up[:, :FRONT] = 4.0
  env.made_up[1, 2] = 16.0
  env.scalar[1] = 1.7  # u = 0.5: decides nothing, as joint 2 is above its limit.
  env.scalar[2] = 1.7
  constraints.compute()
  log = env.flush_log()
  # 23 values of 4 and one of 16, over 24.
  assert log["Constraint/joint/front/mean"] == pytest.approx(4.5)
  assert log["Constraint/joint/front/max"] == 16.0
  assert log["Constraint/joint/front/violation"] == 0.25
  assert log["Constraint/joint/rear/max"] == 0.0
  assert log["Constraint/body/mean"] == pytest.approx(0.85)
  assert log["Constraint/body/violation"] == 0.0
  shares = [log[f"Constraint/{row}/share"] for row in constraints.cost_names]
  assert shares == [0.5, 0.0, 0.5]
  # 1 of the violation, 0.75 · 0.125 of the scalar, over four environments.
  assert log["Constraint/delta"] == pytest.approx((1 + 0.09375) / 4)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_ends_its_own_environment_only(env, value):
  constraints = manager(env)
  env.made_up[2, 9] = value
  reported = constraints.compute()
  assert reported["delta"].tolist() == [0.0, 0.0, 1.0, 0.0]
  assert reported["costs"][:, 1].tolist() == [0.0, 0.0, 1.0, 0.0]
  assert constraints.composition.scale.value.isfinite().all()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_has_no_part_in_means(env, value):
  constraints = manager(env)
  env.made_up[:, FRONT:] = 6.0
  env.made_up[2, 9] = value
  constraints.compute()
  # 23 values of 6 and one that counts as 0, over 24.
  assert env.flush_log()["Constraint/joint/rear/mean"] == pytest.approx(5.75)


class Remembering:
  """A term of a class: built from its config, reset with its environment."""

  def __init__(self, cfg, env):
    self.cfg, self.resets = cfg, []
    self.num_envs = env.num_envs

  def __call__(self, env, asset_cfg: SceneEntityCfg) -> torch.Tensor:
    return env.scene["robot"].data.joint_pos[:, asset_cfg.joint_ids].sum(1)

  def reset(self, env_ids) -> None:
    self.resets.append(env_ids)


def test_terms_of_classes_are_built_and_reset(env):
  params = {"asset_cfg": SceneEntityCfg("robot", joint_names=("FR_hip_joint",))}
  terms = {
    "own": ConstraintTermCfg(func=Remembering, params=params, limits=9.0),
    "body": TERMS["body"],
  }
  constraints = manager(env, terms)
  own = constraints.cfg["own"].func
  assert isinstance(own, Remembering) and own.num_envs == NUM_ENVS
  joint = env.scene["robot"].data.joint_pos[:, 0]
  torch.testing.assert_close(constraints.compute()["quantities"]["own"], joint)
  assert [c.func for c in mjlab_private.stateful_terms(constraints)] == [own]


def test_p_max_may_change_in_place(env):
  constraints = manager(env, rule="cat")
  constraints.composition.p_max.fill_(0.05)
  env.made_up[0, 0], env.made_up[0, 11], env.scalar[0] = 11.0, 110.0, 2.5
  assert constraints.compute()["delta"].tolist() == pytest.approx([0.05, 0, 0, 0])


def test_as_text_it_lists_its_rows(env):
  constraints = manager(env)
  assert constraints.groups == GROUPS
  text = str(constraints)
  assert "contains 2 active terms" in text and "Active Constraints (decap)" in text
  rows = [
    [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()
  ]
  assert ["Constraint", "Limit", "Joints"] in rows
  assert ["joint/front", "10.0", "6"] in rows and ["body", "2.0", "1"] in rows
  # Names begin where their column does.
  assert "| body " in text


def limits(**changes) -> dict[str, ConstraintTermCfg]:
  return {"joint": replace(TERMS["joint"], limits=changes)}


@pytest.mark.parametrize(
  ("terms", "groups", "message"),
  [
    ({}, GROUPS, "at least one constraint"),
    (limits(front=1.0), GROUPS, "constraint 'joint': .*'rear' has no value"),
    (limits(front=1.0, rear=0.0), GROUPS, "constraint 'joint': .*'rear'.*got 0.0"),
    (limits(front=1.0, rear=1.0, tail=1.0), GROUPS, "Unknown group 'tail'"),
    (
      {"body": replace(TERMS["body"], limits=-1.0)},
      GROUPS,
      "constraint 'body': the limit must be above 0",
    ),
    (
      {"body": replace(TERMS["body"], p_max=1.0)},
      GROUPS,
      "constraint 'body': p_max must be between 0 and 1",
    ),
    (
      TERMS,
      {**GROUPS, "tail": BodyGroupCfg(("tail_.*",), 0.5)},
      "'tail': pattern 'tail_.*' matches no joint",
    ),
    (TERMS, {"front": GROUPS["front"]}, "in no group: RR_hip_joint"),
    (
      TERMS,
      {**GROUPS, "hips": BodyGroupCfg((".*_hip_joint",), 0.5)},
      "is in two groups",
    ),
    (
      TERMS,
      {**GROUPS, "front": BodyGroupCfg(("F.*",), 1.5)},
      r"'front': p_max must be in \(0, 1\), got 1.5",
    ),
  ],
)
def test_bad_constraints_are_refused_by_name(env, terms, groups, message):
  with pytest.raises(ValueError, match=message):
    manager(env, terms, groups)


def test_a_term_of_another_shape_is_named(env):
  terms = {"body": ConstraintTermCfg(func=made_up, limits=1.0)}
  with pytest.raises(
    ValueError, match=r"'body' returned shape \(4, 12\), expected \(4,\)"
  ):
    manager(env, terms).compute()
