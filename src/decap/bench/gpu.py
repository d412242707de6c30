"""What a GPU does while something is measured: how busy it is, how much it holds."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pynvml
import torch

_SAMPLE_S = 0.05
# The driver averages over up to a second: what it says first is about the time before.
_SKIP_S = 0.8


class BusyMeter:
  """Share of time with at least one kernel at work, as the driver counts it.

  A context manager; afterwards ``share`` is in [0, 1], or None where there is no
  NVIDIA driver, or too little time for a reading.
  """

  def __init__(self, device: str):
    self.share: float | None = None
    self._readings: list[int] = []
    self._ended = threading.Event()
    self._handle = _device_handle(device)
    self._thread = threading.Thread(target=self._watch, daemon=True)

  def __enter__(self) -> BusyMeter:
    self._thread.start()
    return self

  def __exit__(self, *_: object) -> None:
    self._ended.set()
    self._thread.join()
    if self._readings:
      self.share = sum(self._readings) / len(self._readings) / 100.0

  def _watch(self) -> None:
    if self._handle is None or self._ended.wait(_SKIP_S):
      return
    while not self._ended.wait(_SAMPLE_S):
      try:
        self._readings.append(pynvml.nvmlDeviceGetUtilizationRates(self._handle).gpu)
      except pynvml.NVMLError:
        return


def driver_version() -> str | None:
  """Version of the NVIDIA driver, if there is one."""
  try:
    pynvml.nvmlInit()
    return pynvml.nvmlSystemGetDriverVersion()
  except pynvml.NVMLError:
    return None


def release_memory(device: str) -> None:
  """Give back what earlier measurements held."""
  # Environments and graphs refer to each other in cycles.
  gc.collect()
  if torch.device(device).type == "cuda":
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def memory_gb(device: str) -> float | None:
  """GPU memory that torch has reserved at most, and that Warp's arrays hold now."""
  if torch.device(device).type != "cuda":
    return None
  import warp as wp

  warp_bytes = wp.get_mempool_used_mem_current(wp.get_device(device))
  return (torch.cuda.max_memory_reserved() + warp_bytes) / 1e9


def is_out_of_memory(error: BaseException) -> bool:
  """Whether torch, or Warp, could not allocate."""
  if isinstance(error, torch.cuda.OutOfMemoryError):
    return True
  text = str(error).lower()
  return isinstance(error, RuntimeError) and (
    "out of memory" in text or "failed to allocate" in text
  )


def _device_handle(device: str) -> Any:
  """The driver's own handle of a torch device, which numbers devices differently."""
  if torch.device(device).type != "cuda":
    return None
  uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
  try:
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
  except pynvml.NVMLError:
    return None
