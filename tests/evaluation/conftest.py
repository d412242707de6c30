"""What several tests of tables begin with."""

import pytest

from decap.evaluation.results import Result
from tests.evaluation.synthetic import make_trajectory, metrics_of_trajectory


@pytest.fixture(scope="module")
def template():
  trajectory = make_trajectory()
  return Result(
    policy={"name": "run", "method": "decap", "seed": 1},
    protocol=trajectory.protocol,
    layout=trajectory.layout,
    metrics=walking(metrics_of_trajectory(trajectory)),
  )


def walking(metrics):
  """The numbers of a policy that walks, which that of noise does not."""
  metrics["falls_per_minute"]["mean"] = 0.0
  metrics["tracking"]["followed"]["mean"] = 0.9
  metrics["gait"]["correlation"]["mean"] = -0.5
  metrics["gait"]["flight"]["mean"] = 0.0
  return metrics
