"""Pictures of walks; they need a renderer, which some machines do not have."""

import dataclasses
import socket

import mujoco
import numpy as np
import pytest

from decap.deploy import looks, video
from decap.deploy.bundle import load_bundle
from decap.deploy.sim2sim import Trace, straight, walk
from decap.deploy.simulation import SimCfg, SimulatedRobot
from decap.deploy.states import Mode
from tests.deploy.robots import MOTORS, POLICY


@pytest.fixture(scope="module", autouse=True)
def renderer():
  try:
    with mujoco.Renderer(mujoco.MjModel.from_xml_string("<mujoco/>"), 8, 8):
      pass
  except Exception as error:  # What it raises depends on the graphics library.
    pytest.skip(f"no renderer: {error}")


@pytest.fixture(scope="module")
def trace() -> Trace:
  return walk(load_bundle(POLICY), SimCfg(), straight(0.5, 0.1))


def test_looks_have_the_state_of_the_simulation(monkeypatch):
  for meshes in (True, False):
    if not meshes:
      monkeypatch.setattr(looks, "_mesh_file", lambda: None)
    cfg = SimCfg(terrain="transitions", payload_kg=1.2)
    shown, real = looks.build_looks(MOTORS, cfg), SimulatedRobot(MOTORS, cfg).model
    names = [real.joint(i).name for i in range(real.njnt)]
    assert [shown.joint(i).name for i in range(shown.njnt)] == names
    assert shown.nq == real.nq
    assert np.isclose(shown.body_mass.sum(), real.body_mass.sum())
    assert (shown.nmesh > 30) == meshes


@pytest.mark.parametrize("camera", ["follow", video.HEAD_CAMERA])
def test_frames_show_the_robot_and_the_ground(trace, monkeypatch, camera):
  monkeypatch.setattr(looks, "_mesh_file", lambda: None)  # Meshes are slow to draw.
  frames = video.render(trace, SimCfg(), camera, size=(96, 64))
  assert len(frames) == 3 and frames[0].shape == (64, 96, 3)  # 5 steps, every second.
  assert frames[0].std() > 5  # Not one colour.


def test_the_heads_speed_is_that_of_the_last_second(trace):
  """2 rad/s for a second and a half, then 4: in between the mean of the squares."""
  rate = 200
  times = np.arange(3 * rate) / rate
  turning = np.zeros((3 * rate, 3))
  turning[:, 1] = np.where(times < 1.5, 2.0, 4.0)
  steps = {"time_s": np.arange(150) * 0.02}
  made = dataclasses.replace(trace, arrays=steps, gyros={"head": (times, turning)})
  found = video.head_speeds(made, fps=10.0)  # Every fifth step.
  assert len(found) == 30
  assert found[0] == found[14] == "head 2.0 rad/s"
  # The frame of step 95, at 1.92 s: 21 of 50 steps with 4 rad/s.
  assert found[19] == f"head {np.sqrt((21 * 16 + 29 * 4) / 50):.1f} rad/s"
  assert found[-1] == "head 4.0 rad/s"


def test_clips_stand_side_by_side_and_wait_for_each_other():
  pytest.importorskip("PIL")
  dark, light = np.zeros((30, 40, 3), np.uint8), np.full((30, 40, 3), 200, np.uint8)
  frames = video.side_by_side([("a", [dark, dark]), ("b", [light])])
  assert len(frames) == 2 and frames[1].shape == (30, 80, 3)
  assert frames[1][25, 10, 0] == 0 and frames[1][25, 70, 0] == 200


def test_video_file_is_written(tmp_path):
  pytest.importorskip("mediapy")
  video.write(tmp_path / "x.gif", [np.zeros((32, 32, 3), np.uint8)] * 3, 12.5)
  assert (tmp_path / "x.gif").read_bytes()[:3] == b"GIF"


def test_viewer_walks_by_its_sliders(monkeypatch):
  pytest.importorskip("mjviser")
  from decap.deploy.viewer import Viewer

  monkeypatch.setattr(looks, "_mesh_file", lambda: None)
  with socket.socket() as free:
    free.bind(("localhost", 0))
    port = free.getsockname()[1]
  viewer = Viewer(load_bundle(POLICY), SimCfg(), port)
  try:
    assert viewer._server.get_host() == "localhost"
    assert [slider.max for slider in viewer.panel.sliders] == [1.0, 0.5, 0.5]
    viewer.panel.sliders[0].value = 0.5
    for _ in range(50):  # Two seconds.
      viewer._advance()
    controller = viewer._controller
    assert controller.machine.mode is Mode.POLICY and not viewer._robot.held
    assert controller.policy.observation[6] == pytest.approx(0.5)
    viewer.panel._pressed.add("stop")
    viewer._advance()
    assert controller.machine.mode is Mode.DAMPING
  finally:
    viewer._server.stop()
