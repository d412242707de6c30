"""Videos of walks, drawn afterwards from their traces: no display, no hurry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import mujoco
import numpy as np

from decap.deploy.looks import build_looks
from decap.deploy.sim2sim import Trace
from decap.deploy.simulation import SimCfg
from decap.files import replacing

FPS = 25
HEAD_CAMERA = "head_camera"


def render(
  trace: Trace,
  cfg: SimCfg,
  camera: str = "follow",
  size: tuple[int, int] = (640, 480),
  seconds: float | None = None,
) -> list[np.ndarray]:
  """Frames [H, W, 3] of a walk.

  Args:
    camera: "follow" for one beside the robot, or a camera of the model.
    size: Width and height in pixels.
    seconds: How much of the walk; all of it by default.
  """
  model = build_looks(len(trace.joint_names), cfg)
  data = mujoco.MjData(model)
  qpos = trace.arrays["qpos"]
  stride = max(1, round(1.0 / (FPS * trace.control_dt_s)))
  last = len(qpos) if seconds is None else round(seconds / trace.control_dt_s)
  view = _follow() if camera == "follow" else camera
  frames = []
  with mujoco.Renderer(model, size[1], size[0]) as renderer:
    renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False
    renderer.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
    for row in qpos[:last:stride]:
      data.qpos[:] = row
      mujoco.mj_forward(model, data)
      if isinstance(view, mujoco.MjvCamera):
        view.lookat[:] = (row[0], row[1], row[2] - 0.1)
      renderer.update_scene(data, camera=view)
      frames.append(renderer.render().copy())
  return frames


def side_by_side(clips: Sequence[tuple[str, list[np.ndarray]]]) -> list[np.ndarray]:
  """Clips in one row, each under its name; a shorter one stays on its last frame."""
  length = max(len(frames) for _, frames in clips)
  rows = []
  for index in range(length):
    frames = [frames[min(index, len(frames) - 1)] for _, frames in clips]
    rows.append(
      np.concatenate(
        [_titled(frame, name) for (name, _), frame in zip(clips, frames, strict=True)],
        axis=1,
      )
    )
  return rows


def write(path: Path, frames: list[np.ndarray]) -> None:
  """As .mp4 or .gif."""
  import imageio_ffmpeg
  import mediapy

  mediapy.set_ffmpeg(imageio_ffmpeg.get_ffmpeg_exe())
  codec = "gif" if path.suffix == ".gif" else "h264"
  with replacing(path) as partial:
    mediapy.write_video(partial, frames, fps=FPS, codec=codec)


def _follow() -> mujoco.MjvCamera:
  camera = mujoco.MjvCamera()
  camera.type = mujoco.mjtCamera.mjCAMERA_FREE
  camera.distance, camera.elevation, camera.azimuth = 2.6, -10.0, 120.0
  return camera


def _titled(frame: np.ndarray, title: str) -> np.ndarray:
  from PIL import Image, ImageDraw

  image = Image.fromarray(frame)
  draw = ImageDraw.Draw(image)
  draw.rectangle((0, 0, 12 + 7 * len(title), 20), fill=(255, 255, 255))
  draw.text((6, 4), title, fill=(0, 0, 0))
  return np.asarray(image)
