"""What a measurement ran on, so that numbers can be compared."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

import torch

from decap.bench.gpu import driver_version
from decap.sim.threads import available_cpus

_PACKAGES = ("mjlab", "mujoco", "mjbatch", "mujoco-warp", "warp-lang", "torch")


def describe_machine() -> dict[str, object]:
  """Processor, GPU and the versions that speed depends on."""
  gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
  return {
    "cpu": _processor(),
    "cores": available_cpus(),
    "gpu": gpu,
    "driver": driver_version(),
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
