"""What a measurement ran on, so that numbers can be compared; what its GPU did."""

from __future__ import annotations

import gc
import os
import platform
import threading
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pynvml
import torch

from decap.sim.threads import available_cpus

_PACKAGES = ("mjlab", "mujoco", "mjbatch", "mujoco-warp", "warp-lang", "torch")
_SAMPLE_S = 0.05
# The driver averages over up to a second: what it says first is about the time before.
_SKIP_S = 0.8


def describe_machine() -> dict[str, object]:
  """Processor, GPU and the versions that speed depends on."""
  gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
  return {
    "cpu": _processor(),
    "cores": available_cpus(),
    "gpu": gpu,
    "driver": _ask_driver(pynvml.nvmlSystemGetDriverVersion),
    # Of others too: a busy machine is slow, and its numbers say so.
    "load": round(os.getloadavg()[0], 1),
    "platform": platform.platform(),
    "python": platform.python_version(),
    "versions": {name: metadata.version(name) for name in _PACKAGES},
  }


def physical_cores(cpus: Path = Path("/sys/devices/system/cpu")) -> list[int]:
  """One processor of each core that this process may use; of two threads, the first."""
  first: dict[str, int] = {}
  for cpu in sorted(os.sched_getaffinity(0)):
    siblings = cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list"
    core = siblings.read_text().strip() if siblings.exists() else str(cpu)
    first.setdefault(core, cpu)
  return list(first.values())


def _processor() -> str:
  cpuinfo = Path("/proc/cpuinfo")
  if cpuinfo.exists():
    for line in cpuinfo.read_text().splitlines():
      if line.startswith("model name"):
        return line.partition(":")[2].strip()
  return platform.processor() or platform.machine()


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
  words = ("out of memory", "failed to allocate")
  return isinstance(error, RuntimeError) and any(w in str(error).lower() for w in words)


def _device_handle(device: str) -> Any:
  """The driver's own handle of a torch device, which numbers devices differently."""
  if torch.device(device).type != "cuda":
    return None
  uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
  return _ask_driver(pynvml.nvmlDeviceGetHandleByUUID, f"GPU-{uuid}")


def _ask_driver(question: Callable[..., Any], *about: str) -> Any:
  """What the NVIDIA driver answers; None where there is none, or no answer."""
  try:
    pynvml.nvmlInit()
    return question(*about)
  except pynvml.NVMLError:
    return None
