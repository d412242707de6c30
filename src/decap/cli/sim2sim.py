"""``decap sim2sim``: the simulated robot under the controller that drives the real one.

``decap sim2sim BUNDLE`` walks once; ``table``, ``sweep`` and ``fidelity`` before the
bundles measure them.
"""

from __future__ import annotations

import importlib.util
import json
import time
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import OmitArgPrefixes, Positional, arg

from decap.deploy.sim_cfg import SimCfg
from decap.errors import UserError
from decap.files import check_writable, write_text
from decap.options import machine
from decap.options.args import Args, above, at_least, at_most, refuse_idle
from decap.options.types import Flag, Number, OutputFile, Port, VideoFile, shown


@dataclass(kw_only=True)
class WalkArgs:
  """One walk."""

  speed: Number = 0.5
  """Forward command, m/s."""
  seconds: Annotated[float, above(0), at_most(3600)] = 10.0
  """Length of the walk."""
  video: VideoFile = None
  """Record to .mp4 or .gif without a display."""
  ego: Flag = False
  """Video through the head's camera."""
  trace: OutputFile = None
  """Write everything as .npz."""
  view: Flag = False
  """In the browser, with sliders for the command."""
  port: Port = 8080
  """Port of --view."""


@dataclass(kw_only=True)
class MeasureArgs:
  """Of table and sweep; fidelity takes --out alone."""

  repeats: Annotated[int, at_least(1)] = 3
  """Walks per case."""
  jobs: Annotated[int, at_least(1)] = 1
  """Processes."""
  out: Annotated[str, arg(metavar="DIR")] = "results/sim2sim"
  """Where results go."""
  reuse: Flag = False
  """Take results of the same policy from --out."""


def _names(options: Any) -> tuple[str, ...]:
  return tuple(option.name for option in fields(options))


USES = {
  "": _names(SimCfg) + _names(WalkArgs),
  "table": _names(SimCfg) + _names(MeasureArgs),
  "sweep": _names(MeasureArgs),
  "fidelity": ("out",),
}
"""What to do, "" for a walk → the options that it takes; others would do nothing."""


@dataclass(kw_only=True)
class Sim2simArgs(Args):
  """Bundles, what to do with them, and what robot and world are like."""

  what: Positional[Annotated[tuple[str, ...], shown("BUNDLE [BUNDLE ...]")]]
  """Policy bundle to walk; or one of table, sweep, fidelity, then bundles."""
  world: OmitArgPrefixes[SimCfg] = SimCfg()
  """Robot and world."""
  walk: OmitArgPrefixes[WalkArgs] = field(default_factory=WalkArgs)
  """One walk."""
  measurement: OmitArgPrefixes[MeasureArgs] = field(default_factory=MeasureArgs)
  """Table and sweep; fidelity takes --out alone."""

  def check(self) -> None:
    action, sources = self.split()
    if not sources:
      raise UserError(f"'decap sim2sim {action}' needs at least one bundle.")
    if not action and len(sources) > 1 and not self.walk.video:
      raise UserError("Several bundles make a video side by side: give --video too.")
    self.check_effects(action)
    if self.walk.trace and len(sources) > 1:
      raise UserError("--trace is of one bundle, and would be written by each.")
    if self.walk.video or self.walk.view:
      package = "mediapy" if self.walk.video else "mjviser"
      machine.check_installed(package, "--video and --view")
    if self.walk.video:
      machine.check_renderer(draws=True)
    self.world.check()

  def check_effects(self, action: str) -> None:
    """Refuse options that would do nothing."""
    given = {
      option.name
      for part in (self.world, self.walk, self.measurement)
      for option in fields(part)
      if getattr(part, option.name) != option.default
    }
    for name in sorted(given.difference(USES[action])):
      option = f"--{name.replace('_', '-')}"
      raise UserError(f"'decap sim2sim {action or 'BUNDLE'}' takes no {option}.")
    for name in ("video", "trace", "speed", "seconds"):
      if given >= {"view", name}:
        raise UserError(f"--view and --{name} exclude each other.")
    if not self.walk.video:
      refuse_idle(self.walk, ("ego",), "--video")
    if not self.walk.view:
      refuse_idle(self.walk, ("port",), "--view")

  def split(self) -> tuple[str, tuple[str, ...]]:
    """What to do, "" for a walk, and the bundles."""
    if self.what and self.what[0] in USES:
      return self.what[0], self.what[1:]
    return "", self.what

  def run(self) -> None:
    """Load all bundles, then walk."""
    action, sources = self.split()
    from decap.deploy.session import load_policies

    bundles = [bundle for source in sources for bundle in load_policies([source])[0]]
    cfg = self.world
    if action:
      check_writable(self.measurement.out)
      measure = {"table": _table, "sweep": _sweep, "fidelity": _fidelity}[action]
      measure(bundles, cfg, self.measurement)
    elif self.walk.view:
      from decap.deploy.viewer import Viewer

      print("Open the address below in a browser; Ctrl-C ends.", flush=True)
      Viewer(bundles[0], cfg, self.walk.port).run()
    else:
      _walk(bundles, cfg, self.walk)


def _walk(bundles: list[Any], cfg: Any, options: WalkArgs) -> None:
  from decap.deploy.measure import body_groups, followed, gyro_rms, joint_metrics
  from decap.deploy.sim2sim import SETTLE_S, STAND_S, straight, walk

  plan = straight(options.speed, options.seconds)
  clips = []
  for bundle in bundles:
    started = time.perf_counter()
    trace = walk(bundle, cfg, plan)
    simulated_s = STAND_S + SETTLE_S + trace.seconds
    factor = simulated_s / (time.perf_counter() - started)
    end = "fell" if trace.fell else trace.stop_reason or "walked to the end"
    share = followed(trace)  # Not a number where it fell before it was told to walk.
    told = f"{100 * share:.0f} % of the command followed; " if share == share else ""
    print(
      f"{bundle.name} on {cfg.terrain}: {end} after {trace.seconds:.1f} s and "
      f"{trace.distance():.2f} m; {told}{factor:.1f} × real time"
    )
    for group, values in joint_metrics(trace, body_groups(bundle)).items():
      numbers = ", ".join(f"{name} {value:.2f}" for name, value in values.items())
      print(f"  {group}: {numbers}")
    rms = ", ".join(f"{site} {value:.2f}" for site, value in gyro_rms(trace).items())
    print(f"  angular velocity, rad/s: {rms}")
    if options.trace:
      trace.save(Path(options.trace))
      print(f"  wrote {options.trace}")
    clips.append((bundle.name, trace))
  if options.video:
    _record(clips, cfg, options)


def _record(clips: list[tuple[str, Any]], cfg: Any, options: WalkArgs) -> None:
  from decap.deploy import video

  path = Path(options.video or "")
  fps = video.FPS[path.suffix]
  camera = video.HEAD_CAMERA if options.ego else "follow"
  print("Rendering …", flush=True)
  size = (640, 480) if len(clips) == 1 else (400, 300)
  drawn = []
  for name, trace in clips:
    if not trace.seconds:
      why = trace.stop_reason or "it fell"
      raise UserError(f"{name} ended before its walk began ({why}): nothing to show.")
    frames = video.render(trace, cfg, camera, size, fps=fps)
    if options.ego:
      frames = video.caption(frames, video.head_speeds(trace, fps))
    drawn.append((name, frames))
  video.write(path, video.side_by_side(drawn), fps)
  print(f"Wrote {options.video}")


def _table(bundles: list[Any], cfg: Any, options: MeasureArgs) -> None:
  from decap.evaluation import robot_tables, robustness

  folder, repeats = Path(options.out), options.repeats
  terms = robot_tables.protocol(repeats, cfg)
  # Of those policies that there is a sweep of; read before the walks, which take long.
  earlier = (robot_tables.stored(b, folder, robustness.SUFFIX) for b in bundles)
  sweeps, results = list(filter(None, earlier)), []
  for bundle in bundles:
    found = options.reuse and robot_tables.stored(bundle, folder, protocol=terms)
    if not found:
      found = robot_tables.measure_policy(bundle, repeats, cfg, options.jobs, _say)
      print(f"Wrote {robot_tables.save(found, folder)}")
    results.append(found)
  margins = ["## Margins", "", *robustness.margin_table(sweeps), ""] if sweeps else []
  _write_page(folder / "tables.md", robot_tables.tables(results), *margins)
  _draw("figures", results, folder)


def _sweep(bundles: list[Any], cfg: Any, options: MeasureArgs) -> None:
  from decap.evaluation import robot_tables, robustness

  del cfg  # A sweep has its own.
  folder, repeats, suffix = Path(options.out), options.repeats, robustness.SUFFIX
  sweeps = []
  for bundle in bundles:
    same = (bundle, folder, suffix)
    found = options.reuse and robot_tables.stored(*same, repeats=repeats)
    if not found:
      found = robustness.sweep_policy(bundle, repeats, options.jobs, _say)
      print(f"Wrote {robot_tables.save(found, folder, suffix)}")
    sweeps.append(found)
  table = robustness.margin_table(sweeps)
  _write_page(folder / "margins.md", "# Margins", "", *table, "")
  _draw("margins", sweeps, folder)


def _fidelity(bundles: list[Any], cfg: Any, options: MeasureArgs) -> None:
  del cfg  # Without noise and delay, as training's own play variant.
  machine.check_installed("mjlab", "'decap sim2sim fidelity'")
  from decap.evaluation import fidelity

  folder, found = Path(options.out), []
  for bundle in bundles:
    _say(f"{bundle.name}: the same walks in both simulators …")
    found.append(fidelity.compare(bundle))
  write_text(folder / "fidelity.json", json.dumps(found, indent=1) + "\n")
  table = fidelity.fidelity_table(found)
  _write_page(folder / "fidelity.md", "# Fidelity", "", *table, "")


def _write_page(path: Path, *lines: str) -> None:
  text = "\n".join(lines)
  write_text(path, text)
  print(f"\n{text}\nWrote {path}")


def _draw(kind: str, data: list[Any], folder: Path) -> None:
  """Figures where matplotlib is; tables alone otherwise."""
  if importlib.util.find_spec("matplotlib") is None:
    print("No figures: matplotlib is not installed.")
    return
  from decap.evaluation.robot_figures import figures, survival

  drawn = figures(data) if kind == "figures" else {"margins": survival(data)}
  for name, figure in drawn.items():
    path = folder / f"{name}.svg"
    figure.savefig(path)
    print(f"Wrote {path}")


_say = partial(print, flush=True)
