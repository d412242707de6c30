"""What SLURM knows of jobs, asked for by its own commands.

Not by sacct, as submitit does: clusters without an accounting database have none.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterable

from decap.errors import UserError

WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"}
WAITING |= {"SPECIAL_EXIT", "RESV_DEL_HOLD", "SUSPENDED"}
WORKING = {"RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED"}
ENDED_BY_CLUSTER = {"PREEMPTED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "DEADLINE"}
"""A run that ends like this can go on; one that fails by itself fails again."""


def check() -> None:
  """Refuse to go on without a SLURM that answers."""
  if shutil.which("sbatch") is None:
    raise UserError(
      "--cluster slurm needs SLURM's commands, and there is no 'sbatch' here; start it "
      "on a login node, or leave the option out to train on this machine."
    )
  done = subprocess.run(["sinfo", "--version"], capture_output=True, text=True)
  if done.returncode == 0:
    done = subprocess.run(
      ["sinfo", "--noheader"], capture_output=True, text=True, timeout=60
    )
  if done.returncode:
    said = (done.stderr.strip() or "it ended with an error.").splitlines()
    raise UserError(f"SLURM does not answer: {said[0]}")


def states() -> dict[str, str] | None:
  """State of every job of this user that SLURM remembers; None if it cannot be asked.

  Finished ones are remembered for some minutes. Array jobs are named ``12_3``.
  """
  user = pwd.getpwuid(os.getuid()).pw_name
  command = ["squeue", "--user", user, "--states", "all", "--array", "--noheader"]
  try:
    done = subprocess.run(
      [*command, "--format", "%i %T"], capture_output=True, text=True, timeout=60
    )
  except subprocess.TimeoutExpired:
    return None
  if done.returncode:
    return None
  pairs = (line.split() for line in done.stdout.splitlines())
  return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def cancel(jobs: Iterable[str]) -> None:
  """End jobs, as far as they are there."""
  subprocess.run(["scancel", "--quiet", *jobs], capture_output=True, timeout=60)
