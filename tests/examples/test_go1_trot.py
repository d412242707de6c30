"""The scripted trot walks, and the Go1's limits are what it measures."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import go1_trot

from decap.evaluation import profile
from decap.robots.go1 import LIMITS


def test_limits_of_the_description_are_measured():
  evaluation = go1_trot.trot(envs=12, steps=250)
  assert evaluation.result.metrics["tracking"]["followed"]["mean"] > 0.6
  assert evaluation.result.metrics["falls_per_minute"]["mean"] < 3.0
  walking = profile.profile_trajectory(evaluation.trajectory)
  limits = go1_trot.propose_limits(walking)
  for name, groups in LIMITS.items():
    # Fewer robots and steps than the description's numbers are of.
    assert limits[name] == pytest.approx(groups, rel=0.25), name
