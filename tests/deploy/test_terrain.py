import math

import mujoco
import numpy as np
import pytest

from decap.deploy.grounds import CELL_M, GROUNDS, TERRAINS
from decap.deploy.sim_cfg import SimCfg
from decap.deploy.terrain import add_terrain, ground_height
from decap.errors import UserError


def compiled(name: str, friction: float | None = None):
  spec = mujoco.MjSpec()
  add_terrain(spec, name, friction)
  model = spec.compile()
  data = mujoco.MjData(model)
  mujoco.mj_forward(model, data)
  return model, data


def heights(name: str, xs) -> np.ndarray:
  model, data = compiled(name)
  return np.array([ground_height(model, data, x, 0.013, 3.0) for x in xs])


@pytest.mark.parametrize("name", TERRAINS)
def test_starts_level_and_has_priority_over_feet(name: str):
  model, _ = compiled(name)
  np.testing.assert_allclose(heights(name, (-0.3, 0.0, 0.3)), 0.0, atol=1e-6)
  assert (model.geom_priority == 2).all()
  assert (model.geom_group == 0).all()


@pytest.mark.parametrize(("name", "sign"), [("slope", 1), ("inverse-slope", -1)])
def test_slopes_are_steeper_than_eight_degrees(name: str, sign: int):
  rise = np.diff(heights(name, (3.0, 13.0)))[0]
  angle = math.degrees(math.atan2(rise, 10.0))
  assert np.isclose(angle, sign * 10.0, atol=1e-3)


def test_gravel_has_small_cells_and_stones_of_two_centimetres():
  model, _ = compiled("gravel")
  half_x, half_y, top, _ = model.hfield_size[0]
  assert 2 * half_x / (model.hfield_ncol[0] - 1) <= CELL_M + 1e-9
  assert 2 * half_y / (model.hfield_nrow[0] - 1) <= CELL_M + 1e-9
  assert np.ptp(model.hfield_data) * top >= 0.02 - 1e-9


def test_transitions_meet_without_steps_beyond_the_stones():
  xs = np.arange(0.0, 12.0, 0.01)
  steps = np.abs(np.diff(heights("transitions", xs)))
  stones = GROUNDS["gravel"].stone_m
  assert steps.max() <= stones + 0.01 * math.tan(math.radians(10.0)) + 1e-6
  kinds = {kind for kind, _ in TERRAINS["transitions"].stretches}
  assert {"carpet", "grass", "gravel", "slope", "inverse-slope"} <= kinds


def test_friction_can_be_replaced():
  model, _ = compiled("grass", friction=0.35)
  assert model.geom_friction[0, 0] == 0.35
  model, _ = compiled("grass")
  assert model.geom_friction[0, 0] == GROUNDS["grass"].friction


def test_unknown_terrain_is_refused_with_the_known_ones():
  with pytest.raises(UserError, match="lava.*carpet.*transitions"):
    SimCfg(terrain="lava").check()


def test_courses_end_where_their_ground_does():
  assert TERRAINS["flat"].holds(1e3, 1e3)
  course = TERRAINS["gravel"]  # From the pad's end at 1 m on, 20 m of it.
  assert course.holds(20.9, 3.9) and course.holds(20.4, 3.4, margin_m=0.5)
  assert not course.holds(21.1, 0.0) and not course.holds(0.0, -4.1)
  assert not course.holds(20.6, 0.0, margin_m=0.5)
  model, data = compiled("gravel")
  for x, ground in ((20.9, True), (21.1, False)):
    height = ground_height(model, data, x, 0.0, 1.0)
    assert (height > -0.1) == ground
