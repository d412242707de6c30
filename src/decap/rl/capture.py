"""Records pieces of the training loop as CUDA graphs and replays them.

The code that is recorded is the code that runs eagerly. What a recording needs is
here: one stream for torch and Warp, Warp's conditional nodes inside torch's capture,
and a garbage collector that stays quiet.
"""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
  from decap.rl.runner import Runner

MIN_DRIVER = (12, 4)
"""First CUDA driver with the conditional graph nodes that the solver's loop needs."""


class Captured:
  """A function without arguments that runs as a CUDA graph."""

  def __init__(self, func: Callable[[], None], stream: torch.cuda.Stream):
    """Records ``func``, which must have run before on this stream, without a call."""
    self._stream = stream
    torch.cuda.synchronize()
    self._graph = torch.cuda.CUDAGraph()
    with _no_garbage_collection(), _recording(self._graph, stream):
      func()
    torch.cuda.synchronize()

  def __call__(self) -> None:
    with torch.cuda.stream(self._stream):
      self._graph.replay()


class Graphs:
  """A runner's rollout step and update as CUDA graphs.

  The first iteration runs eagerly: it allocates what the recordings then reuse, such
  as the optimiser's state. The second one records.
  """

  def __init__(self, runner: Runner):
    self._runner = runner
    self._forget()

  @contextlib.contextmanager
  def stream(self) -> Iterator[None]:
    """Everything between the replays must run on their stream too.

    On a new stream everything is recorded anew: memory may have moved meanwhile, such
    as the optimiser's with a resume.
    """
    self._forget()
    with own_stream(self._runner.env.sim) as self._stream:
      yield

  def rollout(self) -> None:
    """All steps of one iteration."""
    runner, env = self._runner, self._runner.env
    steps = runner.cfg.num_steps_per_env
    before = env.common_step_counter
    if self._warm and self.step is None:
      assert self._stream is not None
      self.step = Captured(runner.rollout_step, self._stream)
    step = self.step or torch.no_grad()(runner.rollout_step)
    for _ in range(steps):
      step()
    # Replays do not run the Python that counts.
    env.set_step_count(before + steps)

  def learn(self) -> None:
    """The update of one iteration."""
    if self._warm and self.update is None:
      assert self._stream is not None
      self.update = Captured(self._runner.learn_from_rollout, self._stream)
    (self.update or self._runner.learn_from_rollout)()
    self._warm = True

  def _forget(self) -> None:
    self._stream: torch.cuda.Stream | None = None
    self.step: Captured | None = None
    self.update: Captured | None = None
    self._warm = False


@contextlib.contextmanager
def own_stream(sim: Any) -> Iterator[torch.cuda.Stream]:
  """A stream for torch, Warp and a WarpSimulation, on which work can be recorded."""
  import warp as wp

  stream = torch.cuda.Stream(sim.device)
  usual = torch.cuda.ExternalStream(wp.get_stream(sim.wp_device).cuda_stream)
  graphs, sim.use_cuda_graph = sim.use_cuda_graph, False
  torch.cuda.synchronize()
  sim.use_stream(stream)
  try:
    with on_stream(stream):
      yield stream
  finally:
    torch.cuda.synchronize()
    sim.use_stream(usual)
    sim.use_cuda_graph = graphs


@contextlib.contextmanager
def on_stream(stream: torch.cuda.Stream) -> Iterator[None]:
  """Makes torch and Warp issue their work on one stream."""
  import warp as wp

  with (
    torch.cuda.stream(stream),
    wp.ScopedStream(_warp_stream(stream.device, stream.cuda_stream), sync_enter=False),
  ):
    yield


@functools.cache
def _warp_stream(device: torch.device, handle: int) -> Any:
  """Warp's view of a torch stream: one for ever.

  A second view would take the registration of the first along when it goes, and Warp
  would not know the stream any more. torch hands out the same few streams again.
  """
  import warp as wp

  return wp.Stream(wp.device_from_torch(device), cuda_stream=handle)


@contextlib.contextmanager
def _recording(
  graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream
) -> Iterator[None]:
  import warp as wp

  with torch.cuda.graph(graph, stream=stream), on_stream(stream):
    # Registers torch's capture with Warp, so that wp.capture_while becomes a node.
    with wp.ScopedCapture(
      stream=wp.get_stream(wp.device_from_torch(stream.device)),
      external=True,
      capture_mode=wp.CaptureMode.GLOBAL,
    ):
      yield


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
  """A collected graph's destructor would be recorded, and corrupt the recording."""
  gc.collect()
  enabled = gc.isenabled()
  gc.disable()
  try:
    yield
  finally:
    if enabled:
      gc.enable()


def why_not(device: str, waiting_terms: list[str]) -> str | None:
  """Why a training loop cannot be captured here, or None if it can."""
  if torch.device(device).type != "cuda":
    return "there is no GPU in use"
  if waiting_terms:
    return f"the environment waits for the device in: {', '.join(waiting_terms)}"
  import warp as wp

  driver = wp.get_cuda_driver_version()
  if driver is None or driver < MIN_DRIVER:
    return f"the CUDA driver {driver} has no conditional graph nodes (12.4 has)"
  if not wp.is_mempool_enabled(wp.get_device(device)):
    return "Warp's memory pool is off on this device"
  return None
