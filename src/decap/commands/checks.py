"""Checks of top-level options that answer at once, before anything heavy is imported."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from decap.errors import UserError

BYTES_PER_ENV = 130_000
"""Memory that a G1 takes on the CPU engine, with its rollout; measured."""

GPU_BYTES, GPU_BYTES_PER_ENV = 600_000_000, 290_000
"""Memory of the G1 task on a GPU, graphs included; fits results/bench/throughput.json."""

DRAW = "mujoco.Renderer(mujoco.MjModel.from_xml_string('<mujoco/>'), 16, 16).close()"


def check_num_envs(num_envs: int | None, device: str) -> None:
  """At least one, and no more than fit into memory."""
  if num_envs is None:
    return
  if num_envs < 1:
    raise UserError(f"--num-envs must be at least 1, not {num_envs}.")
  available = _available_memory() if device == "cpu" else None
  if available and num_envs * BYTES_PER_ENV > available:
    raise UserError(
      f"{num_envs} environments need at least {num_envs * BYTES_PER_ENV / 1e9:.0f} GB "
      f"of memory; this machine has {available / 1e9:.0f} GB free."
    )


def check_gpu_memory(num_envs: int, device: str) -> None:
  """No more environments than fit into the GPU's free memory; needs torch."""
  if device == "cpu":
    return
  import torch

  free, _ = torch.cuda.mem_get_info(device)
  fit = int((free - GPU_BYTES) / GPU_BYTES_PER_ENV)
  if num_envs > fit:
    raise UserError(
      f"{num_envs} environments do not fit into the {free / 1e9:.1f} GB that are free "
      f"on {device}: about {max(fit, 0)} do (--num-envs)."
    )


@contextlib.contextmanager
def explained_memory(device: str) -> Iterator[None]:
  """Say in one sentence that a GPU's memory is full.

  What fits is estimated before; larger networks, longer rollouts and other programs
  need more than that.
  """
  try:
    yield
  except RuntimeError as error:
    from decap.bench.gpu import is_out_of_memory

    if not is_out_of_memory(error):
      raise
    raise UserError(
      f"{device} is out of memory: fewer environments need less (--num-envs)."
    ) from error


def check_device(device: str) -> str:
  """Resolve ``auto`` and make sure that a GPU that was asked for is there."""
  gpus = _num_gpus()
  if device == "auto":
    return "cuda:0" if gpus else "cpu"
  if device == "cpu":
    return device
  kind, _, index = device.partition(":")
  if kind != "cuda" or (index and not index.isdigit()):
    raise UserError(f"Unknown device '{device}' (there are auto, cpu, cuda, cuda:N).")
  if gpus == 0:
    raise UserError(
      f"There is no NVIDIA GPU here for --device {device}; use --device cpu."
    )
  if int(index or 0) >= gpus:
    raise UserError(f"There is no GPU {index}; this machine has {gpus}.")
  return f"cuda:{index or 0}"


def check_torch_device(device: str) -> None:
  """A GPU may be there while torch was built without CUDA; needs torch."""
  import torch

  if device != "cpu" and not torch.cuda.is_available():
    raise UserError(
      f"torch {torch.__version__} cannot use the GPU; install a build with CUDA or use "
      "--device cpu."
    )


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

  Tried in a process of its own, since graphics libraries warn and crash as they like.
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


def announce_imports(
  device: str, backend: str = "auto", *, draws: bool = False
) -> None:
  """Say why nothing seems to happen; call it before the first heavy import."""
  check_renderer(draws=draws)
  print("Loading torch and mjlab …", flush=True)
  if device == "cpu" and backend != "warp":
    # Warp compiles nothing then. Otherwise its progress explains the first minutes.
    os.environ.setdefault("MJLAB_WARP_QUIET", "1")


def _num_gpus() -> int:
  """Number of NVIDIA GPUs by the driver itself; importing torch would take seconds."""
  for name in ("libcuda.so.1", "nvcuda.dll"):
    try:
      driver = ctypes.CDLL(name)
    except OSError:
      continue
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
      return 0
    return count.value
  return 0


def _available_memory() -> int | None:
  """Bytes of memory that programs can still have, where the system tells."""
  try:
    for line in Path("/proc/meminfo").read_text().splitlines():
      if line.startswith("MemAvailable:"):
        return int(line.split()[1]) * 1024
  except OSError:
    pass
  return None
