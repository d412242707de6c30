"""What a measurement runs on, so that numbers can be compared; what its GPU does."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pynvml
import torch
from mjlab.utils.torch import configure_torch_backends

from decap.sim.backend import hush_warp
from decap.sim.threads import available_cpus

_PACKAGES = ("mjlab", "mujoco", "mjbatch", "mujoco-warp", "warp-lang", "torch")


def configure_torch(device: str) -> None:
  """As training does: on a CPU physics has the cores."""
  configure_torch_backends()
  if device == "cpu":
    torch.set_num_threads(1)


def describe_machine() -> dict[str, object]:
  """Processor, GPU and the versions that speed depends on."""
  return {
    "cpu": _processor(),
    "cores": available_cpus(),
    "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    "driver": _driver(),
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
  for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else ():
    if line.startswith("model name"):
      return line.partition(":")[2].strip()
  return platform.processor() or platform.machine()


def _driver() -> str | None:
  try:
    pynvml.nvmlInit()
    return pynvml.nvmlSystemGetDriverVersion()
  except pynvml.NVMLError:
    return None


def busy(device: str) -> float | None:
  """Share of about the last second with a kernel at work, as the driver counts it."""
  try:
    return None if device == "cpu" else torch.cuda.utilization(device) / 100.0
  except pynvml.NVMLError:  # Not every driver answers.
    return None


def release_memory(device: str) -> None:
  """Give back what earlier measurements held."""
  # Environments and graphs refer to each other in cycles.
  gc.collect()
  if device != "cpu":
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def memory_gb(device: str) -> float | None:
  """GPU memory that torch has reserved at most, and that Warp's arrays hold now."""
  if device == "cpu":
    return None
  import warp as wp

  warp_bytes = wp.get_mempool_used_mem_current(wp.get_device(device))
  return (torch.cuda.max_memory_reserved() + warp_bytes) / 1e9


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
  """Hide what mjlab prints of its managers and seeds, and Warp of the devices."""
  hush_warp()
  with contextlib.redirect_stdout(io.StringIO()):
    yield
