"""Several processes that train together: started by torchrun, joined here."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

from decap import __version__
from decap.errors import UserError
from decap.runs import RunSpec


def count() -> int:
  """Number of processes that torchrun started."""
  return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
  """Whether this process writes: logs, checkpoints, the bundle."""
  return int(os.environ.get("RANK", "0")) == 0


def launch(number: int, argv: Sequence[str]) -> int:
  """Run the same command in so many processes, by torchrun; returns its exit code."""
  if count() > 1:
    raise UserError("--gpus starts torchrun itself; leave it out under torchrun.")
  position = next(i for i, a in enumerate(argv) if a.split("=")[0] == "--gpus")
  rest = [*argv[:position], *argv[position + (1 if "=" in argv[position] else 2) :]]
  torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
  command = [sys.executable, *torchrun, str(number), "-m", "decap", *rest]
  # Ctrl-C reaches all of them; who asked waits for what they save.
  child = subprocess.Popen(command)
  while True:
    try:
      return child.wait()
    except KeyboardInterrupt:
      continue


def check_devices(number: int, device: str) -> None:
  """Refuse more processes than there are GPUs, or cores."""
  if device == "cpu":
    have, what = len(os.sched_getaffinity(0)), "cores"
  else:
    import torch

    have, what = torch.cuda.device_count(), "GPUs"
  if not 1 <= number <= have:
    raise UserError(f"--gpus must be between 1 and {have}, the {what} here.")


def _silent() -> contextlib.redirect_stdout[io.StringIO]:
  return contextlib.redirect_stdout(io.StringIO())


@contextlib.contextmanager
def joined(device: str, spec: RunSpec) -> Iterator[tuple[str, RunSpec, int]]:
  """This process's device, its share of the run, and its threads of C MuJoCo (0: all).

  The number of environments is that of all processes together, so that a run is the
  same problem whatever it runs on.
  """
  number = count()
  if number == 1:
    yield device, spec, 0
    return
  import torch
  from torch import distributed as dist

  from decap import collective
  from decap.runs import build_configs

  local = int(os.environ["LOCAL_RANK"])
  if device != "cpu":
    device = f"cuda:{local}"
    torch.cuda.set_device(local)
  dist.init_process_group("gloo" if device == "cpu" else "nccl")
  try:
    mine = {
      "run": spec.to_dict(),
      "decap": __version__,
      "torch": torch.__version__,
    }
    if not collective.agree(mine):
      raise UserError(
        "The processes of this training differ in their options, or in the versions of "
        "decap or torch."
      )
    total = spec.num_envs or build_configs(spec)[0].scene.num_envs
    if total % number:
      raise UserError(f"{total} environments cannot be shared by {number} processes.")
    cores = len(os.sched_getaffinity(0)) // int(os.environ["LOCAL_WORLD_SIZE"])
    # One process speaks.
    with contextlib.nullcontext() if is_first() else _silent():
      yield device, dataclasses.replace(spec, num_envs=total // number), max(1, cores)
  except RuntimeError as error:
    if "gloo" in str(error).lower() or isinstance(error, dist.DistError):
      raise UserError(
        "Another process of this training has ended; `decap train --resume` goes on "
        "from the last checkpoint, with as many processes as you like."
      ) from error
    raise
  finally:
    dist.destroy_process_group()
