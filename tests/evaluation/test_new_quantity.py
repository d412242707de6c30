"""A new quantity is one function and one entry: training and evaluation show it."""

import dataclasses

import numpy as np
import pytest
from rich.console import Console

from decap import tasks
from decap.constraints.quantities import energy
from decap.envs import mdp
from decap.envs.build import make_env
from decap.envs.constraint_manager import ConstraintTermCfg
from decap.evaluation import columns, plots, profile
from decap.evaluation.protocol import Protocol
from decap.evaluation.report import make_report
from decap.evaluation.rollout import evaluate
from decap.evaluation.table_formats import to_markdown
from decap.evaluation.tables import group_results, make_tables
from decap.evaluation.trajectory import load_trajectory
from decap.rl.runner import Runner
from decap.runs import RunSpec, build_configs, read_limits
from tests.evaluation.synthetic import metrics_of_trajectory
from tests.evaluation.test_rollout import noisy

ROWS = ("joint_power/upper", "joint_power/lower", "tilt")


def joint_power(env):
  robot = env.scene["robot"].data
  return energy(robot.qfrc_actuator, robot.joint_vel)


ENTRIES = {
  "joint_power": ConstraintTermCfg(
    func=joint_power, limits={"upper": 5.0, "lower": 50.0}, unit="W"
  ),
  "tilt": ConstraintTermCfg(func=mdp.tilt, limits=0.02, p_max=0.125, unit="rad"),
}


@pytest.fixture(scope="module", autouse=True)
def extended_task():
  """g1-flat with a joint quantity and a scalar one more."""
  original = tasks.env_cfg

  def env_cfg(name, play=False):
    cfg = original(name, play)
    cfg.constraints |= ENTRIES
    return cfg

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(tasks, "env_cfg", env_cfg)
    yield


@pytest.fixture(scope="module")
def evaluation():
  protocol = Protocol(rollouts=1, envs=4, steps=60, warmup=5, per_command=0)
  return evaluate(noisy(protocol, 0.1), protocol, trajectory=4)


def test_training_logs_it():
  overrides = ("--agent.num-steps-per-env", "4", "--agent.policy.hidden-dims", "(8,)")
  spec = RunSpec("g1-flat", "decap", num_envs=4, iterations=1, overrides=overrides)
  env_cfg, agent_cfg = build_configs(spec)
  logs = []
  runner = Runner(
    make_env(env_cfg, "cpu"),
    agent_cfg,
    on_iteration=lambda iteration, log: logs.append(log) or False,
  )
  runner.learn()
  for row in ROWS:
    assert logs[0][f"Constraint/{row}/mean"] > 0.0
    assert 0.0 <= logs[0][f"Constraint/{row}/violation"] <= 1.0


def test_metrics_are_those_of_its_values(evaluation, tmp_path):
  metrics, trajectory = evaluation.result.metrics, evaluation.trajectory
  valid = trajectory.valid
  tilt = trajectory.arrays["quantity/tilt"][valid]
  scalar = metrics["scalars"]["tilt"]
  assert scalar["mean"]["mean"] == pytest.approx(tilt.mean(), rel=1e-5)
  assert scalar["violations"]["mean"] == pytest.approx((tilt > 0.02).mean())
  assert 0.0 < scalar["violations"]["mean"] < 1.0
  upper = list(trajectory.layout.groups["upper"])
  power = trajectory.arrays["quantity/joint_power"][..., upper][valid]
  smoothness = metrics["smoothness"]["upper"]["joint_power"]["mean"]
  assert smoothness == pytest.approx(power.mean(), rel=1e-4)
  np.testing.assert_allclose(
    metrics["violations"]["upper"]["joint_power"]["any_joint"]["mean"],
    (power > 5.0).any(1).mean(),
  )
  assert set(ROWS) < set(metrics["delta"]["share"])
  assert sum(metrics["histograms"]["scalars"]["tilt"]) == valid.sum()
  # A stored trajectory tells the same, although nothing derives these from the state.
  trajectory.save(tmp_path / "t.npz")
  stored = metrics_of_trajectory(load_trajectory(tmp_path / "t.npz"))
  assert stored["scalars"] == metrics["scalars"]
  assert stored["delta"] == metrics["delta"]


def test_tables_show_it(evaluation):
  tables = make_tables(group_results([evaluation.result], [None]))
  text = {table.title: to_markdown(table) for table in tables}
  assert "Joint power (W)" in text["Smoothness"]
  assert "Joint power" in text["Joint-steps with a violation (%)"]
  scalars = text["Quantities of the whole robot"]
  assert "Tilt (rad)" in scalars and "Tilt violations (%)" in scalars
  by_ground = columns.at(("grounds", "slope"), columns.ground(evaluation.result.layout))
  assert ("grounds", "slope", "scalars", "tilt", "violations") in [
    column.path for column in by_ground
  ]


def test_figures_and_report_show_it(evaluation, tmp_path):
  results = {"stand": evaluation.result}
  trajectories = {"stand": evaluation.trajectory}
  (axis,) = plots.traces(trajectories, "tilt").axes
  assert axis.get_ylabel() == "Tilt\n(rad)"
  assert len(plots.traces(trajectories, "joint_power").axes) == 2
  titles = [axis.get_title() for axis in plots.distributions(results).axes]
  assert "Tilt" in titles and "Joint power" in titles
  assert plots.joint_violations(results, "joint_power").axes
  evaluation.result.save(tmp_path / "metrics.json")
  methods = group_results([evaluation.result], [None])
  page = make_report(methods, make_tables(methods), "decap compare")
  assert "Tilt (rad)" in page and "Joint power (W)" in page


def test_profile_proposes_its_limits(evaluation, tmp_path):
  trajectory = evaluation.trajectory
  walking = profile.profile_trajectory(trajectory)
  still = dataclasses.replace(walking, rows={r: 0 * v for r, v in walking.rows.items()})
  limits = profile.propose_limits(walking, still, {"tilt": 0.5})
  tilt = trajectory.arrays["quantity/tilt"][trajectory.valid]
  assert limits["tilt"] == pytest.approx(np.quantile(tilt, 0.5), rel=1e-2)
  assert set(limits["joint_power"]) == {"upper", "lower"}
  layout = trajectory.layout
  rule = profile.complete_rule((*layout.groups, *layout.scalars), {"upper": 0.5})
  assert rule == dict.fromkeys(("lower", *layout.scalars), 0.99) | {"upper": 0.5}
  path = tmp_path / "limits.yaml"
  profile.write_limits(path, limits, rule, {}, trajectory.layout)
  assert read_limits(path) == limits
  console = Console(width=100)
  with console.capture() as capture:
    console.print(profile.row_table(walking, still, limits))
  assert "tilt (rad)" in capture.get() and "joint_power/upper (W)" in capture.get()
  again = evaluate(
    "stand",
    Protocol(rollouts=1, envs=1, steps=10, warmup=5, per_command=0),
    limits=limits,
  )
  assert again.result.layout.limits["tilt"] == limits["tilt"]
