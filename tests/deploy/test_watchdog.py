"""The watchdog as the controller sees it: alive is who reads, not who is there."""

import signal
import time

from decap.deploy import watchdog

WITHOUT_NETWORK = """
import sys
from decap.deploy.watchdog import watch
print("watching", flush=True)
watch(int(sys.argv[6]), 30.0)
"""
HANG_S = 1.0


def _beaten(guard: watchdog.Watchdog, until_alive: bool, most_s: float) -> float:
  """Beats until it counts as alive, or does not any more; returns how long that took."""
  began_s = time.monotonic()
  while guard.alive() != until_alive and time.monotonic() < began_s + most_s:
    guard.beat()
    time.sleep(0.005)
  return time.monotonic() - began_s


def test_a_watchdog_that_is_stopped_does_not_count_as_alive(monkeypatch):
  monkeypatch.setattr(watchdog, "_START", WITHOUT_NETWORK)
  guard = watchdog.Watchdog("lo", 0, "g1_29dof", 5, HANG_S)
  assert _beaten(guard, until_alive=False, most_s=1.2) >= 1.2
  guard._process.send_signal(signal.SIGSTOP)
  try:
    assert HANG_S / 2 < _beaten(guard, until_alive=False, most_s=5.0) < 5.0
  finally:
    guard._process.send_signal(signal.SIGCONT)
  assert _beaten(guard, until_alive=True, most_s=5.0) < 5.0
  guard.goodbye()
  guard.close()
  assert guard._process.returncode == 0
