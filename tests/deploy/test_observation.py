"""Observations: each term is what training means by it, and others are refused."""

import copy

import numpy as np
import pytest

from decap.deploy.bundle import Bundle
from decap.deploy.observation import (
  Inputs,
  ObservationBuilder,
  clock,
  gravity_in_base,
)
from decap.errors import UserError

from .robots import J, released, state


def _inputs(**changes) -> Inputs:
  rng = np.random.default_rng(2)
  values = dict(
    state=state(gyro=np.array([0.1, 0.2, 0.3])),
    q=rng.normal(size=J),
    dq=rng.normal(size=J),
    command=np.array([0.5, -0.1, 0.2]),
    action=rng.normal(size=J),
    steps=10,
  )
  return Inputs(**{**values, **changes})


def _bundle(observations: list[dict]) -> Bundle:
  """The released bundle with other observations; its network is not asked."""
  bundle = copy.copy(released())
  bundle.info = {**bundle.info, "observations": observations}
  return bundle


def _term(name: str, dim: int, **extra) -> dict:
  return {
    "name": name,
    "dim": dim,
    "scale": [1.0] * dim,
    "clip": None,
    "meaning": "",
    **extra,
  }


def test_gravity_equals_a_rotation_matrix():
  rng = np.random.default_rng(0)
  assert gravity_in_base(np.array([1.0, 0, 0, 0])) == pytest.approx([0, 0, -1])
  for _ in range(20):
    w, x, y, z = q = (lambda v: v / np.linalg.norm(v))(rng.normal(size=4))
    third_row = [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]
    np.testing.assert_allclose(gravity_in_base(q), -np.array(third_row), atol=1e-12)


def test_the_released_policy_s_terms_come_in_its_order():
  inputs = _inputs()
  terms = {
    "base_ang_vel": [0.1, 0.2, 0.3],
    "projected_gravity": [0, 0, -1],
    "command": inputs.command,
    "joint_pos": inputs.q,
    "joint_vel": inputs.dq,
    "actions": inputs.action,
    "clock": clock(10, 0.02, 0.8),
  }
  bundle = released()
  expected = np.concatenate([terms[t.name] for t in bundle.observations])
  observation = ObservationBuilder(bundle).build(inputs)
  assert observation.dtype == np.float32
  np.testing.assert_allclose(observation[0], expected, rtol=1e-6)


def test_scale_comes_after_clip():
  bundle = _bundle([_term("command", 3, scale=[2.0, 2.0, 1.0], clip=[-0.2, 0.3])])
  observation = ObservationBuilder(bundle).build(_inputs())
  np.testing.assert_allclose(observation[0], [0.6, -0.2, 0.2], rtol=1e-6)


def test_the_clock_starts_at_zero_and_has_its_period():
  np.testing.assert_allclose(clock(0, 0.02, 0.8), [0.0, 1.0], atol=1e-12)
  np.testing.assert_allclose(clock(10, 0.02, 0.8), [1.0, 0.0], atol=1e-12)
  np.testing.assert_allclose(clock(40, 0.02, 0.8), [0.0, 1.0], atol=1e-12)
  bundle = _bundle([_term("clock", 2, period_s=0.8)])
  observation = ObservationBuilder(bundle).build(_inputs())
  np.testing.assert_allclose(observation[0], [1.0, 0.0], atol=1e-6)


@pytest.mark.parametrize(
  "term, message",
  [
    (_term("height_scan", 3), "'height_scan', which a robot cannot supply"),
    (_term("command", 4), "'command' has 4 entries; a robot supplies 3"),
    (_term("clock", 2), "needs a 'period_s' between 0.1 and 10 s, not None"),
    (_term("clock", 2, period_s=0), "needs a 'period_s'"),
  ],
)
def test_what_a_robot_cannot_supply_is_refused(term, message):
  with pytest.raises(UserError, match=message):
    ObservationBuilder(_bundle([term]))
