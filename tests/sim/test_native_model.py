"""Models without meshes that are only looked at move as they did with them."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from decap.sim.native_model import without_visual_geoms

BOXES = "".join(
  f'<geom type="box" size=".05 .05 .02" pos="{0.12 * (i % 8) - 0.4} '
  f'{0.12 * (i // 8) - 0.4} 0"/>'
  for i in range(64)
)
# The body's inertia is that of its visual geom, and boxes in its tree are in that frame.
SCENE = """
<mujoco>
  <asset>
    <mesh name="shown" vertex="0 0 0  .8 0 0  0 .2 0  0 0 .1  .8 .2 .1"/>
    <mesh name="touched" vertex="0 0 0  .1 0 0  0 .1 0  0 0 .1"/>
  </asset>
  <worldbody>
    {boxes}
    <body pos="0 0 .3">
      <freejoint/>
      <geom type="mesh" mesh="shown" {shown} pos=".2 0 .3" euler="10 20 30"/>
      <geom type="mesh" mesh="touched" mass=".001" pos="-.1 -.1 -.05"/>
      <geom type="sphere" size=".05" pos="0 0 -.05" mass=".001"/>
      <geom type="sphere" size=".05" pos=".15 0 -.05" mass=".001"/>
      <geom type="sphere" size=".05" pos="0 .15 -.05" mass=".001"/>
      <site name="eye"/>
    </body>
  </worldbody>
  <sensor>{sensor}</sensor>
</mujoco>
"""
PICTURE = 'contype="0" conaffinity="0"'


def compiled(shown: str = PICTURE, sensor: str = "") -> tuple:
  text = SCENE.format(boxes=BOXES, shown=shown, sensor=sensor)
  spec = mujoco.MjSpec.from_string(text)
  return spec.compile(), spec


def test_a_body_keeps_the_inertia_of_its_visual_geom_and_its_contacts():
  model, spec = compiled()
  light = without_visual_geoms(model, spec)
  assert (model.nmesh, light.nmesh) == (2, 1)
  assert light.stat.meaninertia == model.stat.meaninertia
  for name in ("body_inertia", "body_ipos", "body_iquat", "geom_pos", "dof_M0"):
    np.testing.assert_array_equal(getattr(light, name), getattr(model, name))
  touched, data = 0, [mujoco.MjData(m) for m in (model, light)]
  for _ in range(300):
    for m, d in zip((model, light), data, strict=True):
      mujoco.mj_step(m, d)
    touched += data[0].ncon
    assert data[0].ncon == data[1].ncon
  assert touched > 100
  np.testing.assert_allclose(data[0].qpos, data[1].qpos, atol=1e-9)


@pytest.mark.parametrize(
  ("shown", "sensor"),
  [
    ("", ""),
    (PICTURE, '<rangefinder site="eye"/>'),
    (PICTURE + ' fluidshape="ellipsoid"', ""),
  ],
)
def test_what_is_touched_seen_or_drags_is_no_visual_geom(shown, sensor):
  model, spec = compiled(shown, sensor)
  assert without_visual_geoms(model, spec) is model
