"""``decap sim2sim``: the simulated robot under the controller that drives the real one.

``decap sim2sim BUNDLE`` walks once; ``table``, ``sweep`` and ``fidelity`` before the
bundles measure them.
"""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import OmitArgPrefixes, Suppress, arg

from decap.deploy.sim_cfg import SimCfg
from decap.errors import UserError
from decap.files import check_writable, write_text
from decap.options import machine
from decap.options.args import (
  Args,
  above,
  at_least,
  at_most,
  refuse_idle,
  require_some,
)
from decap.options.types import Bundles, Flag, Number, OutputFile, Port, VideoFile


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
class FidelityArgs(Args):
  """The same walks in the simulator of training."""

  bundles: Bundles
  """Policy bundles."""
  out: Annotated[str, arg(metavar="DIR")] = "results/sim2sim"
  """Where results go."""

  def check(self) -> None:
    require_some("BUNDLE", self.bundles)

  def run(self) -> None:
    bundles = _load(self.bundles)
    check_writable(self.out)
    self.measure(bundles)

  def measure(self, bundles: list[Any]) -> None:
    """Walk, and write pages, files and figures."""
    _fidelity(bundles, Path(self.out))


@dataclass(kw_only=True)
class MarginArgs(FidelityArgs):
  """How far delay, payload, friction, strength and noise can go before policies fall."""

  repeats: Annotated[int, at_least(1)] = 3
  """Walks per case."""
  jobs: Annotated[int, at_least(1)] = 1
  """Processes."""
  reuse: Flag = False
  """Take results of the same policy from --out."""

  def measure(self, bundles: list[Any]) -> None:
    _sweep(bundles, self)


@dataclass(frozen=True)
class TableWorld(SimCfg):
  """Robot and world; the tables have grounds and loads of their own."""

  terrain: Suppress[str] = field(init=False, default="flat")
  payload_kg: Suppress[float] = field(init=False, default=0.0)


@dataclass(kw_only=True)
class TableArgs(MarginArgs):
  """The paper's robot tables: all grounds, without and with a load."""

  world: OmitArgPrefixes[TableWorld] = TableWorld()
  """Robot and world."""

  def check(self) -> None:
    super().check()
    self.world.check()

  def measure(self, bundles: list[Any]) -> None:
    _table(bundles, SimCfg(**asdict(self.world)), self)


@dataclass(kw_only=True)
class Sim2simArgs(Args):
  """Bundles, and what robot, world and walk are like."""

  modes = {"table": TableArgs, "sweep": MarginArgs, "fidelity": FidelityArgs}

  bundles: Bundles
  """Policy bundles to walk. Before bundles, table, sweep or fidelity measures them;
  'decap sim2sim table --help' shows how."""
  world: OmitArgPrefixes[SimCfg] = SimCfg()
  """Robot and world."""
  walk: OmitArgPrefixes[WalkArgs] = field(default_factory=WalkArgs)
  """One walk."""

  def check(self) -> None:
    require_some("BUNDLE", self.bundles)
    if len(self.bundles) > 1 and not self.walk.video:
      raise UserError("Several bundles make a video side by side: give --video too.")
    self.check_effects()
    if self.walk.trace and len(self.bundles) > 1:
      raise UserError("--trace is of one bundle, and would be written by each.")
    if self.walk.video or self.walk.view:
      package = "mediapy" if self.walk.video else "mjviser"
      machine.check_installed(package, "--video and --view")
    if self.walk.video:
      machine.check_renderer(draws=True)
    self.world.check()

  def check_effects(self) -> None:
    """Refuse options that would do nothing."""
    for option in fields(self.walk) if self.walk.view else ():
      given = getattr(self.walk, option.name) != option.default
      if given and option.name in ("video", "trace", "speed", "seconds"):
        raise UserError(f"--view and --{option.name} exclude each other.")
    if not self.walk.video:
      refuse_idle(self.walk, ("ego",), "--video")
    if not self.walk.view:
      refuse_idle(self.walk, ("port",), "--view")

  def run(self) -> None:
    """Load all bundles, then walk."""
    bundles = _load(self.bundles)
    if self.walk.view:
      from decap.deploy.viewer import Viewer

      print("Open the address below in a browser; Ctrl-C ends.", flush=True)
      Viewer(bundles[0], self.world, self.walk.port).run()
    else:
      _walk(bundles, self.world, self.walk)


def _load(sources: Sequence[str]) -> list[Any]:
  """Bundles, which may be of different robots."""
  from decap.deploy.session import load_policies

  return [bundle for source in sources for bundle in load_policies([source])[0]]


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


def _table(bundles: list[Any], cfg: SimCfg, options: TableArgs) -> None:
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


def _sweep(bundles: list[Any], options: MarginArgs) -> None:
  from decap.evaluation import robot_tables, robustness

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


def _fidelity(bundles: list[Any], folder: Path) -> None:
  """Without noise and delay, as training's own play variant."""
  machine.check_installed("mjlab", "'decap sim2sim fidelity'")
  from decap.evaluation import fidelity

  found = []
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
