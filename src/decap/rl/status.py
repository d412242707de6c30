"""Where a run stands, in a file of its folder: for sweeps, schedulers and other eyes."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path

from decap.errors import UserError
from decap.files import write_text
from decap.rl.display import Status, headline_values

STATUS_FILE = "progress.json"

INTERVAL_S = 1.0
"""Least time between two writes; the last iteration is always written."""


class StatusFile(contextlib.AbstractContextManager):
  """Keeps the file of a run up to date; without a folder, nothing.

  A context manager, since what was held back is written at the end.
  """

  def __init__(self, run_dir: Path | None):
    self._path = run_dir / STATUS_FILE if run_dir else None
    self._written = -INTERVAL_S
    self._waiting: Status | None = None

  def __exit__(self, *_) -> None:
    self._write()

  def update(self, progress: Status, log: Mapping[str, float]) -> None:
    """Note the iteration that has just ended."""
    if self._path is None:
      return
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    self._waiting = replace(progress, values=headline_values(log), time=now)
    if time.monotonic() - self._written >= INTERVAL_S:
      self._write()

  def _write(self) -> None:
    if self._path is None or self._waiting is None:
      return
    # Checkpoints say that a disk is full; who only looks on must not end a run.
    with contextlib.suppress(UserError):
      write_text(self._path, json.dumps(asdict(self._waiting)) + "\n")
    self._waiting, self._written = None, time.monotonic()


def read_status(folder: Path | None) -> Status | None:
  """What the run in a folder last said; None where it has said nothing yet."""
  if folder is None:
    return None
  try:
    data = json.loads((folder / STATUS_FILE).read_text("utf-8"))
    return Status(**data)
  except (OSError, ValueError, TypeError):
    return None
