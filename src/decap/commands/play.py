"""``decap play``: watch a policy in the browser, or record a video."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decap.commands import checks
from decap.commands.film import View, captions, film, make_play, out_of_range, spec_of
from decap.commands.options import add_device, split_label
from decap.errors import UserError
from decap.files import check_writable
from decap.runs import build_configs

if TYPE_CHECKING:
  from decap.deploy.sim2sim import Walk

VIDEO_SUFFIXES = (".mp4", ".gif")
FPS = {".mp4": 25.0, ".gif": 12.5}
FORWARD = (0.5, 0.0, 0.0)
Timed = tuple[float, float, float, float]
"""From when in s, then forward, left (m/s) and turn (rad/s)."""


def add_options(parser: argparse.ArgumentParser) -> None:
  """Policies, what they are told, and how to show them."""
  add = parser.add_argument
  add(
    "policies",
    nargs="+",
    metavar="POLICY",
    help="run folder, checkpoint or bundle folder; several make a video side by side, "
    "and LABEL=POLICY names one",
  )
  told = parser.add_argument_group("what the robot is told")
  told.add_argument(
    "--command",
    type=float,
    nargs=3,
    metavar=("VX", "VY", "YAW"),
    help="forward and left in m/s, turn in rad/s (default: 0.5 0 0)",
  )
  told.add_argument(
    "--schedule",
    metavar="TEXT",
    help="commands from a second on, e.g. '0:0.5,0,0 3:0,0,0.3'",
  )
  add("--video", metavar="FILE", help="record to .mp4 or .gif without a display")
  add("--seconds", type=float, default=8.0, help="length of the video (default: 8)")
  add("--size", type=int, nargs=2, metavar=("W", "H"), help="of one robot's picture")
  add("--distance", type=float, metavar="M", help="of the camera (default: 2.5)")
  add(
    "--azimuth",
    type=float,
    default=View.azimuth_deg,
    metavar="DEG",
    help="90: the robot's right side, 180: its face (default: 120)",
  )
  add(
    "--host",
    default="localhost",
    help="where the viewer listens, e.g. 0.0.0.0 for "
    "other machines (default: localhost)",
  )
  add("--port", type=int, default=8080, help="of the viewer (default: 8080)")
  add("--num-envs", type=int, default=1, metavar="N", help="robots (default: 1)")
  add_device(parser)
  add("--seed", type=int, default=0, help="seed of randomisation")


def run(options: argparse.Namespace) -> None:
  """Check the options, then build the play variant of the run's environment."""
  device = checks.check_device(options.device)
  checks.check_num_envs(options.num_envs, device)
  checks.check_at_least("--seed", options.seed, 0)
  sources = [split_label(source) for source in options.policies]
  commands = read_commands(options)
  view = _view(options)
  video = Path(options.video) if options.video else None
  if video:
    _check_video(video, options.seconds)
  elif len(sources) > 1:
    raise UserError("Several policies make a video side by side: give --video too.")
  specs = [spec_of(path) for _, path in sources]
  checks.announce_imports(device, draws=video is not None)
  told = build_configs(specs[0], play=True)[0].commands["twist"]
  for sentence in out_of_range([command for _, *command in commands], told):
    print(sentence, flush=True)
  from decap.deploy.sim2sim import Walk

  script = Walk(commands, options.seconds)
  with checks.explained_memory(device):
    if video:
      _record(sources, script, view, video, options, device)
    else:
      _watch(sources[0][1], script, view, options, device)


def read_commands(options: argparse.Namespace) -> tuple[Timed, ...]:
  """(from when in s, vx, vy, yaw rate), by --command or --schedule."""
  if options.command and options.schedule:
    raise UserError("--command and --schedule exclude each other.")
  if not options.schedule:
    vx, vy, yaw = options.command or FORWARD
    commands: tuple[Timed, ...] = ((0.0, vx, vy, yaw),)
  else:
    commands = tuple(_read_entry(entry) for entry in options.schedule.split())
  if not all(math.isfinite(value) for command in commands for value in command):
    raise UserError("Commands and their times must be finite numbers.")
  if not commands or list(commands) != sorted(commands, key=lambda c: c[0]):
    raise UserError("--schedule must be commands in the order of their times.")
  return commands


def _read_entry(entry: str) -> Timed:
  start, _, command = entry.partition(":")
  try:
    vx, vy, yaw = map(float, command.split(","))
    start_s = float(start)
  except ValueError:
    start_s = vx = vy = yaw = -1.0
  if start_s < 0:
    raise UserError(
      f"'{entry}' in --schedule is not SECONDS:VX,VY,YAW, such as 3:0.5,0,0.2."
    )
  return start_s, vx, vy, yaw


def _view(options: argparse.Namespace) -> View:
  if options.distance is not None and not 0.3 <= options.distance <= 100:
    raise UserError(f"--distance must be 0.3 to 100 m, not {options.distance:g}.")
  if not math.isfinite(options.azimuth):
    raise UserError("--azimuth must be a number of degrees.")
  width, height = options.size or (View.width, View.height)
  if not (16 <= width <= 3840 and 16 <= height <= 2160) or width % 2 or height % 2:
    raise UserError(
      f"--size must be even numbers from 16 to 3840 and 2160, not {width} {height}."
    )
  return View(options.distance, options.azimuth, width=width, height=height)


def _check_video(video: Path, seconds: float) -> None:
  if video.suffix not in VIDEO_SUFFIXES:
    raise UserError(f"--video must end in .mp4 or .gif, not '{video.name}'.")
  if not 0 < seconds <= 600:
    raise UserError(f"--seconds must be between 0 and 600, not {seconds:g}.")
  if not video.absolute().parent.is_dir():
    raise UserError(f"There is no folder {video.parent} for the video.")
  check_writable(video.absolute().parent)


def _record(
  sources: list[tuple[str | None, str]],
  script: Walk,
  view: View,
  video: Path,
  options: argparse.Namespace,
  device: str,
) -> None:
  from decap.deploy.video import caption, side_by_side, write

  fps = FPS[video.suffix]
  clips = []
  for label, path in sources:
    print(f"Rendering {path} …", flush=True)
    frames = film(
      path,
      script,
      view,
      device=device,
      seed=options.seed,
      num_envs=options.num_envs,
      fps=fps,
    )
    clips.append((label or Path(path).name, frames))
  frames = side_by_side(clips) if len(clips) > 1 else clips[0][1]
  frames = caption(frames, captions(script, fps))
  write(video, frames, fps)
  print(f"Wrote {video}")


def _watch(
  source: str, script: Walk, view: View, options: argparse.Namespace, device: str
) -> None:
  """The viewer in the browser; the schedule's commands move its sliders."""
  import viser
  from mjlab.rl import RslRlVecEnvWrapper
  from mjlab.viewer import ViserPlayViewer

  from decap.evaluation.environment import command_term

  env, policy = make_play(
    source, view, device, seed=options.seed, num_envs=options.num_envs, film=False
  )
  term = command_term(env)
  term.tell(script.at(0.0).tolist())
  waiting = [command for command in script.commands if command[0] > 0.0]
  steps = 0

  def act(obs: Any) -> Any:
    nonlocal steps
    steps += 1
    if waiting and steps * env.step_dt >= waiting[0][0]:
      term.tell(waiting.pop(0)[1:])
    return policy(obs)

  print(
    "Open the address below in a browser; Ctrl-C ends. The sliders under Commands "
    "tell the robot where to go.",
    flush=True,
  )
  server = viser.ViserServer(host=options.host, port=options.port, label="decap")
  try:
    ViserPlayViewer(RslRlVecEnvWrapper(env), act, viser_server=server).run()
  finally:
    server.stop()
    env.close()
