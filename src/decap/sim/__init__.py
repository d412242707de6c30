"""Physics behind mjlab's environments: MuJoCo Warp on GPUs, C MuJoCo on CPUs."""

from decap.sim.backend import (
  Backend as Backend,
)
from decap.sim.backend import (
  make_simulation as make_simulation,
)
from decap.sim.backend import (
  resolve_backend as resolve_backend,
)
from decap.sim.backend import (
  simulation_backend as simulation_backend,
)
from decap.sim.native import NativeSimulation as NativeSimulation
from decap.sim.warp import WarpSimulation as WarpSimulation
