"""Videos of walks, drawn afterwards from their traces: no display, no hurry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import mujoco
import numpy as np

from decap.deploy.looks import build_looks
from decap.deploy.measure import speed_over_time
from decap.deploy.robots import motors_for
from decap.deploy.sim2sim import Trace
from decap.deploy.simulation import SimCfg
from decap.files import replacing

FPS = {".mp4": 25.0, ".gif": 12.5}
HEAD_CAMERA = "head_camera"


def render(
  trace: Trace,
  cfg: SimCfg,
  camera: str = "follow",
  size: tuple[int, int] = (640, 480),
  fps: float = FPS[".mp4"],
) -> list[np.ndarray]:
  """Frames [H, W, 3] of a walk.

  Args:
    camera: "follow" for one beside the robot, or a camera of the model.
    size: Width and height in pixels.
  """
  model = build_looks(motors_for(trace.joint_names), cfg)
  data = mujoco.MjData(model)
  view = _follow() if camera == "follow" else camera
  frames = []
  with mujoco.Renderer(model, size[1], size[0]) as renderer:
    renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False
    renderer.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
    for row in trace.arrays["qpos"][:: _stride(trace, fps)]:
      data.qpos[:] = row
      mujoco.mj_forward(model, data)
      if isinstance(view, mujoco.MjvCamera):
        view.lookat[:] = (row[0], row[1], row[2] - 0.1)
      renderer.update_scene(data, camera=view)
      frames.append(renderer.render().copy())
  return frames


def head_speeds(trace: Trace, fps: float) -> list[str]:
  """How fast the head turned in the last second, frame by frame: what makes it blur."""
  squares = speed_over_time(trace, "head") ** 2
  steps = round(1.0 / trace.control_dt_s)
  return [
    f"head {np.sqrt(squares[max(0, k + 1 - steps) : k + 1].mean()):.1f} rad/s"
    for k in range(0, len(squares), _stride(trace, fps))
  ]


def side_by_side(clips: Sequence[tuple[str, list[np.ndarray]]]) -> list[np.ndarray]:
  """Clips in one row, each under its name; a shorter one stays on its last frame.

  One alone stays as it is.
  """
  if len(clips) == 1:
    return clips[0][1]
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


def caption(frames: list[np.ndarray], lines: Sequence[str]) -> list[np.ndarray]:
  """Frames with a line of text at the bottom, each with its own."""
  return [
    _titled(frame, line, bottom=True)
    for frame, line in zip(frames, lines, strict=False)
  ]


def write(path: Path, frames: list[np.ndarray], fps: float) -> None:
  """As .mp4 or .gif."""
  if path.suffix == ".gif":
    _write_gif(path, frames, fps)
    return
  import imageio_ffmpeg
  import mediapy

  mediapy.set_ffmpeg(imageio_ffmpeg.get_ffmpeg_exe())
  with replacing(path) as partial:
    mediapy.write_video(partial, frames, fps=fps, codec="h264")


def _write_gif(path: Path, frames: list[np.ndarray], fps: float) -> None:
  """One palette for all frames and no dithering: a third of what ffmpeg writes."""
  from PIL import Image

  picked = np.concatenate(frames[:: max(1, len(frames) // 8)])
  palette = Image.fromarray(picked).quantize(96, dither=Image.Dither.NONE)
  drawn = [
    Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)
    for frame in frames
  ]
  with replacing(path) as partial:
    drawn[0].save(
      partial,
      format="GIF",
      save_all=True,
      append_images=drawn[1:],
      duration=round(1000 / fps),
      loop=0,
    )


def _stride(trace: Trace, fps: float) -> int:
  """Control steps between two frames."""
  return max(1, round(1.0 / (fps * trace.control_dt_s)))


def _follow() -> mujoco.MjvCamera:
  camera = mujoco.MjvCamera()
  camera.type = mujoco.mjtCamera.mjCAMERA_FREE
  camera.distance, camera.elevation, camera.azimuth = 2.6, -10.0, 120.0
  return camera


def _titled(frame: np.ndarray, title: str, bottom: bool = False) -> np.ndarray:
  from PIL import Image, ImageDraw

  image = Image.fromarray(frame)
  draw = ImageDraw.Draw(image)
  _, _, right, low = map(int, draw.textbbox((6, 4), title))
  down = image.height - low - 4 if bottom else 0
  draw.rectangle((0, down, right + 6, down + low + 4), fill=(255, 255, 255))
  draw.text((6, 4 + down), title, fill=(0, 0, 0))
  return np.asarray(image)
