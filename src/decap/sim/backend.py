"""Which physics runs: MuJoCo Warp, or C MuJoCo; and how mjlab is made to use it.

mjlab's environment constructs ``Simulation`` by a module-level name and takes no other,
so that name is exchanged while an environment is built.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import torch
from mjlab.envs import manager_based_rl_env
from mjlab.sim.sim import SimulationCfg

from decap.errors import UserError
from decap.sim.native import NativeSimulation
from decap.sim.warp import WarpSimulation

if TYPE_CHECKING:
  import mujoco

Backend = Literal["auto", "warp", "native"]


def resolve_backend(
  device: str, backend: Backend = "auto"
) -> Literal["warp", "native"]:
  """The backend for a device: C MuJoCo on a CPU, Warp on a GPU, unless asked."""
  kind, _, index = device.partition(":")
  if kind not in ("cpu", "cuda") or not (index or "0").isdigit():
    raise UserError(f"device {device!r} is not supported: use cpu, cuda or cuda:N")
  if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
    raise UserError(
      f"device {device!r} was asked for, but {torch.cuda.device_count() or 'no'} "
      "NVIDIA GPU is available"
    )
  if backend == "auto":
    return "warp" if kind == "cuda" else "native"
  if backend not in ("warp", "native"):
    raise UserError(f"backend {backend!r} is unknown: use auto, warp or native")
  if backend == "native" and kind == "cuda":
    raise UserError("the native backend runs on the CPU: use device cpu, or warp")
  return backend


def make_simulation(
  num_envs: int,
  cfg: SimulationCfg,
  model: mujoco.MjModel | None = None,
  device: str = "cpu",
  *,
  backend: Backend = "auto",
  num_threads: int = 0,
  split: bool = False,
  **scene: Any,
) -> NativeSimulation | WarpSimulation:
  """A simulation of ``num_envs`` copies of a model; ``scene`` is as mjlab has it.

  Args:
    num_threads: Threads of the native backend; 0 takes every available core.
    split: Leave forces out of the closing forward pass (see WarpSimulation, which also
      shares its work with the next substep).
  """
  if num_envs < 1:
    raise UserError(f"the number of environments must be positive, not {num_envs}")
  if resolve_backend(device, backend) == "native":
    return NativeSimulation(
      num_envs, cfg, model, device, **scene, num_threads=num_threads, split=split
    )
  return WarpSimulation(num_envs, cfg, model, device, **scene, split=split)


@contextmanager
def simulation_backend(backend: Backend = "auto", **options: Any) -> Iterator[None]:
  """Environments that mjlab builds inside run on this backend.

  ``options`` go to make_simulation. Not for several threads at once.
  """

  def build(*args: Any, **kwargs: Any) -> NativeSimulation | WarpSimulation:
    return make_simulation(*args, **kwargs, backend=backend, **options)

  stock = manager_based_rl_env.Simulation
  manager_based_rl_env.Simulation = build  # type: ignore[misc, assignment]
  try:
    yield
  finally:
    manager_based_rl_env.Simulation = stock  # type: ignore[misc]


def hush_warp() -> None:
  """Let Warp start without a word; it says what devices there are, and are not.

  What is missing it writes past Python. A device that is needed and missing is told by
  our own checks.
  """
  import warp

  warp.config.quiet = True  # ty: ignore[unresolved-attribute]
  sys.stdout.flush()
  sys.stderr.flush()
  kept = [(number, os.dup(number)) for number in (1, 2)]
  nowhere = os.open(os.devnull, os.O_WRONLY)
  try:
    for number, _ in kept:
      os.dup2(nowhere, number)
    warp.init()
  finally:
    for number, copy in kept:
      os.dup2(copy, number)
      os.close(copy)
    os.close(nowhere)
