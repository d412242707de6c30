"""Ctrl-C and SIGTERM during training."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any


class Interrupts:
  """First SIGINT or SIGTERM calls `stop`; a second SIGINT is a KeyboardInterrupt."""

  def __init__(self, stop: Callable[[], None]):
    self._call = stop
    self._old: dict[int, Any] = {}

  def __enter__(self) -> Interrupts:
    # Python lets only the main thread set handlers.
    if threading.current_thread() is threading.main_thread():
      for number in (signal.SIGINT, signal.SIGTERM):
        self._old[number] = signal.signal(number, self._handle)
    return self

  def __exit__(self, *_) -> None:
    for number, handler in self._old.items():
      signal.signal(number, handler)

  def _handle(self, number: int, frame: Any) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    self._call()
