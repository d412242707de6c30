"""Several processes that train together: started by torchrun, joined here."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import io
import logging
import os
import platform
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decap import provenance
from decap.errors import UserError
from decap.options import machine
from decap.runs import RunSpec, build_configs
from decap.sweep.process import INTERRUPTED, end_with_parent

if TYPE_CHECKING:
  from decap.cli.train import TrainArgs

SAVE_S = 120
"""Time that processes have to save after Ctrl-C."""

LEAVE_S = 20
"""Time that a process has to say what went wrong, and to end."""

GO_ON = (
  "`decap train --resume` goes on from the last checkpoint, with as many processes as "
  "you like."
)


def count() -> int:
  """Number of processes that torchrun started."""
  return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
  """Whether this process writes: logs, checkpoints, the bundle."""
  return int(os.environ.get("RANK", "0")) == 0


def launch(number: int, argv: Sequence[str]) -> int:
  """Run the same command in so many processes, by torchrun; returns its exit code.

  torchrun passes Ctrl-C on to them, which are not of this terminal, and waits.
  """
  if count() > 1:
    raise UserError("--gpus starts torchrun itself; leave it out under torchrun.")
  position = next(i for i, a in enumerate(argv) if a.split("=")[0] == "--gpus")
  rest = [*argv[:position], *argv[position + (1 if "=" in argv[position] else 2) :]]
  from torch.distributed import run as torchrun
  from torch.distributed.elastic.multiprocessing.api import SignalException
  from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

  os.environ[provenance.COMMAND_VARIABLE] = shlex.join(["decap", *argv])
  os.environ.setdefault("OMP_NUM_THREADS", "1")  # As torchrun does, with a warning.
  options = ["--standalone", "--nproc-per-node", str(number), "-m", "decap", *rest]
  arguments = torchrun.parse_args(options)
  if hasattr(arguments, "shutdown_timeout"):  # Later releases of torch.
    arguments.shutdown_timeout = SAVE_S
  logging.disable(logging.ERROR)  # Processes speak for themselves, torchrun at length.
  try:
    torchrun.run(arguments)
    return 0
  except ChildFailedError as error:
    rank, failure = error.get_first_failure()
    if failure.exitcode >= 0:  # It has said why.
      return failure.exitcode
    raise UserError(
      f"Process {rank} of {number} was killed by signal {-failure.exitcode}; {GO_ON}"
    ) from None
  except SignalException:
    return INTERRUPTED
  finally:
    logging.disable(logging.NOTSET)
    del os.environ[provenance.COMMAND_VARIABLE]


def check_devices(number: int, device: str) -> None:
  """Refuse more processes than there are GPUs, or cores."""
  if device == "cpu":
    have, what = machine.available_cpus(), "cores"
  else:
    have, what = machine.num_gpus(), "GPUs"
    if number > 1 and device != "cuda:0":
      raise UserError(f"--gpus takes GPUs from 0 on; leave out --device {device}.")
  if not 1 <= number <= have:
    raise UserError(f"--gpus must be between 1 and {have}, the {what} here.")


def check_share(total: int | None, number: int) -> None:
  """Every process has as many environments as the others."""
  if total is not None and total % number:
    raise UserError(f"{total} environments cannot be shared by {number} processes.")


def check_seen(path: str) -> None:
  """Every process reads the run that it goes on with, on whatever machine it is."""
  if count() > 1 and not Path(path).exists():
    raise UserError(
      f"{path} is not there for process {os.environ['RANK']} on {platform.node()}: "
      "machines that continue a run together need a disk that they share."
    )


@contextlib.contextmanager
def joined(options: TrainArgs, spec: RunSpec) -> Iterator[RunSpec]:
  """This process's share of the run; its device, and threads where none were asked for,
  go into the options.

  The number of environments is that of all processes together, so that a run is the
  same problem whatever it runs on.
  """
  number = count()
  if number == 1:
    yield spec
    return
  import torch
  from torch import distributed as dist

  end_with_parent()
  # While it learns, this signal saves; torchrun sends it where another process failed.
  signal.signal(signal.SIGTERM, _leave)
  local = int(os.environ["LOCAL_RANK"])
  if options.device != "cpu":
    options.device = f"cuda:{local}"
    torch.cuda.set_device(local)
  dist.init_process_group("gloo" if options.device == "cpu" else "nccl")
  ended = False
  try:
    _check_same(spec)
    total = spec.num_envs or build_configs(spec)[0].scene.num_envs
    check_share(total, number)
    cores = machine.available_cpus() // int(os.environ["LOCAL_WORLD_SIZE"])
    options.threads = options.threads or max(1, cores)
    # One process speaks.
    with contextlib.redirect_stdout(sys.stdout if is_first() else io.StringIO()):
      yield dataclasses.replace(spec, num_envs=total // number)
    # The first still writes; torchrun takes an end after Ctrl-C for a failure of all.
    dist.barrier()
    ended = True
  except UserError:
    if not is_first():
      # What goes wrong in all is said by the first; torchrun then ends this process.
      time.sleep(LEAVE_S)
    raise
  except RuntimeError as error:
    if "gloo" in str(error).lower() or isinstance(error, dist.DistError):
      raise UserError(f"Another process has ended; {GO_ON}") from error
    raise
  finally:
    # Recorded graphs hold on to NCCL and must go first, or it waits for them for ever;
    # after an error the traceback keeps them. The others end when this process does.
    if ended or options.device == "cpu":
      gc.collect()
      dist.destroy_process_group()
    else:
      signal.alarm(LEAVE_S)


def _leave(number: int, frame: Any) -> None:
  """Say in one sentence what torchrun says in thirty lines; the first speaks."""
  if is_first():
    print(f"decap: Another process has ended; {GO_ON}", file=sys.stderr, flush=True)
  os._exit(128 + number)


def _check_same(spec: RunSpec) -> None:
  """Processes that differ would train different policies, and average them."""
  from decap import collective

  packages = {k: v for k, v in provenance.versions().items() if k != "python"}
  mine = {"options": spec.to_dict(), "commit": provenance.commit(), **packages}
  if found := collective.differences(mine):
    raise UserError(
      f"The processes of this training do not agree on: {', '.join(found)}."
    )
