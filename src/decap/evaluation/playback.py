"""Animated playback of trajectories inside an HTML page: stick figures on a canvas."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from decap.evaluation.trajectory import Trajectory

CLIP_S = 10.0
FRAME_S = 0.04


def clip(trajectory: Trajectory) -> dict[str, Any] | None:
  """Ten seconds of the environment with the fewest resets, as data for the page.

  Positions are 16-bit millimetres relative to the first base position. None where the
  trajectory has no skeleton.
  """
  if "points" not in trajectory.arrays or not trajectory.skeleton:
    return None
  dt = trajectory.layout.control_dt
  start = min(int(trajectory.protocol.get("warmup", 0)), trajectory.num_steps - 1)
  stop = min(start + round(CLIP_S / dt), trajectory.num_steps)
  ended = trajectory.fell | trajectory.timed_out  # [T, B]
  env = int(ended[start : stop - 1].sum(0).argmin())
  stride = max(1, round(FRAME_S / dt))
  frames = slice(start, stop, stride)
  points = trajectory.points[frames, env].astype(np.float64)  # [F, P, 3]
  points[..., :2] -= points[0, 0, :2]
  millimetres = np.clip(np.round(points * 1000), -32768, 32767).astype("<i2")
  speeds = np.stack(
    (trajectory.command[frames, env, 0], trajectory.base_velocity[frames, env, 0]), 1
  )
  return {
    "dt": stride * dt,
    "count": points.shape[1],
    "parents": trajectory.skeleton["parents"],
    "groups": trajectory.skeleton.get("groups", [""] * points.shape[1]),
    "names": list(trajectory.layout.groups),
    "points": base64.b64encode(millimetres.tobytes()).decode(),
    "speeds": np.round(speeds.astype(np.float64), 2).tolist(),
  }


def playback_html(clips: Mapping[str, dict[str, Any]]) -> str:
  """Canvases for the clips, their controls and the script that moves them."""
  figures = "\n".join(
    f'<figure class="clip"><canvas data-clip="{i}" role="img" '
    f'aria-label="Playback"></canvas><figcaption></figcaption></figure>'
    for i in range(len(clips))
  )
  data = [{"label": label, **clip} for label, clip in clips.items()]
  text = json.dumps(data).replace("<", "\\u003c")
  script = Path(__file__).with_name("playback.js").read_text("utf-8")
  return (
    f'<div class="clips">{figures}</div>\n{_CONTROLS}\n'
    f'<script type="application/json" id="clips">{text}</script>\n'
    f"<script>\n{script}</script>"
  )


_CONTROLS = """<div class="controls">
<button type="button" id="play">Pause</button>
<input type="range" id="seek" min="0" max="1000" value="0" aria-label="Time">
<select id="speed" aria-label="Speed"><option value="0.25">¼ speed</option>
<option value="0.5">½ speed</option><option value="1" selected>real time</option></select>
<span class="hint">drag a figure to turn it</span>
</div>"""
