"""Whether this machine has what an option asks for; answered without torch."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from decap.errors import UserError

BYTES_PER_ENV = 130_000
"""Memory that a G1 takes on the CPU engine, with its rollout; measured."""

DRAW = "mujoco.Renderer(mujoco.MjModel.from_xml_string('<mujoco/>'), 16, 16).close()"


def check_num_envs(num_envs: int | None, device: str) -> None:
  """No more than fit into memory."""
  needed = (num_envs or 0) * BYTES_PER_ENV
  available = _available_memory() if device == "cpu" else None
  if available and needed > available:
    raise UserError(
      f"{num_envs} environments need at least {needed / 1e9:.0f} GB of memory; this "
      f"machine has {available / 1e9:.0f} GB free."
    )


def check_device(device: str) -> str:
  """Resolve ``auto`` and make sure that a GPU that was asked for is there."""
  gpus = num_gpus()
  if device == "auto":
    return "cuda:0" if gpus else "cpu"
  if device == "cpu":
    return device
  kind, _, index = device.partition(":")
  if kind != "cuda" or (index and not index.isdecimal()):
    raise UserError(f"Unknown device '{device}' (there are auto, cpu, cuda, cuda:N).")
  if gpus == 0:
    raise UserError(
      f"There is no NVIDIA GPU here for --device {device}; use --device cpu."
    )
  if int(index or 0) >= gpus:
    raise UserError(f"There is no GPU {index}; this machine has {gpus}.")
  return f"cuda:{index or 0}"


def check_devices(names: str) -> tuple[str, ...]:
  """Devices by name, with commas between them; ``auto`` is all GPUs."""
  if names == "auto":
    return tuple(f"cuda:{index}" for index in range(num_gpus())) or ("cpu",)
  devices = tuple(check_device(name.strip()) for name in names.split(","))
  if len(devices) > 1 and ("auto" in names or "cpu" in devices):
    raise UserError(f"Several devices must be GPUs by name, not '{names}'.")
  if len(set(devices)) < len(devices):
    raise UserError(f"'{names}' names a GPU twice.")
  return devices


def available_cpus() -> int:
  """Cores that this process may use; importing `decap.sim` would take seconds."""
  if hasattr(os, "sched_getaffinity"):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def check_backend(backend: str, device: str) -> None:
  """C MuJoCo runs on the CPU only."""
  if backend == "native" and device != "cpu":
    raise UserError(f"The native backend needs --device cpu, not {device}.")


def check_installed(package: str, option: str) -> None:
  """An optional package that an option needs."""
  if importlib.util.find_spec(package) is None:
    raise UserError(f"{option} needs the package '{package}': pip install {package}.")


def check_renderer(*, draws: bool = False) -> None:
  """MuJoCo does not load with a renderer that it cannot load, used or not.

  Tried in a process of its own, since graphics libraries warn and crash as they like;
  this one then takes what was tried.
  """
  if not draws and "MUJOCO_GL" not in os.environ:
    return
  default = "egl" if sys.platform.startswith("linux") else ""  # As in mjlab.
  name = os.environ.get("MUJOCO_GL", default)
  child = subprocess.run(
    [sys.executable, "-c", f"import mujoco; {DRAW if draws else ''}"],
    env={**os.environ, "MUJOCO_GL": name},
    capture_output=True,
  )
  if child.returncode:
    raise UserError(
      f"MuJoCo's renderer does not start here with MUJOCO_GL={name}; egl needs no "
      "display (on Debian or Ubuntu: apt-get install libegl1 libgl1-mesa-dri)."
    )
  os.environ["MUJOCO_GL"] = name  # Before MuJoCo is imported.


def num_gpus() -> int:
  """Number of NVIDIA GPUs by CUDA's driver; importing torch would take seconds.

  Not by NVML, which also counts those that CUDA_VISIBLE_DEVICES hides.
  """
  try:
    driver = ctypes.CDLL("libcuda.so.1")
  except OSError:
    return 0
  count = ctypes.c_int(0)
  if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
    return 0
  return count.value


def _available_memory() -> int | None:
  """Bytes of memory that programs can still have, where the system tells."""
  try:
    for line in Path("/proc/meminfo").read_text().splitlines():
      if line.startswith("MemAvailable:"):
        return int(line.split()[1]) * 1024
  except OSError:
    pass
  return None
