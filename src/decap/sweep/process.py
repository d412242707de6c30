"""A process of a sweep: `decap` with some arguments, its screen in a log file."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

GRACE_S = 120.0
"""Time that an interrupted process has to save before it is told again."""

INTERRUPTED = 130
"""Exit code of a process that saved and ended after Ctrl-C."""


class Process(subprocess.Popen):
  """One command of one run, whose screen is appended to a file.

  Args:
    cpus: Cores that it may use; empty is all.
    keep_open: A file that is inherited, such as a lock that lasts as long as it.
    tied: Whether it ends when this process does, and leaves SLURM's signals to it.
  """

  def __init__(
    self,
    arguments: Sequence[str],
    log_file: Path,
    env: Mapping[str, str],
    cpus: frozenset[int] = frozenset(),
    keep_open: int | None = None,
    tied: bool = False,
  ):
    self.told = 0
    """How often it was asked to end."""
    self._asked_s = 0.0
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("a") as log:
      print(f"$ decap {' '.join(arguments)}", file=log, flush=True)
      super().__init__(
        [sys.executable, "-m", "decap", *arguments],
        stdout=log,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env={**env, "PYTHONUNBUFFERED": "1"},
        # Ctrl-C is for the sweep, which then interrupts its runs once.
        start_new_session=True,
        pass_fds=() if keep_open is None else (keep_open,),
        preexec_fn=_tie if tied else None,
      )
    if cpus and hasattr(os, "sched_setaffinity"):
      with contextlib.suppress(ProcessLookupError):
        os.sched_setaffinity(self.pid, cpus)

  def interrupt(self) -> None:
    """Ask it to save and end; when called later, insist, and kill it at last.

    As Ctrl-C does, all of its processes; torchrun's are several.
    """
    now = time.monotonic()
    self._asked_s = self._asked_s or now
    due = 1 + int((now - self._asked_s) / GRACE_S)
    if due > self.told:
      self.told = due
      with contextlib.suppress(ProcessLookupError):
        os.killpg(self.pid, signal.SIGINT if due < 3 else signal.SIGKILL)


def _tie() -> None:
  """In the child, before it becomes the command.

  Before a time limit SLURM signals every process of a job, and the default is to die of
  it. A child that outlives its job would write into a folder that the next job takes over.
  """
  for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, signal.SIG_IGN)
  end_with_parent()


def end_with_parent() -> None:
  """Let the system kill this process when the one that started it is gone; Linux only."""
  set_parent_death_signal = 1
  with contextlib.suppress(OSError, AttributeError):
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
