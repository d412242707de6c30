"""Limits from measured motion: arithmetic, file, and the way into a training config."""

import numpy as np
import pytest
from rich.console import Console

from decap.errors import UserError
from decap.evaluation.profile import (
  group_table,
  joint_tables,
  profile_trajectory,
  propose_limits,
  write_limits,
)
from decap.runs import read_limits
from tests.evaluation.synthetic import LAYOUT, make_trajectory


def known_trajectory():
  """Speeds 0.1, 0.2, … 10.0 of the elbow, ten times that of hip and knee."""
  trajectory = make_trajectory(rollouts=1, envs=1, steps=102, warmup=2)
  ramp = np.concatenate(([999.0, 999.0], np.arange(1, 101) * 0.1))
  speed = np.stack((10 * ramp, 10 * ramp, ramp), -1)[:, None]
  trajectory.arrays["joint_vel"] = speed.astype(np.float32)
  trajectory.arrays["fell"][:] = trajectory.arrays["timed_out"][:] = False
  trajectory.arrays["age"] = np.arange(102)[:, None]
  return trajectory


def test_quantiles_by_hand():
  """Of 0.1 … 10.0 the median is 5.05 and the 99 % quantile 9.901; warm-up is out."""
  profile = profile_trajectory(known_trajectory(), (0.5, 0.99))
  np.testing.assert_allclose(profile.joints["elbow"]["joint_vel"], [5.05, 9.901], 1e-5)
  np.testing.assert_allclose(profile.groups["lower"]["joint_vel"], [50.5, 99.0], 2e-3)


def test_the_papers_rule():
  """Upper: towards the lower end. Lower: near the observed range."""
  limits = propose_limits(known_trajectory(), {"upper": 0.5})
  assert limits["joint_vel"] == {"upper": 5.05, "lower": 99.0}


def test_the_file_is_what_training_reads(tmp_path):
  limits = propose_limits(known_trajectory(), {"upper": 0.9, "lower": 0.999})
  path = tmp_path / "deep" / "limits.yaml"
  write_limits(
    path, limits, {"upper": 0.9, "lower": 0.999}, {"source": "runs/a"}, LAYOUT
  )
  assert read_limits(path) == limits
  assert "# Limits measured on runs/a" in path.read_text()


def test_tables_show_groups_and_joints():
  profile = profile_trajectory(known_trajectory())
  console = Console(width=120, record=True, file=None, quiet=False)
  with console.capture() as capture:
    for table in (group_table(profile), *joint_tables(profile)):
      console.print(table)
  text = capture.get()
  assert "upper" in text and "elbow" in text and "99.9 %" in text
  assert "5.05" in text


def test_a_policy_that_does_not_move_gives_no_limits():
  trajectory = known_trajectory()
  trajectory.arrays["action"][:] = 0.0
  with pytest.raises(UserError, match="action_rate/upper is 0"):
    propose_limits(trajectory, {"upper": 0.5})


@pytest.mark.parametrize(
  ("rule", "message"),
  [
    ({"upper": 0.5, "lower": 1.0}, r"'lower' must be in \(0, 1\), not 1.0"),
    ({"upper": 0.5, "lower": 0.9, "tail": 0.9}, "Unknown group 'tail'"),
  ],
)
def test_bad_rules_are_refused(rule, message):
  with pytest.raises(UserError, match=message):
    propose_limits(known_trajectory(), rule)


def test_a_rollout_without_counted_steps_is_refused():
  trajectory = make_trajectory(steps=20)
  trajectory.protocol = {**trajectory.protocol, "warmup": 30}
  with pytest.raises(UserError, match="No step counts"):
    profile_trajectory(trajectory)
