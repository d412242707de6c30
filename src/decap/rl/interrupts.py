"""Ctrl-C and SIGTERM, for loops that end where they can go on."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def on_interrupt(handle: Callable[..., None]) -> Iterator[None]:
  """SIGINT and SIGTERM call `handle`; Python lets only the main thread say so."""
  main = threading.current_thread() is threading.main_thread()
  numbers = (signal.SIGINT, signal.SIGTERM) if main else ()
  old = {number: signal.signal(number, handle) for number in numbers}
  try:
    yield
  finally:
    for number, handler in old.items():
      signal.signal(number, handler)
