"""NVIDIA MPS: lets several processes share a GPU instead of taking turns on it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from decap.options.machine import num_gpus

_CONTROL = "nvidia-cuda-mps-control"

# In containers the daemon may start while no client can reach it.
_PROBE = """
import ctypes, sys
driver, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
assert driver.cuInit(0) == 0
assert driver.cuDeviceGet(ctypes.byref(device), int(sys.argv[1])) == 0
assert driver.cuCtxCreate_v2(ctypes.byref(context), 0, device) == 0
"""


@contextlib.contextmanager
def shared_gpu(device: str = "cuda:0") -> Iterator[tuple[dict[str, str], str]]:
  """Environment variables for processes that share a GPU, and a note about them.

  Starts an MPS daemon of our own, for all GPUs that are visible, and stops it at the end.
  Where `device` does not work with it the processes take turns, and the note says so.
  """
  if "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
    yield {}, "Runs share a GPU through the MPS daemon that is already there."
    return
  if shutil.which(_CONTROL) is None:
    yield {}, f"Runs take turns on a GPU: there is no {_CONTROL}."
    return
  with (
    tempfile.TemporaryDirectory(prefix="mps-", ignore_cleanup_errors=True) as folder,
    contextlib.ExitStack() as daemon,
  ):
    names = ("pipe", "log")
    variables = {f"CUDA_MPS_{n.upper()}_DIRECTORY": f"{folder}/{n}" for n in names}
    for path in variables.values():
      os.mkdir(path)
    env = {**os.environ, **variables}
    if started := _succeeds([_CONTROL, "-d"], env):
      daemon.callback(_succeeds, [_CONTROL], env, "quit")
    if os.environ.get("CUDA_VISIBLE_DEVICES", "")[:1].isdigit():
      # The daemon's choice; its clients number these GPUs from 0 on. UUIDs stay.
      variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(num_gpus())))
    probe = [sys.executable, "-c", _PROBE, device.partition(":")[2]]
    if started and _succeeds(probe, {**env, **variables}):
      yield variables, "Runs share a GPU through MPS."
    else:
      daemon.close()
      yield {}, "Runs take turns on a GPU: MPS did not start."


def _succeeds(command: list[str], env: dict[str, str], text: str = "") -> bool:
  try:
    done = subprocess.run(
      command,
      env=env,
      input=text.encode(),
      # Not pipes: the daemon would keep them open.
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
      timeout=60,
    )
  except (OSError, subprocess.TimeoutExpired):
    return False
  return done.returncode == 0
