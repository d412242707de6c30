"""``decap play``: watch a policy in the browser, or record a video."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from decap.cli import checks
from decap.cli.film import View, film, make_play, out_of_range, spec_of, write_video
from decap.errors import UserError
from decap.options import machine
from decap.options.args import above, at_least, at_most, between, require_some
from decap.options.types import (
  Computing,
  Number,
  Policies,
  Port,
  Seed,
  Velocity,
  VideoFile,
  shown,
  split_label,
)
from decap.runs import build_configs

if TYPE_CHECKING:
  from decap.deploy.sim2sim import Walk

FPS = {".mp4": 25.0, ".gif": 12.5}
FORWARD = (0.5, 0.0, 0.0)
Timed = tuple[float, float, float, float]
"""From when in s, then forward, left (m/s) and turn (rad/s)."""


@dataclass(kw_only=True)
class PlayArgs(Computing):
  """Policies, what they are told, and how to show them."""

  policies: Policies
  """Run folders, checkpoints or bundle folders; several make a video side by side, and
  LABEL=POLICY names one."""
  command: Velocity = None
  """What the robot is told: forward and left in m/s, turn in rad/s (default: 0.5 0 0)."""
  schedule: Annotated[str | None, shown("TEXT")] = None
  """Commands from a second on, e.g. '0:0.5,0,0 3:0,0,0.3'."""
  video: VideoFile = None
  """Record to .mp4 or .gif without a display."""
  seconds: Annotated[float, above(0), at_most(600)] = 8.0
  """Length of the video."""
  size: Annotated[tuple[int, int] | None, shown("W H")] = None
  """Of one robot's picture."""
  distance: Annotated[float | None, shown("M"), between(0.3, 100, " m")] = None
  """Of the camera (default: 2.5)."""
  azimuth: Number = View.azimuth_deg
  """Direction of the camera in degrees; 90: the robot's right side, 180: its face."""
  host: str = "localhost"
  """Where the viewer listens, e.g. 0.0.0.0 for other machines."""
  port: Port = 8080
  """Port of the viewer."""
  num_envs: Annotated[int, at_least(1)] = 1
  """Robots."""
  seed: Seed = 0
  """Seed of randomisation."""

  def check(self) -> None:
    require_some("POLICY", self.policies)
    machine.check_num_envs(self.num_envs, self.device)
    read_commands(self.command, self.schedule)
    self.view()
    if len(self.policies) > 1 and not self.video:
      raise UserError("Several policies make a video side by side: give --video too.")

  def view(self) -> View:
    """The camera."""
    width, height = self.size or (View.width, View.height)
    if not (16 <= width <= 3840 and 16 <= height <= 2160) or width % 2 or height % 2:
      raise UserError(
        f"--size must be even numbers from 16 to 3840 and 2160, not {width} {height}."
      )
    return View(self.distance, self.azimuth, width=width, height=height)

  def robots(self) -> dict[str, Any]:
    """Which ones are simulated, and where."""
    return {"device": self.device, "seed": self.seed, "num_envs": self.num_envs}

  def run(self) -> None:
    """Build the play variant of the run's environment, then record or show it."""
    sources = [split_label(source) for source in self.policies]
    commands = read_commands(self.command, self.schedule)
    specs = [spec_of(path) for _, path in sources]
    checks.announce_imports(self.device, draws=self.video is not None)
    told = build_configs(specs[0], play=True)[0].commands["twist"]
    for sentence in out_of_range([command for _, *command in commands], told):
      print(sentence, flush=True)
    from decap.deploy.sim2sim import Walk

    script = Walk(commands, self.seconds)
    with checks.explained_memory(self.device):
      if self.video:
        _record(self, sources, script, Path(self.video))
      else:
        _watch(self, sources[0][1], script)


def read_commands(
  command: tuple[float, float, float] | None, schedule: str | None
) -> tuple[Timed, ...]:
  """(from when in s, vx, vy, yaw rate), by --command or --schedule."""
  if command and schedule:
    raise UserError("--command and --schedule exclude each other.")
  if not schedule:
    vx, vy, yaw = command or FORWARD
    commands: tuple[Timed, ...] = ((0.0, vx, vy, yaw),)
  else:
    commands = tuple(_read_entry(entry) for entry in schedule.split())
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


def _record(
  args: PlayArgs, sources: list[tuple[str | None, str]], script: Walk, video: Path
) -> None:
  fps = FPS[video.suffix]
  clips = []
  for label, path in sources:
    print(f"Rendering {path} …", flush=True)
    frames = film(path, script, args.view(), fps, **args.robots())
    clips.append((label or Path(path).name, frames))
  write_video(video, clips, script, fps)


def _watch(args: PlayArgs, source: str, script: Walk) -> None:
  """The viewer in the browser; the schedule's commands move its sliders."""
  import viser
  from mjlab.rl import RslRlVecEnvWrapper
  from mjlab.viewer import ViserPlayViewer

  from decap.evaluation.environment import command_term

  env, policy = make_play(source, args.view(), film=False, **args.robots())
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
  server = viser.ViserServer(host=args.host, port=args.port, label="decap")
  try:
    ViserPlayViewer(RslRlVecEnvWrapper(env), act, viser_server=server).run()
  finally:
    server.stop()
    env.close()
