"""Kills trainings at random moments and looks whether anything is lost (test_kills.py).

Run as ``python -m tests.cli.kills FOLDER KILLS``. Everything is imported once;
each training is a fork of this process. A run is killed until a training lives to its
end, and must then be the run that nobody killed, bit for bit, bundle included.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ITERATIONS = 40
SMALL = (
  *("--agent.num-steps-per-env", "4", "--agent.policy.hidden-dims", "(16,)"),
  *("--agent.save-interval", "1", "--agent.algorithm.num-learning-epochs", "2"),
)
OPTIONS = [
  *("--task", "g1-flat", "--num-envs", "4", "--iterations", str(ITERATIONS)),
  *("--device", "cpu", "--threads", "1", *SMALL),
]


def main(folder: Path, kills: int) -> dict[str, Any]:
  """Kills by what they hit, runs that ended as the whole one did, and seconds."""
  start = time.monotonic()
  _import_everything()
  random.seed(0)
  root = folder / "whole"
  assert attempt(["train", *OPTIONS, "--log-root", str(root)])[0] == 0
  expected = leaves(final_state(root))
  hit: Counter[str] = Counter()
  finished, long_s = 0, 10.0
  while hit.total() < kills:
    root = folder / f"run-{finished}"
    status = None
    while status is None:
      before = half_written(root)
      # Every fifth waits for a checkpoint that is being written.
      aims = hit.total() % 5 == 4
      until = (lambda: half_written(root) - before) if aims else (lambda: True)  # noqa: B023
      moment = random.uniform(0.0, long_s) if hit.total() < kills else math.inf
      status, took_s = attempt(command(root), moment, until)
      if status is None:
        hit[stage(root, before)] += 1
        # Where the machine is busy: kills are to come at all stages.
        long_s *= 1.05
    long_s = took_s
    if status != 0 or leaves(final_state(root)) != expected:
      raise SystemExit(f"{root}: exit code {status}, or another policy than the whole")
    finished += 1
    shutil.rmtree(root)
    print(f"{hit.total()} kills, {finished} runs whole", file=sys.stderr, flush=True)
  usage = resource.getrusage(resource.RUSAGE_CHILDREN)
  return {
    "kills": dict(hit),
    "finished": finished,
    "equal": finished,
    "seconds": round(time.monotonic() - start, 1),
    "cpu_seconds": round(usage.ru_utime + usage.ru_stime + time.process_time(), 1),
  }


def attempt(
  arguments: list[str],
  after_s: float = math.inf,
  until: Callable[[], object] = lambda: True,
) -> tuple[int | None, float]:
  """Exit code of a command in a child, None where the kill came first; seconds."""
  start = time.monotonic()
  child = os.fork()
  if not child:
    with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
      from decap.cli import main as decap

      sys.argv = ["decap", *arguments]
      os._exit(decap(arguments))
  while time.monotonic() - start < after_s or not until():
    found, status = os.waitpid(child, os.WNOHANG)
    if found:
      return os.waitstatus_to_exitcode(status), time.monotonic() - start
    time.sleep(0.0005)
  os.kill(child, signal.SIGKILL)
  status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
  return None if status == -signal.SIGKILL else status, time.monotonic() - start


def command(root: Path) -> list[str]:
  """What a user would run: go on if there is something to go on from."""
  for run in root.glob("g1-flat/*"):
    if list(run.glob("checkpoints/model_*.pt")):
      return ["train", "--resume", str(run)]
    shutil.rmtree(run)
  return ["train", *OPTIONS, "--log-root", str(root)]


def half_written(root: Path) -> set[str]:
  """Checkpoints that are being written, or were when a kill came."""
  return {path.name for path in root.glob("g1-flat/*/checkpoints/.*")}


def stage(root: Path, before: set[str]) -> str:
  """What a run had reached when it was killed; `before` was half-written already."""
  if half_written(root) - before:
    return "while a checkpoint was written"
  found = [p for p in root.glob("g1-flat/*/checkpoints/model_*.pt")]
  if not found:
    return "before the first checkpoint"
  last = max(int(path.stem.split("_")[1]) for path in found)
  return "while exporting" if last == ITERATIONS else "while training"


def final_state(root: Path) -> dict[str, Any]:
  from decap.rl import checkpoint

  (path,) = root.glob(f"g1-flat/*/checkpoints/model_{ITERATIONS}.pt")
  state = checkpoint.load(path)
  # When and by which command: the only things that may differ.
  del state["policy"]["made_by"]
  onnx = next(root.glob("g1-flat/*/policy/policy.onnx"))
  return state | {"bundle": onnx.read_bytes()}


def leaves(state: Any, path: str = "") -> dict[str, Any]:
  """All leaves of a nested state by path, tensors as their bytes."""
  if isinstance(state, dict):
    items = list(state.items())
  elif isinstance(state, (list, tuple)):
    items = list(enumerate(state))
  elif isinstance(state, torch.Tensor):
    return {path: (state.dtype, state.numpy().tobytes())}
  else:
    return {path: state}
  return {
    k: v for key, value in items for k, v in leaves(value, f"{path}/{key}").items()
  }


def _import_everything() -> None:
  """All that a training imports, without computing anything: threads do not fork."""
  os.environ["OMP_NUM_THREADS"] = "1"
  torch.set_num_threads(1)
  import mjlab  # noqa: F401
  import onnxscript  # noqa: F401
  import torch.onnx as _  # noqa: F401
  from torch.utils import tensorboard  # noqa: F401

  import decap.cli.train
  import decap.envs.constrained_env
  import decap.evaluation.probe
  import decap.export
  import decap.rl.runner
  import decap.tasks  # noqa: F401
  from decap.runs import RunSpec, build_configs

  # Half of a short training is reading options; most of that is remembered.
  build_configs(RunSpec("g1-flat", "decap", 1, overrides=SMALL))


if __name__ == "__main__":
  print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
