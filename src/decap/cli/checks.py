"""The import of torch and mjlab, and what only torch can tell: a GPU and its memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from decap.errors import UserError
from decap.options import machine

GPU_BYTES, GPU_BYTES_PER_ENV = 600_000_000, 290_000
"""Memory of the G1 task on a GPU, graphs included; fits results/bench/throughput.json."""


def check_torch_device(device: str, num_envs: int = 0) -> None:
  """Whether torch can use the GPU, and so many environments fit into its free memory.

  A GPU may be there while torch was built without CUDA. From here on it is the current
  one, which those calls of torch and Warp mean that name none.
  """
  if device == "cpu":
    return
  import torch

  if not torch.cuda.is_available():
    raise UserError(
      f"torch {torch.__version__} cannot use the GPU; install a build with CUDA or use "
      "--device cpu."
    )
  torch.cuda.set_device(device)
  free, _ = torch.cuda.mem_get_info(device)
  fit = int((free - GPU_BYTES) / GPU_BYTES_PER_ENV)
  if num_envs and num_envs > fit:
    raise UserError(
      f"{num_envs} environments do not fit into the {free / 1e9:.1f} GB that are free "
      f"on {device}: about {max(fit, 0)} do (--num-envs)."
    )


@contextlib.contextmanager
def explained_memory(device: str, option: str = "--num-envs") -> Iterator[None]:
  """Say in one sentence that a GPU's memory is full, and which option empties it.

  What fits is estimated before; larger networks, longer rollouts and other programs
  need more than that.
  """
  try:
    yield
  except RuntimeError as error:
    if not is_out_of_memory(error):
      raise
    raise UserError(
      f"{device} is out of memory: fewer environments need less ({option})."
    ) from error


def is_out_of_memory(error: BaseException) -> bool:
  """Whether torch, or Warp, could not allocate."""
  words = ("out of memory", "failed to allocate")
  return isinstance(error, RuntimeError) and any(w in str(error).lower() for w in words)


def announce_imports(
  device: str, backend: str = "auto", *, draws: bool = False
) -> None:
  """Say why nothing seems to happen; call it before the first heavy import."""
  machine.check_renderer(draws=draws)
  print("Loading torch and mjlab …", flush=True)
  if device == "cpu" and backend != "warp":
    # Warp compiles nothing then. Otherwise its progress explains the first minutes.
    os.environ.setdefault("MJLAB_WARP_QUIET", "1")
