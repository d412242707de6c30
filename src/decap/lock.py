"""One run, one writer: a lock on a run folder that ends with the process that holds it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from decap.errors import UserError

LOCK_FILE = ".lock"


@contextlib.contextmanager
def one_writer(folder: Path, taken: str = "") -> Iterator[int]:
  """Refuse a folder that another process trains in; gives the lock's file descriptor.

  The operating system drops the lock when its process ends, however it ends, so one of
  a process that was killed is taken over. The file stays: deleting it would leave a
  waiting process with a lock on nothing. What it says is only for the sentence. File
  systems without locks are trusted.

  Args:
    taken: What to say where it is refused, instead of who trains there.
  """
  path = folder / LOCK_FILE
  try:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
  except OSError as error:
    raise UserError(f"Cannot write to {folder}: {error.strerror}.") from error
  try:
    try:
      fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
      training = (
        f"{folder} is being trained by {_holder(path)}; one run has one writer."
      )
      raise UserError(taken or training) from error
    except OSError:
      pass
    _write_holder(descriptor)
    yield descriptor
  finally:
    os.close(descriptor)


def _write_holder(descriptor: int) -> None:
  holder = {
    "process": os.getpid(),
    "computer": platform.node(),
    "since": datetime.now().isoformat(" ", "seconds"),
  }
  with contextlib.suppress(OSError):  # A full disk locks as well.
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(holder).encode(), 0)


def _holder(path: Path) -> str:
  try:
    holder = json.loads(path.read_text())
    return (
      f"process {holder['process']} on {holder['computer']} since {holder['since']}"
    )
  except (OSError, ValueError, KeyError, TypeError):
    return "another process"
