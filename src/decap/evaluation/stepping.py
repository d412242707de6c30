"""Steps of policy, environment and measurement: eager, or as one CUDA graph."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

EAGER_STEPS = 3
"""Steps before a CUDA graph is recorded: they allocate what it reuses."""

SYNC_STEPS = 50
"""Steps after which the host waits, so that a progress bar tells the truth."""


def run_steps(
  env: Any,
  count: int,
  step: Callable[[], None],
  *,
  start: Callable[[], None],
  before: Callable[[int], None] = lambda t: None,
  after: Callable[[], None] = lambda: None,
  on_step: Callable[[int], None] | None = None,
) -> float:
  """Run `step` so many times; returns the seconds that they took.

  Args:
    step: Reads and writes fixed buffers only; a GPU records it.
    start: Called once before, on the same stream.
    before: Called with the number of each step before it, outside of the recording.
    after: Called after each step, outside of the recording.
    on_step: Called with the number of finished steps, now and then.
  """
  with _stream(env) as stream, torch.no_grad():
    start()
    _synchronize(env)
    began = time.perf_counter()
    now = step
    for t in range(count):
      if stream is not None and t == EAGER_STEPS:
        from decap.rl.capture import Captured

        now = Captured(step, stream)
      before(t)
      now()
      after()
      if (t + 1) % SYNC_STEPS == 0 or t + 1 == count:
        _synchronize(env)
        if on_step:
          on_step(t + 1)
    return time.perf_counter() - began


@contextlib.contextmanager
def _stream(env: Any) -> Iterator[torch.cuda.Stream | None]:
  """The stream to record on; None where the steps run eagerly."""
  if torch.device(env.device).type != "cuda":
    yield None
    return
  from decap.rl import capture

  reason = capture.why_not(str(env.device), env.waiting_terms)
  if reason is not None:
    print(f"Evaluating without CUDA graphs: {reason}.")
    yield None
    return
  with capture.own_stream(env.sim) as stream:
    yield stream


def _synchronize(env: Any) -> None:
  if torch.device(env.device).type == "cuda":
    torch.cuda.synchronize()
