"""Walks of the simulated robot under the real controller, with the released policy."""

import json
from dataclasses import replace

import numpy as np
import pytest

from decap.deploy import grounds
from decap.deploy.bundle import Bundle, load_bundle
from decap.deploy.measure import measure
from decap.deploy.sim2sim import Trace, Walk, straight, walk
from decap.deploy.simulation import SimCfg, SimulatedRobot
from decap.errors import UserError
from tests.deploy.robots import MOTORS, POLICY

CFG = SimCfg(seed=4)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
  return load_bundle(POLICY)


@pytest.fixture(scope="module")
def robot() -> SimulatedRobot:
  return SimulatedRobot(MOTORS, CFG)


@pytest.fixture(scope="module")
def trace(bundle, robot) -> Trace:
  return walk(bundle, CFG, straight(0.5, 2.0), robot)


def test_walk_stands_up_lets_go_and_follows_commands(trace):
  assert [event.split(": ")[1] for event in trace.events] == [
    "passive → stand",
    "stand → policy",
  ]
  assert not trace.fell and not trace.intervened
  assert trace.seconds == pytest.approx(2.0)
  np.testing.assert_allclose(np.diff(trace.arrays["time_s"]), 0.02, atol=1e-9)
  # Standing for a second, then 0.5 m/s.
  assert not trace.arrays["command"][:50].any()
  np.testing.assert_allclose(trace.arrays["command"][50:, 0], 0.5)
  assert trace.arrays["qpos"][:, 2].min() > 0.6


def test_gyros_sample_the_walk_alone_at_their_rates(trace):
  for site, rate in (("head", 200), ("torso", 1050), ("wrist", 400)):
    times, values = trace.gyros[site]
    assert len(times) == pytest.approx(2.0 * rate, abs=2)
    assert -1e-3 <= times[0] and times[-1] <= 2.0 + 1e-3
    assert values.shape == (len(times), 3)


def test_same_seed_same_walk_and_a_reset_robot_is_a_fresh_one(bundle, robot, trace):
  again = walk(bundle, CFG, straight(0.5, 0.3), robot)
  fresh = walk(bundle, CFG, straight(0.5, 0.3))
  rows = len(again.arrays["qpos"])
  np.testing.assert_array_equal(again.arrays["qpos"], trace.arrays["qpos"][:rows])
  np.testing.assert_array_equal(fresh.arrays["qpos"], again.arrays["qpos"])
  other = walk(bundle, replace(CFG, seed=5), straight(0.5, 0.3))
  assert np.abs(other.arrays["qpos"] - again.arrays["qpos"]).max() > 1e-6


def test_motors_without_strength_fall_and_it_is_counted(bundle):
  trace = walk(bundle, SimCfg(motor_strength=0.15), straight(0.5, 6.0))
  assert trace.fell and trace.stop_reason and not trace.intervened
  assert trace.seconds < 6.0
  found = measure(trace, bundle)
  assert found["fell"] and json.dumps(found, allow_nan=False)


def test_command_of_a_plan_is_the_last_that_has_begun():
  plan = Walk(((1.0, 0.5, 0.0, 0.0), (2.0, 0.0, 0.1, 0.2)), 3.0)
  np.testing.assert_array_equal(plan.at(0.5), (0, 0, 0))
  np.testing.assert_array_equal(plan.at(1.0), (0.5, 0, 0))
  np.testing.assert_array_equal(plan.at(2.5), (0, 0.1, 0.2))


def test_operator_steers_back_to_the_line(bundle, robot):
  robot.reset()
  from decap.deploy.sim2sim import _Recorder

  operator = _Recorder(robot, straight(0.5, 2.0), bundle.joint_names)
  operator._walking, operator._policy_s = True, -10.0
  robot.data.qpos[1] = 1.0  # Left of its line: turn right.
  assert operator.poll(0.0, None).stick[2] == pytest.approx(-0.4)
  robot.data.qpos[1] = 0.0
  robot.data.qpos[3:7] = (
    np.cos(0.1),
    0,
    0,
    np.sin(0.1),
  )  # Heading 0.2 rad to the left.
  assert operator.poll(0.0, None).stick[2] == pytest.approx(-0.2)


def test_a_robot_that_never_walks_is_refused(bundle):
  robot = SimulatedRobot(MOTORS, CFG)
  robot.read = lambda: None  # A dead network.
  with pytest.raises(UserError, match="did not get as far as walking"):
    walk(bundle, CFG, straight(0.5, 0.5), robot)


def test_trace_is_written_with_all_that_it_holds(trace, tmp_path):
  trace.save(tmp_path / "walk.npz")
  with np.load(tmp_path / "walk.npz") as saved:
    assert tuple(saved["joint_names"]) == trace.joint_names
    np.testing.assert_array_equal(saved["q"], trace.arrays["q"])
    np.testing.assert_array_equal(saved["gyro_head_rad_s"], trace.gyros["head"][1])


def test_leaving_the_course_is_an_intervention(bundle, monkeypatch):
  monkeypatch.setattr(grounds, "WIDTH_M", 0.0)
  trace = walk(bundle, replace(CFG, terrain="slope"), straight(0.5, 1.0))
  assert trace.intervened and trace.stop_reason == "left the course"
  endless = walk(bundle, replace(CFG, terrain="carpet"), straight(0.5, 0.1))
  assert not endless.intervened
