"""Physics behind mjlab's environments: MuJoCo Warp on GPUs, C MuJoCo on CPUs."""

from decap.sim.backend import (
  Backend,
  make_simulation,
  resolve_backend,
  simulation_backend,
)
from decap.sim.native import NativeSimulation
from decap.sim.warp import WarpSimulation

__all__ = [
  "Backend",
  "NativeSimulation",
  "WarpSimulation",
  "make_simulation",
  "resolve_backend",
  "simulation_backend",
]
