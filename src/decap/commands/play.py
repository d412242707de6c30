"""``decap play``: watch a policy in the browser, or record a video."""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
from pathlib import Path

from decap.commands import checks
from decap.commands.options import add_device
from decap.commands.terminal import quiet_libraries
from decap.commands.train import make_env
from decap.deploy import bundle
from decap.errors import UserError
from decap.files import check_writable
from decap.rl import checkpoint_files
from decap.runs import RunSpec, build_configs, load_spec

VIDEO_SUFFIXES = (".mp4", ".gif")
STEPS_PER_FRAME = 2  # 50 Hz control gives 25 frames per second.


def add_options(parser: argparse.ArgumentParser) -> None:
  """A policy, and how to show it."""
  add = parser.add_argument
  add("run", metavar="POLICY", help="run folder, checkpoint or bundle folder")
  add("--video", metavar="FILE", help="record to .mp4 or .gif without a display")
  add("--seconds", type=float, default=8.0, help="length of the video (default: 8)")
  add("--num-envs", type=int, default=1, metavar="N", help="robots (default: 1)")
  add_device(parser)
  add("--seed", type=int, default=0, help="seed of commands and randomisation")


def run(options: argparse.Namespace) -> None:
  """Check the options, then build the play variant of the run's environment."""
  device = checks.check_device(options.device)
  checks.check_num_envs(options.num_envs, device)
  spec = _spec(Path(options.run), options.seed)
  video = Path(options.video) if options.video else None
  if video:
    _check_video(video, options.seconds)
  checks.announce_imports(device, draws=video is not None)
  checks.check_torch_device(device)
  from decap.evaluation.policies import load_policy
  from decap.evaluation.rollout import describe_env

  policy = load_policy(options.run, device)
  spec = dataclasses.replace(spec, blind=policy.blind)
  env_cfg, _ = build_configs(spec, play=True)
  env_cfg.scene.num_envs = options.num_envs
  if video:
    env_cfg.viewer.width, env_cfg.viewer.height = 640, 480
    # Half of a frame's time on a machine without a GPU.
    env_cfg.viewer.enable_shadows = env_cfg.viewer.enable_reflections = False
  with quiet_libraries():
    env = make_env(env_cfg, device, render_mode="rgb_array" if video else None)
  policy.check(describe_env(env, spec.task))
  if video:
    _record(env, policy.act, video, options.seconds)
  else:
    _watch(env, policy.act)
  env.close()


def _spec(source: Path, seed: int) -> RunSpec:
  """What to build: the run's own environment, or that of a bundle's task."""
  if (source / bundle.JSON_FILE).is_file():
    info = bundle.read_info(source)
    return RunSpec(info["task"], info["method"], seed)
  checkpoint_files.resolve(source)
  return dataclasses.replace(load_spec(source), seed=seed)


def _check_video(video: Path, seconds: float) -> None:
  if video.suffix not in VIDEO_SUFFIXES:
    raise UserError(f"--video must end in .mp4 or .gif, not '{video.name}'.")
  if not 0 < seconds <= 600:
    raise UserError(f"--seconds must be between 0 and 600, not {seconds:g}.")
  if not video.absolute().parent.is_dir():
    raise UserError(f"There is no folder {video.parent} for the video.")
  check_writable(video.absolute().parent)


def _record(env, policy, video: Path, seconds: float) -> None:
  import mediapy
  import torch

  num_frames = max(1, round(seconds / env.step_dt / STEPS_PER_FRAME))
  print(f"Rendering {num_frames} frames …", flush=True)
  obs, _ = env.reset()
  frames = []
  with torch.no_grad():
    for _ in range(num_frames):
      for _ in range(STEPS_PER_FRAME):
        obs, *_ = env.step(policy(obs))
      frames.append(env.render())
  with tempfile.TemporaryDirectory(
    dir=video.absolute().parent, prefix=".video-"
  ) as work:
    path = Path(work) / video.name
    mediapy.write_video(
      path,
      frames,
      fps=1 / (env.step_dt * STEPS_PER_FRAME),
      codec="gif" if video.suffix == ".gif" else "h264",
    )
    os.replace(path, video)
  print(f"Wrote {video}")


def _watch(env, policy) -> None:
  from mjlab.rl import RslRlVecEnvWrapper
  from mjlab.viewer import ViserPlayViewer

  print("Open the address below in a browser; Ctrl-C ends.", flush=True)
  ViserPlayViewer(RslRlVecEnvWrapper(env), policy).run()
