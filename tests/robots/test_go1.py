"""The Go1 is mjlab's, with feet of its own; it was added by a description alone."""

import mujoco
import numpy as np
import pytest
import torch
from mjlab.asset_zoo.robots.unitree_go1.go1_constants import get_go1_robot_cfg
from mjlab.entity import Entity

from decap.envs.build import make_env
from decap.evaluation.protocol import Protocol
from decap.evaluation.rollout import evaluate
from decap.methods import METHODS
from decap.rl.runner import Runner
from decap.robots.go1 import FEET, LEGS, go1
from decap.runs import RunSpec, build_configs


@pytest.fixture(scope="module")
def models():
  return Entity(go1().entity).spec.compile(), Entity(get_go1_robot_cfg()).spec.compile()


def test_dynamics_are_those_of_mjlab_s_model(models):
  """Accelerations of a free fall with torques, in a random pose."""
  ours, stock = models
  rng = np.random.default_rng(0)
  qpos, qvel = rng.normal(0, 0.3, ours.nq), rng.normal(0, 1.0, ours.nv)
  qpos[:7] = (0, 0, 1, 1, 0, 0, 0)
  ctrl = rng.normal(0, 0.5, ours.nu)
  accelerations = []
  for model in (ours, stock):
    data = mujoco.MjData(model)
    data.qpos, data.qvel, data.ctrl = qpos, qvel, ctrl
    mujoco.mj_forward(model, data)
    accelerations.append(data.qacc.copy())
  np.testing.assert_allclose(*accelerations, rtol=1e-9, atol=1e-9)


def test_feet_are_where_mjlab_has_its_sites(models):
  ours, stock = models
  places = []
  for model in models:
    data = mujoco.MjData(model)
    data.qpos = model.key_qpos[0]
    data.qpos[2] = 0.3
    mujoco.mj_kinematics(model, data)
    places.append(data)
  for leg, foot in zip(LEGS, FEET, strict=True):
    np.testing.assert_allclose(places[0].body(foot).xpos, places[1].site(leg).xpos)
    for field in ("friction", "solref", "solimp", "condim", "priority"):
      mine, theirs = (getattr(m.geom(f"{foot}_collision"), field) for m in models)
      np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("method", ["decap", "n-ipo"])
def test_it_trains(method):
  overrides = ("--agent.num-steps-per-env", "6", "--agent.policy.hidden-dims", "(16,)")
  spec = RunSpec("go1-flat", method, num_envs=6, iterations=3, overrides=overrides)
  env_cfg, agent_cfg = build_configs(spec)
  logs = []
  runner = Runner(
    make_env(env_cfg, "cpu"),
    agent_cfg,
    on_iteration=lambda iteration, log: logs.append(log) or False,
  )
  assert runner.learn()
  assert len(logs) == 3
  assert logs[-1]["Constraint/joint_vel/legs/mean"] > 0.0
  for value in runner.alg.actor.state_dict().values():
    assert torch.isfinite(value).all()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_config_for_it(method):
  env_cfg, _ = build_configs(RunSpec("go1-flat", method))
  assert set(env_cfg.groups) == {"hips", "legs"}


def test_it_is_evaluated():
  protocol = Protocol(task="go1-flat", rollouts=1, envs=4, steps=60, warmup=5)
  evaluation = evaluate("stand", protocol, trajectory=1)
  assert evaluation.result.metrics["falls_per_minute"]["mean"] == 0.0
  assert set(evaluation.result.metrics["smoothness"]) == {"hips", "legs"}
  names = evaluation.trajectory.skeleton["names"]
  assert "trunk/head" in names and "FR_foot" in names
