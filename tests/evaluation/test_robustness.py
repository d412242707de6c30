import pytest

from decap.deploy.bundle import load_bundle
from decap.deploy.sim2sim import straight
from decap.evaluation import robustness
from tests.deploy.robots import POLICY


@pytest.fixture
def quick(monkeypatch):
  axes = {"motor_strength": robustness.Axis("strength", 1.0, (0.1, 1.0))}
  monkeypatch.setattr(robustness, "AXES", axes)
  monkeypatch.setattr(robustness, "WALK", straight(0.5, 0.5))


def test_sweep_finds_the_strength_that_is_too_little(quick):
  lines: list[str] = []
  found = robustness.sweep_policy(load_bundle(POLICY), 1, 1, lines.append)
  weak, strong = found["axes"]["motor_strength"]
  assert weak["survived"] == 0 and weak["reasons"]
  assert strong["survived"] == 1 and not strong["reasons"]
  assert found["margins"] == {"motor_strength": [1.0, 1.0]}
  assert lines[0].endswith("motor_strength 0.1: 0 of 1 walks survived")
