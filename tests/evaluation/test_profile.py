"""Limits from measured motion: arithmetic, file, and the way into a training config."""

from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from decap.errors import UserError
from decap.evaluation.profile import (
  Profile,
  joint_tables,
  profile_trajectory,
  propose_limits,
  row_table,
  write_limits,
)
from decap.runs import read_limits
from tests.evaluation.synthetic import LAYOUT, make_trajectory, measured


def known_trajectory(size=1.0):
  """Speeds 0.1, 0.2, … 10.0 of the elbow, ten times that of the hip, nine of the knee."""
  trajectory = make_trajectory(rollouts=1, envs=1, steps=102, warmup=2)
  ramp = np.concatenate(([999.0, 999.0], np.arange(1, 101) * 0.1)) * size
  speed = np.stack((10 * ramp, 9 * ramp, ramp), -1)[:, None]
  trajectory.arrays["joint_vel"] = speed.astype(np.float32)
  trajectory.arrays["fell"][:] = trajectory.arrays["timed_out"][:] = False
  trajectory.arrays["age"] = np.arange(102)[:, None]
  return measured(trajectory)


@pytest.fixture
def walking():
  return profile_trajectory(known_trajectory())


@pytest.fixture
def standing(walking):
  """A robot that needs nothing to stand."""
  rows = {row: 1e-6 * values for row, values in walking.rows.items()}
  return Profile(rows, walking.joints, walking.layout)


def test_quantiles_are_of_the_largest_joint_of_each_step(walking):
  """Of 0.1 … 10.0 the median is 5.05 and the 99 % quantile 9.901; warm-up is out."""
  assert walking.quantile("joint_vel/upper", 0.5) == pytest.approx(5.05)
  assert walking.quantile("joint_vel/upper", 0.99) == pytest.approx(9.901)
  # The hip's; the knee's are smaller at every step.
  assert walking.quantile("joint_vel/lower", 0.99) == pytest.approx(99.01)
  assert walking.joints["joint_vel"]["knee"].max() == pytest.approx(90.0)


def test_steps_that_are_no_numbers_do_not_count(walking):
  trajectory = known_trajectory()
  trajectory.arrays["quantity/joint_vel"][50:60] = np.nan
  profile = profile_trajectory(trajectory)
  assert (
    len(profile.rows["joint_vel/upper"]) == len(walking.rows["joint_vel/upper"]) - 10
  )
  assert all(np.isfinite(values).all() for values in profile.rows.values())


def test_the_papers_rule(walking, standing):
  """Upper: towards the lower end. Lower: near the observed range. Rounded up."""
  limits = propose_limits(walking, standing, {"upper": 0.5})
  assert limits["joint_vel"] == {"upper": 5.05, "lower": 99.1}
  share = walking.share_above(limits)
  # 5.1 … 10.0 are above 5.05; only 100 is above 99.1.
  assert share["joint_vel/upper"] == pytest.approx(0.5)
  assert share["joint_vel/lower"] == pytest.approx(0.01)


def test_no_limit_is_below_what_standing_needs(walking, standing):
  standing.rows["joint_vel/upper"] = np.linspace(0.0, 7.123, 1001)
  limits = propose_limits(walking, standing, {"upper": 0.5})
  # 99.9 % of 7.123, rounded up.
  assert limits["joint_vel"] == {"upper": 7.12, "lower": 99.1}
  assert standing.share_above(limits)["joint_vel/upper"] < 0.002
  standing.rows["joint_vel/upper"] = np.full(10, 7.1201)
  assert propose_limits(walking, standing, {})["joint_vel"]["upper"] == 9.91
  assert propose_limits(walking, standing, {"upper": 0.5})["joint_vel"]["upper"] == 7.13


def test_the_file_is_what_training_reads(tmp_path, walking, standing):
  rule = {"upper": 0.9, "lower": 0.999}
  limits = propose_limits(walking, standing, rule)
  path = tmp_path / "deep" / "limits.yaml"
  write_limits(path, limits, rule, {"source": "runs/a"}, LAYOUT)
  assert read_limits(path) == limits
  assert "# Limits measured on runs/a" in path.read_text()


def test_small_limits_and_odd_names_come_back_from_the_file(tmp_path):
  limits = {"slip": 5e-05, "joint_vel": {"on": 1e-05, "left: arm": 2.0}}
  layout = replace(LAYOUT, limits={"slip": 1.0}, units={"slip": "m"})
  write_limits(tmp_path / "l.yaml", limits, {}, {}, layout)
  assert read_limits(tmp_path / "l.yaml") == limits
  assert "slip: 5.0e-05  # m\n" in (tmp_path / "l.yaml").read_text()


@pytest.mark.parametrize("width", [120, 50])
def test_tables_show_rows_and_joints(walking, standing, width):
  """Whole, also where they are wider than the terminal."""
  limits = propose_limits(walking, standing, {"upper": 0.5})
  console = Console(width=width)
  with console.capture() as capture:
    for table in (row_table(walking, standing, limits), *joint_tables(walking)):
      console.print(table, crop=False)
  text = capture.get()
  line = next(t for t in text.splitlines() if "joint_vel/upper (rad/s)" in t)
  assert line.split()[-2:] == ["5.05", "50.0%"]
  assert "elbow" in text and "99.9 %" in text and "…" not in text


def test_a_policy_that_does_not_move_gives_no_limits(standing):
  trajectory = known_trajectory()
  trajectory.arrays["quantity/action_rate"][:] = 0.0
  profile = profile_trajectory(trajectory)
  with pytest.raises(UserError, match="action_rate/upper is 0"):
    propose_limits(profile, profile, {"upper": 0.5})


def test_a_group_that_the_robot_lacks_is_refused(walking, standing):
  with pytest.raises(UserError, match="Unknown group 'tail'"):
    propose_limits(walking, standing, {"upper": 0.5, "lower": 0.9, "tail": 0.9})


def test_a_rollout_without_counted_steps_is_refused():
  trajectory = make_trajectory(steps=20)
  trajectory.protocol = {**trajectory.protocol, "warmup": 30}
  with pytest.raises(UserError, match="No step counts"):
    profile_trajectory(trajectory)
