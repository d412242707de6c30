"""``decap sim2sim``: the simulated robot under the controller that drives the real one.

``decap sim2sim BUNDLE`` walks once; ``table``, ``sweep`` and ``fidelity`` before the
bundles measure them; ``terrains`` lists the grounds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import time
from pathlib import Path
from typing import Any

from decap.commands import checks
from decap.errors import UserError
from decap.files import check_writable, write_text

ACTIONS = ("table", "sweep", "fidelity", "terrains")
VIDEO_SUFFIXES = (".mp4", ".gif")


def add_options(parser: argparse.ArgumentParser) -> None:
  """Bundles, what to do with them, and what robot and world are like."""
  add = parser.add_argument
  add(
    "what",
    nargs="+",
    metavar="BUNDLE",
    help=f"policy bundle to walk; or one of {', '.join(ACTIONS)}, then bundles",
  )
  world = parser.add_argument_group("robot and world")
  add = world.add_argument
  add("--terrain", default="flat", metavar="NAME", help="see 'decap sim2sim terrains'")
  add(
    "--delay-ms", type=float, default=5.0, help="actuation delay, 0 to 20 (default: 5)"
  )
  add("--payload", type=float, default=0.0, metavar="KG", help="in the right hand")
  add("--friction", type=float, metavar="MU", help="of the ground (default: terrain's)")
  add("--joint-friction", type=float, default=0.0, help="share of the peak torque")
  add("--motor-strength", type=float, default=1.0, help="factor (default: 1)")
  add("--noise", type=float, default=1.0, help="factor on sensor noise (default: 1)")
  add("--push", type=float, default=0.0, metavar="M_S", help="push every five seconds")
  add("--seed", type=int, default=0, help="of noise, pushes and stones")
  one = parser.add_argument_group("one walk")
  add = one.add_argument
  add("--speed", type=float, default=0.5, help="forward command, m/s (default: 0.5)")
  add("--seconds", type=float, default=10.0, help="length of the walk (default: 10)")
  add("--video", metavar="FILE", help="record to .mp4 or .gif without a display")
  add("--ego", action="store_true", help="video through the head's camera")
  add("--trace", metavar="FILE", help="write everything as .npz")
  add(
    "--view", action="store_true", help="in the browser, with sliders for the command"
  )
  add("--port", type=int, default=8080, help="of --view (default: 8080)")
  many = parser.add_argument_group("table, sweep, fidelity")
  add = many.add_argument
  add("--repeats", type=int, default=3, help="walks per case (default: 3)")
  add("--jobs", type=int, default=1, metavar="N", help="processes (default: 1)")
  add("--out", default="results/sim2sim", metavar="DIR", help="where results go")
  add("--reuse", action="store_true", help="take results of the same policy from --out")


def run(options: argparse.Namespace) -> None:
  """Check everything first, then walk."""
  action, sources = _split(options.what)
  if action == "terrains":
    print(terrain_list())
    return
  checks.check_at_least("--repeats", options.repeats, 1)
  checks.check_at_least("--jobs", options.jobs, 1)
  checks.check_at_least("--seed", options.seed, 0)
  if options.video or options.view:
    checks.check_installed(
      "mediapy" if options.video else "mjviser", "--video and --view"
    )
  if options.video:
    _check_video(options)
    os.environ.setdefault("MUJOCO_GL", "egl")  # Before MuJoCo is imported.
  cfg = _config(options)
  bundles = [_load(source) for source in sources]
  if action == "":
    if len(bundles) > 1 and not options.video:
      raise UserError("Several bundles make a video side by side: give --video too.")
    if options.view:
      _view(bundles[0], cfg, options.port)
    else:
      _walk(bundles, cfg, options)
    return
  check_writable(options.out)
  {"table": _table, "sweep": _sweep, "fidelity": _fidelity}[action](
    bundles, cfg, options
  )


def terrain_list() -> str:
  """Terrains and the parameters of their grounds, as text."""
  from decap.deploy.terrain import GROUNDS, TERRAINS

  lines = ["terrains:"]
  lines += [f"  {name:<14} {course.text}" for name, course in TERRAINS.items()]
  lines.append("grounds:")
  for name, ground in GROUNDS.items():
    (constant, damping), impedance = ground.softness
    lines.append(
      f"  {name:<14} friction {ground.friction:g}, solref {constant:g} {damping:g}, "
      f"solimp {' '.join(f'{v:g}' for v in impedance)}, slope {ground.slope_deg:g}°, "
      f"stones {100 * ground.stone_m:g} cm: {ground.text}"
    )
  return "\n".join(lines)


def _split(words: list[str]) -> tuple[str, list[str]]:
  action = words[0] if words[0] in ACTIONS else ""
  sources = words[1:] if action else words
  if not sources and action != "terrains":
    raise UserError(f"'decap sim2sim {action}' needs at least one bundle.")
  return action, sources


def _config(options: argparse.Namespace):
  from decap.deploy.simulation import SimCfg

  if not 0 < options.seconds <= 3600:
    raise UserError(
      f"--seconds must be above 0 and at most 3600, not {options.seconds:g}."
    )
  cfg = SimCfg(
    terrain=options.terrain,
    delay_s=options.delay_ms / 1000.0,
    motor_strength=options.motor_strength,
    joint_friction=options.joint_friction,
    ground_friction=options.friction,
    noise=options.noise,
    payload_kg=options.payload,
    push_m_s=options.push,
    seed=options.seed,
  )
  cfg.check()
  return cfg


def _load(source: str):
  """A bundle whose robot can be simulated; a run's own bundle if a run is given."""
  from decap.deploy.bundle import JSON_FILE, load_bundle
  from decap.deploy.policy import check_fits
  from decap.robots.g1_motors import g1_motors

  folder = Path(source)
  if not (folder / JSON_FILE).is_file() and (folder / "policy" / JSON_FILE).is_file():
    folder = folder / "policy"
  bundle = load_bundle(folder)
  if len(bundle.joint_names) not in (23, 29):
    raise UserError(
      f"{folder} drives {len(bundle.joint_names)} joints; the simulated robots have 23 "
      "and 29."
    )
  check_fits(bundle, g1_motors(len(bundle.joint_names)).joint_names)
  return bundle


def _check_video(options: argparse.Namespace) -> None:
  video = Path(options.video)
  if video.suffix not in VIDEO_SUFFIXES:
    raise UserError(f"--video must end in .mp4 or .gif, not '{video.name}'.")
  if not video.absolute().parent.is_dir():
    raise UserError(f"There is no folder {video.parent} for the video.")
  checks.check_renderer(draws=True)


def _walk(bundles: list[Any], cfg: Any, options: argparse.Namespace) -> None:
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
    print(
      f"{bundle.folder.name} on {cfg.terrain}: {end} after {trace.seconds:.1f} s and "
      f"{trace.distance():.2f} m; {100 * followed(trace):.0f} % of the command followed; "
      f"{factor:.1f} × real time"
    )
    for group, values in joint_metrics(trace, body_groups(bundle)).items():
      numbers = ", ".join(f"{name} {value:.2f}" for name, value in values.items())
      print(f"  {group}: {numbers}")
    rms = ", ".join(f"{site} {value:.2f}" for site, value in gyro_rms(trace).items())
    print(f"  angular velocity, rad/s: {rms}")
    if options.trace:
      trace.save(Path(options.trace))
      print(f"  wrote {options.trace}")
    clips.append((bundle.folder.name, trace))
  if options.video:
    _record(clips, cfg, options)


def _record(
  clips: list[tuple[str, Any]], cfg: Any, options: argparse.Namespace
) -> None:
  from decap.deploy import video

  camera = video.HEAD_CAMERA if options.ego else "follow"
  print("Rendering …", flush=True)
  size = (640, 480) if len(clips) == 1 else (400, 300)
  drawn = [(name, video.render(trace, cfg, camera, size)) for name, trace in clips]
  frames = drawn[0][1] if len(drawn) == 1 else video.side_by_side(drawn)
  video.write(Path(options.video), frames)
  print(f"Wrote {options.video}")


def _view(bundle: Any, cfg: Any, port: int) -> None:
  from decap.deploy.viewer import Viewer

  print("Open the address below in a browser; Ctrl-C ends.", flush=True)
  Viewer(bundle, cfg, port).run()


def _table(bundles: list[Any], cfg: Any, options: argparse.Namespace) -> None:
  from decap.evaluation import robot_tables, robot_walks

  folder = Path(options.out)
  results = []
  for bundle in bundles:
    path = folder / f"{bundle.folder.name}.json"
    old = robot_walks.load(path) if options.reuse and path.is_file() else None
    same = (robot_walks.describe(bundle), robot_walks.protocol(options.repeats, cfg))
    if old is None or (old["policy"], old["protocol"]) != same:
      old = robot_walks.measure_policy(
        bundle, options.repeats, cfg, options.jobs, progress=_say
      )
      print(f"Wrote {robot_walks.save(old, folder)}")
    results.append(old)
  text = robot_tables.tables(results) + _margins(bundles, folder)
  write_text(folder / "tables.md", text)
  print(f"\n{text}\nWrote {folder / 'tables.md'}")
  _draw("figures", results, folder)


def _margins(bundles: list[Any], folder: Path) -> str:
  """The margins of those policies that a sweep was made of, as part of the tables."""
  from decap.evaluation import robustness

  sweeps = []
  for bundle in bundles:
    path = folder / f"{bundle.folder.name}-sweep.json"
    sweep = json.loads(path.read_text()) if path.is_file() else {"policy": {}}
    if sweep["policy"].get("onnx_sha256") == bundle.info["onnx_sha256"]:
      sweeps.append(sweep)
  if not sweeps:
    return ""
  return "\n".join(["\n## Margins", "", *robustness.margin_table(sweeps), ""])


def _sweep(bundles: list[Any], cfg: Any, options: argparse.Namespace) -> None:
  from decap.evaluation import robustness

  del cfg  # A sweep has its own.
  folder = Path(options.out)
  sweeps = []
  for bundle in bundles:
    path = folder / f"{bundle.folder.name}-sweep.json"
    sweeps.append(
      robustness.sweep_policy(bundle, options.repeats, jobs=options.jobs, progress=_say)
    )
    write_text(path, json.dumps(sweeps[-1], indent=1) + "\n")
    print(f"Wrote {path}")
  text = "\n".join(["# Margins", "", *robustness.margin_table(sweeps), ""])
  write_text(folder / "margins.md", text)
  print(f"\n{text}\nWrote {folder / 'margins.md'}")
  _draw("margins", sweeps, folder)


def _fidelity(bundles: list[Any], cfg: Any, options: argparse.Namespace) -> None:
  del cfg  # Without noise and delay, as training's own play variant.
  checks.check_installed("mjlab", "'decap sim2sim fidelity'")
  from decap.evaluation import fidelity

  folder = Path(options.out)
  found = [fidelity.compare(bundle) for bundle in bundles]
  write_text(folder / "fidelity.json", json.dumps(found, indent=1) + "\n")
  text = "\n".join(["# Fidelity", "", *fidelity.fidelity_table(found), ""])
  write_text(folder / "fidelity.md", text)
  print(f"\n{text}\nWrote {folder / 'fidelity.md'}")


def _draw(kind: str, data: list[Any], folder: Path) -> None:
  """Figures where matplotlib is; tables alone otherwise."""
  if importlib.util.find_spec("matplotlib") is None:
    print("No figures: matplotlib is not installed.")
    return
  from decap.evaluation import robot_figures

  make = {"figures": robot_figures.figures, "margins": robot_figures.margins}[kind]
  for name, figure in make(data).items():
    path = folder / f"{name}.svg"
    figure.savefig(path)
    print(f"Wrote {path}")


def _say(line: str) -> None:
  print(line, flush=True)
