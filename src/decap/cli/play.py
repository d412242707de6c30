"""``decap play``: watch a policy in the browser, or record a video."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from decap.cli import checks
from decap.deploy import bundle
from decap.errors import UserError
from decap.options import machine, types
from decap.options.args import (
  above,
  at_least,
  at_most,
  between,
  refuse_idle,
  require_some,
)
from decap.options.velocity import out_of_range, read_commands, spell
from decap.rl import checkpoint_files
from decap.runs import RunSpec, build_configs, load_spec

if TYPE_CHECKING:
  import numpy as np

  from decap.deploy.sim2sim import Walk
  from decap.evaluation.policies import Act


@dataclass(kw_only=True)
class PlayArgs(types.Computing):
  """Policies, what they are told, and how to show them."""

  policies: types.Policies
  """Run folders, checkpoints or bundle folders; several make a video side by side, and
  LABEL=POLICY names one."""
  task: types.TaskName = None
  """Task to show them on (default: their own)."""
  command: types.Velocity = None
  """What the robot is told: forward and left in m/s, turn in rad/s (default: 0.5 0 0)."""
  schedule: Annotated[str | None, types.shown("TEXT")] = None
  """Commands from a second on, e.g. '0:0.5,0,0 3:0,0,0.3'."""
  video: types.VideoFile = None
  """Record to .mp4 or .gif without a display."""
  seconds: Annotated[float, above(0), at_most(600)] = 8.0
  """Length of the video."""
  size: Annotated[tuple[int, int], types.shown("W H")] = (640, 480)
  """Pixels of one robot's picture (default: 640 480)."""
  distance: Annotated[float | None, types.shown("M"), between(0.3, 100, " m")] = None
  """Of the camera (default: 2.5)."""
  azimuth: types.Number = 120.0
  """Direction of the camera in degrees; 90: the robot's right side, 180: its face."""
  host: Annotated[str, types.shown("ADDRESS")] = "localhost"
  """Where the viewer listens, e.g. 0.0.0.0 for others (default: localhost)."""
  port: types.Port = 8080
  """Port of the viewer."""
  num_envs: Annotated[int, at_least(1)] = 1
  """Robots."""
  seed: types.Seed = 0
  """Seed of randomisation."""

  def check(self) -> None:
    require_some("POLICY", self.policies)
    machine.check_num_envs(self.num_envs, self.device)
    read_commands(self.command, self.schedule)
    width, height = self.size
    if not (16 <= width <= 3840 and 16 <= height <= 2160) or width % 2 or height % 2:
      raise UserError(
        f"--size must be even numbers from 16 to 3840 and 2160, not {width} {height}."
      )
    if len(self.policies) > 1 and not self.video:
      raise UserError("Several policies make a video side by side: give --video too.")
    if not self.video:
      refuse_idle(self, ("seconds", "size"), "--video")

  def run(self) -> None:
    """Build the play variant of the run's environment, then record or show it."""
    sources = [types.split_label(source)[1] for source in self.policies]
    specs = [spec_of(source, task=self.task) for source in sources]
    checks.announce_imports(self.device, draws=self.video is not None)
    told = build_configs(specs[0], play=True)[0].commands.get("twist")
    commands = [c for _, *c in read_commands(self.command, self.schedule)]
    if told is None and (self.command or self.schedule):
      raise UserError(
        f"The task {specs[0].task} has no velocity command 'twist' to give."
      )
    for sentence in out_of_range(commands, told) if told else ():
      print(sentence, flush=True)
    with checks.explained_memory(self.device):
      if self.video:
        record(self, captions=told is not None)
      else:
        _watch(self, sources[0])

  def script(self) -> Walk:
    """What the robots are told, and how long."""
    from decap.deploy.sim2sim import Walk

    return Walk(read_commands(self.command, self.schedule), self.seconds)


def record(args: PlayArgs, fps: float | None = None, *, captions: bool = True) -> None:
  """Film all policies, side by side under what they are told; one alone has no label."""
  from decap.deploy import video

  path, script = Path(args.video or ""), args.script()
  fps = fps or video.FPS[path.suffix]
  clips = []
  for label, source in map(types.split_label, args.policies):
    print(f"Rendering {source} …", flush=True)
    clips.append((label or Path(source).name, film(args, source, script, fps)))
  frames = video.side_by_side(clips)
  if captions:
    lines = [spell(script.at(k / fps).tolist()) for k in range(len(frames))]
    frames = video.caption(frames, lines)
  video.write(path, frames, fps)
  print(f"Wrote {path}")


def _watch(args: PlayArgs, source: str) -> None:
  """The viewer in the browser; the schedule's commands move its sliders."""
  import viser
  from mjlab.rl import RslRlVecEnvWrapper
  from mjlab.viewer import ViserPlayViewer

  env, policy = make_play(args, source)
  tell, script = _teller(env), args.script()
  tell(script.at(0.0).tolist())
  waiting = [command for command in script.commands if command[0] > 0.0]
  steps = 0

  def act(obs: Any) -> Any:
    nonlocal steps
    steps += 1
    if waiting and steps * env.step_dt >= waiting[0][0]:
      tell(waiting.pop(0)[1:])
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


def spec_of(source: str, seed: int = 0, task: str | None = None) -> RunSpec:
  """What to build: the run's own environment, or that of a bundle's task, or `task`'s."""
  path = Path(source)
  if (path / bundle.JSON_FILE).is_file():
    # All of it, so that what is wrong with a bundle is said before anything is drawn.
    info = bundle.load_bundle(path).info
    return RunSpec(task or info["task"], info["method"], seed)
  checkpoint_files.resolve(path)
  spec = load_spec(path)
  return dataclasses.replace(spec, seed=seed, task=task or spec.task)


def make_play(args: PlayArgs, source: str) -> tuple[Any, Act]:
  """The play variant of a policy's environment, to be filmed or watched; the policy."""
  from decap.deploy.looks import add_sky
  from decap.envs.build import make_env
  from decap.evaluation.policies import load_policy
  from decap.evaluation.rollout import describe_env

  checks.check_torch_device(args.device)
  policy = load_policy(source, args.device)
  spec = spec_of(source, args.seed, args.task)
  spec = dataclasses.replace(spec, blind=policy.blind)
  cfg, _ = build_configs(spec, play=True)
  cfg.scene.num_envs = args.num_envs
  # Without a sky, all that is not ground is black.
  cfg.scene.spec_fn = cfg.scene.spec_fn or add_sky
  viewer = cfg.viewer
  if viewer.entity_name:
    viewer.origin_type = viewer.OriginType.ASSET_ROOT  # Its weight is in the middle.
  viewer.distance = args.distance or viewer.distance
  viewer.azimuth, viewer.elevation = args.azimuth, -8.0
  if args.video:
    viewer.width, viewer.height = args.size
    # Half of a frame's time on a machine without a GPU.
    viewer.enable_shadows = viewer.enable_reflections = False
    # The azimuth means something only if the first heading is known.
    if reset := cfg.events.get("reset_base"):
      reset.params["pose_range"] = {}
  env = make_env(cfg, args.device, render_mode="rgb_array" if args.video else None)
  policy.check(describe_env(env, spec.task))
  assert policy.act is not None  # Standing still is no bundle.
  return env, policy.act


def _teller(env: Any) -> Callable[[Sequence[float]], None]:
  """Tells all robots a velocity; nothing where the task has no such command."""
  manager = env.command_manager
  term = manager.get_term("twist") if "twist" in manager.active_terms else None
  return getattr(term, "tell", lambda command: None)


def film(args: PlayArgs, source: str, script: Walk, fps: float) -> list[np.ndarray]:
  """Frames [H, W, 3] of a policy that is told the script."""
  import torch

  env, policy = make_play(args, source)
  tell = _teller(env)
  stride = max(1, round(1.0 / (fps * env.step_dt)))
  frames = []
  tell(script.at(0.0).tolist())
  with torch.no_grad():
    obs, _ = env.reset()
    for step in range(round(script.seconds / env.step_dt)):
      tell(script.at(step * env.step_dt).tolist())
      obs, *_ = env.step(policy(obs))
      if step % stride == 0:
        frames.append(env.render())
  env.close()
  return frames
