"""One HTML file that opens offline: tables, figures, playback and how it was made."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from decap.evaluation import plots
from decap.evaluation.layout import title
from decap.evaluation.protocol import Protocol, file_names
from decap.evaluation.results import Result
from decap.evaluation.table_formats import to_html
from decap.evaluation.tables import MethodResults, Table
from decap.evaluation.trajectory import Trajectory, load_trajectory

CLIP_S, FRAME_S = 10.0, 0.04
"""Length of the playback, and time between its pictures."""


def make_report(
  methods: Sequence[MethodResults], tables: Sequence[Table], command: str
) -> str:
  """The page as text; `command` is what makes it again."""
  first = {method.label: method.results[0] for method in methods}
  recorded = find_trajectories(first)
  clips = {name: data for name, t in recorded.items() if (data := clip(t)) is not None}
  figures = "".join(_figures(first, recorded, find_training(methods)))
  several = any(len(method.results) > 1 for method in methods)
  note = "Of each row the first seed, but for training curves." if several else ""
  sections = [
    tables_section("Results", tables),
    _section("Playback", playback_html(clips) if clips else _missing("playback")),
    _section("Figures", f'{_note(note)}<div class="figures">{figures}</div>'),
    _section("Configuration", _configuration(methods, command)),
  ]
  return make_page("Smoothness of locomotion policies", ", ".join(first), sections)


def make_page(title: str, lead: str, sections: Sequence[str]) -> str:
  """A page of sections in the report's style."""
  style = Path(__file__).with_name("report.css").read_text("utf-8")
  head = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    f"<title>{html.escape(title)}</title><style>\n{style}</style></head>"
  )
  body = (
    f"<header><h1>{html.escape(title)}</h1><p>{html.escape(lead)}</p></header>"
    + "\n".join(sections)
  )
  return f"{head}<body><main>{body}</main></body></html>\n"


def tables_section(title: str, tables: Sequence[Table]) -> str:
  """A section of `make_page` with tables under one note."""
  parts = [_note(tables[0].note)]
  parts += [
    f"<h3>{html.escape(table.title)}</h3>"
    f'<div class="scroll" tabindex="0">{to_html(table)}</div>'
    for table in tables
  ]
  return _section(title, "\n".join(parts))


def find_trajectories(
  results: Mapping[str, Result], switching: bool = False
) -> dict[str, Trajectory]:
  """Trajectory files beside metrics files, or those of switching commands and pushes."""
  found = {}
  for label, result in results.items():
    if result.path is None:
      continue
    name = result.path.stem.replace("metrics", "trajectory", 1) + ".npz"
    if switching:
      protocol = Protocol(result.protocol["task"], commands="switching", disturbed=True)
      name = file_names(protocol.label_for(result.policy.get("task")))[1]
    if (path := result.path.with_name(name)).is_file():
      found[label] = load_trajectory(path)
  return found


def find_training(methods: Sequence[MethodResults]) -> dict[str, Path]:
  """Run folders with TensorBoard events, by the label of their method and seed."""
  folders = {}
  for method in methods:
    for result in method.results:
      if result.path and any(result.path.parent.glob("events.out.tfevents.*")):
        seed = f" s{result.policy.get('seed')}" if len(method.results) > 1 else ""
        folders[f"{method.label}{seed}"] = result.path.parent
  return folders


# Sections.


def _section(title: str, content: str) -> str:
  return f"<section><h2>{html.escape(title)}</h2>\n{content}\n</section>"


def _note(text: str) -> str:
  return f'<p class="note">{html.escape(text)}</p>' if text else ""


def _figures(
  results: Mapping[str, Result],
  trajectories: Mapping[str, Trajectory],
  training: Mapping[str, Path],
) -> Iterator[str]:
  layout = next(iter(results.values())).layout
  if any(result.metrics.get("response") for result in results.values()):
    yield _figure(
      plots.response(results),
      "Achieved against commanded velocity; grey: all of it; lines: random commands; "
      "dots: one command throughout",
    )
  if switching := find_trajectories(results, switching=True) or trajectories:
    caption = "Velocity tracking; grey dotted lines: pushes"
    yield _figure(plots.velocity_tracking(switching), caption)
  else:
    yield _missing("figures of tracking and traces")
  for quantity in layout.limits if trajectories else ():
    largest = f"Largest {title(quantity).lower()} of each group"
    name = title(quantity) if quantity in layout.scalars else largest
    yield _figure(plots.traces(trajectories, quantity), f"{name}; limits dashed")
  caption = "Distribution of each quantity against its limit, over all joint-steps"
  yield _figure(plots.distributions(results), caption)
  for quantity in layout.joint_quantities:
    caption = f"Violations of {title(quantity).lower()} by joint"
    yield _figure(plots.joint_violations(results, quantity), caption)
  yield _figure(plots.spectra(results), "Power spectra, mean over joints")
  if training:
    yield _figure(plots.training_curves(training), "Training curves")


def _figure(figure: Figure, caption: str) -> str:
  buffer = io.BytesIO()
  figure.savefig(buffer, format="svg", metadata={"Date": None})
  data = base64.b64encode(buffer.getvalue()).decode()
  text = html.escape(caption)
  return (
    f'<figure><div class="scroll" tabindex="0"><img alt="{text}" '
    f'src="data:image/svg+xml;base64,{data}"></div>'
    f"<figcaption>{text}</figcaption></figure>"
  )


def _missing(what: str) -> str:
  return (
    f'<p class="missing">Without a recorded trajectory there is no {html.escape(what)}:'
    " evaluate with <code>--trajectory 1</code> or more.</p>"
  )


def _configuration(methods: Sequence[MethodResults], command: str) -> str:
  results = [result for method in methods for result in method.results]
  engines = {f"{r.engine.get('backend')} on {r.engine.get('device')}" for r in results}
  versions: dict[str, str] = {}
  for name in dict.fromkeys(n for r in results for n in r.versions):
    found = {r.versions[name] for r in results if name in r.versions}
    versions[name] = " and ".join(sorted(found))
  told = {
    "command": command,
    "policies": {
      method.label: [r.policy for r in method.results] for method in methods
    },
    "physics": sorted(engines),
    "protocol": results[0].protocol,
    "limits": results[0].layout.limits,
    "versions": versions,
  }
  return f"<pre>{html.escape(json.dumps(told, indent=2, ensure_ascii=False))}</pre>"


# Playback: stick figures on a canvas.


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
  broken = ~np.isfinite(trajectory.points).all((2, 3))  # [T, B]
  env = int((ended | broken)[start : stop - 1].sum(0).argmin())
  stride = max(1, round(FRAME_S / dt))
  frames = slice(start, stop, stride)
  points = trajectory.points[frames, env].astype(np.float64)  # [F, P, 3]
  points = np.nan_to_num(points)
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
    "speeds": np.round(np.nan_to_num(speeds).astype(np.float64), 2).tolist(),
  }


def playback_html(clips: Mapping[str, dict[str, Any]]) -> str:
  """Canvases for the clips, their controls and the script that moves them."""
  figures = "\n".join(
    f'<figure class="clip"><canvas data-clip="{i}" role="img" '
    f'aria-label="Playback"></canvas><figcaption></figcaption></figure>'
    for i in range(len(clips))
  )
  data = [{"label": label, **clip} for label, clip in clips.items()]
  text = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
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
