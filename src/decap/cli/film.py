"""A policy in the play variant of its task: told a script of commands, and filmed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decap.cli import checks
from decap.cli.terminal import quiet_libraries
from decap.deploy import bundle
from decap.rl import checkpoint_files
from decap.runs import RunSpec, build_configs, load_spec

if TYPE_CHECKING:
  import numpy as np

  from decap.deploy.sim2sim import Walk
  from decap.evaluation.policies import Act


@dataclass(frozen=True)
class View:
  """Where the camera stands, which follows the robot, and the size of its pictures."""

  distance_m: float | None = None
  """The task's own by default."""
  azimuth_deg: float = 120.0
  """0 looks along the robot's first heading, 90 at its right side, 180 at its face."""
  elevation_deg: float = -8.0
  width: int = 640
  height: int = 480


def spec_of(source: str, seed: int = 0) -> RunSpec:
  """What to build: the run's own environment, or that of a bundle's task."""
  path = Path(source)
  if (path / bundle.JSON_FILE).is_file():
    # All of it, so that what is wrong with a bundle is said before anything is drawn.
    info = bundle.load_bundle(path).info
    return RunSpec(info["task"], info["method"], seed)
  checkpoint_files.resolve(path)
  return dataclasses.replace(load_spec(path), seed=seed)


def make_play(
  source: str,
  view: View,
  *,
  film: bool,
  device: str = "cpu",
  seed: int = 0,
  num_envs: int = 1,
) -> tuple[Any, Act]:
  """The play variant of a policy's environment, and the policy."""
  from decap.cli.training import make_env
  from decap.deploy.looks import add_sky
  from decap.evaluation.policies import load_policy
  from decap.evaluation.rollout import describe_env

  checks.check_torch_device(device)
  policy = load_policy(source, device)
  spec = dataclasses.replace(spec_of(source, seed), blind=policy.blind)
  cfg, _ = build_configs(spec, play=True)
  cfg.scene.num_envs = num_envs
  cfg.scene.spec_fn = add_sky  # Without one, all that is not ground is black.
  viewer = cfg.viewer
  viewer.origin_type = viewer.OriginType.ASSET_ROOT  # Its weight is in the middle.
  viewer.distance = view.distance_m or viewer.distance
  viewer.azimuth, viewer.elevation = view.azimuth_deg, view.elevation_deg
  if film:
    viewer.width, viewer.height = view.width, view.height
    # Half of a frame's time on a machine without a GPU.
    viewer.enable_shadows = viewer.enable_reflections = False
    # The azimuth means something only if the first heading is known.
    cfg.events["reset_base"].params["pose_range"] = {}
  with quiet_libraries():
    env = make_env(cfg, device, render_mode="rgb_array" if film else None)
  policy.check(describe_env(env, spec.task))
  assert policy.act is not None  # Standing still is no bundle.
  return env, policy.act


def film(
  source: str, script: Walk, view: View, fps: float = 25.0, **options: Any
) -> list[np.ndarray]:
  """Frames [H, W, 3] of a policy that is told the script; options of `make_play`."""
  import torch

  from decap.evaluation.environment import command_term

  env, policy = make_play(source, view, film=True, **options)
  stride = max(1, round(1.0 / (fps * env.step_dt)))
  frames = []
  command_term(env).tell(script.at(0.0).tolist())
  with torch.no_grad(), quiet_libraries():
    obs, _ = env.reset()
    for step in range(round(script.seconds / env.step_dt)):
      command_term(env).tell(script.at(step * env.step_dt).tolist())
      obs, *_ = env.step(policy(obs))
      if step % stride == 0:
        frames.append(env.render())
  env.close()
  return frames


def write_video(
  path: Path, clips: Sequence[tuple[str, list[np.ndarray]]], script: Walk, fps: float
) -> None:
  """Clips side by side under what the robots are told; one alone has no label."""
  from decap.deploy import video

  frames = video.side_by_side(clips) if len(clips) > 1 else clips[0][1]
  video.write(path, video.caption(frames, captions(script, fps)), fps)
  print(f"Wrote {path}")


def captions(script: Walk, fps: float) -> list[str]:
  """What the robot is told, frame by frame."""
  return [
    spell(script.at(k / fps).tolist()) for k in range(round(script.seconds * fps))
  ]


def spell(command: Sequence[float]) -> str:
  """A command in words, such as "forward 0.5 m/s, turn left 0.3 rad/s"."""
  names = (("forward", "backward"), ("left", "right"), ("turn left", "turn right"))
  units = ("m/s", "m/s", "rad/s")
  parts = [
    f"{positive if value > 0 else negative} {abs(value):g} {unit}"
    for value, (positive, negative), unit in zip(command, names, units, strict=True)
    if value
  ]
  return ", ".join(parts) or "stand"


def out_of_range(commands: Sequence[Sequence[float]], cfg: Any) -> list[str]:
  """Sentences on commands that training never gave, by its command's config."""
  known = (cfg.ranges.lin_vel_x, cfg.ranges.lin_vel_y, cfg.ranges.ang_vel_z)
  names, units = ("forward", "left", "turn"), ("m/s", "m/s", "rad/s")
  sentences = []
  for i, (name, unit) in enumerate(zip(names, units, strict=True)):
    low, high = known[i]
    odd = sorted({c[i] for c in commands if not low - 1e-6 <= c[i] <= high + 1e-6})
    if odd:
      sentences.append(
        f"Warning: {name} {', '.join(f'{v:g}' for v in odd)} {unit} lies outside of "
        f"{low:g} to {high:g}, which the policy was trained for; expect it to fall short "
        "or to fall."
      )
  return sentences
