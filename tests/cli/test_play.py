"""What `decap play` tells the robot, and how it shows it."""

import numpy as np
import pytest
import torch

from decap.cli import main
from decap.deploy import video
from decap.envs.build import make_env
from decap.evaluation.environment import command_term
from decap.rl import checkpoint_files
from decap.tasks import env_cfg


class Handle:
  """A slider or button as viser has it: setting its value calls back."""

  def __init__(self, low=0.0, high=0.0, initial=0.0):
    self.min, self.max, self._value, self._calls = low, high, initial, []

  @property
  def value(self):
    return self._value

  @value.setter
  def value(self, value):
    assert self.min <= value <= self.max
    self._value = value
    for call in self._calls:
      call(None)

  def on_update(self, call):
    self._calls.append(call)

  on_click = on_update


class Server:
  def __init__(self):
    self.gui, self.sliders, self.button = self, [], Handle()

  def add_slider(self, label, low, high, step, initial):
    del label, step
    self.sliders.append(Handle(low, high, initial))
    return self.sliders[-1]

  def add_button(self, label):
    del label
    return self.button


def test_sliders_tell_the_robots_and_show_what_they_are_told():
  cfg = env_cfg("g1-flat", play=True)
  cfg.scene.num_envs = 2
  env, server = make_env(cfg, "cpu"), Server()
  term = command_term(env)
  term.tell((0.5, 0.0, 0.0))
  term.create_gui("twist", server, lambda: 0)
  assert [s.value for s in server.sliders] == [0.5, 0.0, 0.0]
  server.sliders[1].value = 0.25
  still = torch.zeros(2, env.action_manager.total_action_dim)
  env.reset()
  assert term.command.tolist() == [[0.5, 0.25, 0.0]] * 2
  term.tell((2.0, 0.0, 0.3))  # A schedule, beyond what training gave.
  env.step(still)
  np.testing.assert_allclose(term.command[1], [2.0, 0.0, 0.3])
  assert [s.value for s in server.sliders] == [2.0, 0.0, 0.3]
  server.button._calls[0](None)
  env.step(still)
  assert not term.command.any()
  env.close()


def test_a_gif_has_its_frames_and_captions(tmp_path):
  from PIL import Image

  grey = np.full((40, 80, 3), 90, np.uint8)
  frames = video.caption([grey, grey + 40, grey + 80], ["a", "b", "c"])
  assert frames[0][-3, 2].tolist() == [255] * 3 and frames[0][2, 2].tolist() == [90] * 3
  video.write(tmp_path / "x.gif", frames, 12.5)
  with Image.open(tmp_path / "x.gif") as image:
    assert (image.n_frames, image.size, image.info["duration"]) == (3, (80, 40), 80)


def test_mjlabs_own_play_runs_a_checkpoint(run, monkeypatch):
  import mjlab.tasks  # noqa: F401
  from mjlab.scripts import play

  import decap.tasks.registration  # noqa: F401
  from decap.sim.backend import simulation_backend

  steps = []

  class ShortViewer(play.ViserPlayViewer):
    def run(self, *args, **kwargs):
      super().run(num_steps=3)
      assert self._last_error is None
      steps.append(self._step_count)

  monkeypatch.setattr(play, "ViserPlayViewer", ShortViewer)
  path = str(checkpoint_files.resolve(run))
  cfg = play.PlayConfig(checkpoint_file=path, device="cpu", viewer="viser", num_envs=2)
  # Warp's kernels would compile for a minute.
  with simulation_backend("native"):
    play.run_play("Decap-G1-Flat", cfg)
  assert len(steps) == 1 and steps[0] >= 3  # Several at a time on a busy machine.


@pytest.mark.slow
@pytest.mark.parametrize("part", ["", "policy"])  # A run, a bundle.
def test_play_records_a_video(run, part, tmp_path):
  import imageio_ffmpeg

  video = tmp_path / "walk.mp4"
  options = ["--video", str(video), "--seconds", "0.2", "--device", "cpu"]
  assert main(["play", str(run / part), *options]) == 0
  # mediapy reads videos by an option that newer ffmpegs do not know.
  about, *frames = imageio_ffmpeg.read_frames(video)
  assert about["size"] == (640, 480) and len(frames) == 5
  assert np.frombuffer(frames[-1], np.uint8).std() > 10  # Not an empty picture.
  assert [p.name for p in tmp_path.iterdir()] == ["walk.mp4"]
