"""The scripted trot walks, and the Go1's limits are what it measures."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import go1_trot

from decap.evaluation import profile
from decap.robots.go1 import LIMITS


def test_limits_of_the_description_are_measured():
  walking, standing = go1_trot.trot(), go1_trot.stand()
  assert walking.result.metrics["tracking"]["followed"]["mean"] > 0.6
  assert walking.result.metrics["falls_per_minute"]["mean"] < 3.0
  assert standing.result.metrics["falls_per_minute"]["mean"] == 0.0
  both = (walking.trajectory, standing.trajectory)
  limits = profile.propose_limits(*map(profile.profile_trajectory, both), {})
  for name, groups in LIMITS.items():
    # Rounding of another machine lets contacts go other ways.
    assert limits[name] == pytest.approx(groups, rel=0.1), name
