"""A model as C MuJoCo needs it."""

from __future__ import annotations

import copy

import mujoco

# C MuJoCo meets mjlab's usual cap of 10 in 1 % of the steps, and then differs from Warp.
MIN_SOLVER_ITERATIONS = 20

# Geoms per body beyond which C MuJoCo's mid-phase collision pays (terrains).
MANY_GEOMS = 32


def native_model(model: mujoco.MjModel) -> mujoco.MjModel:
  """The model with what C MuJoCo needs to behave as Warp does."""
  model = copy.copy(model)
  model.opt.iterations = max(model.opt.iterations, MIN_SOLVER_ITERATIONS)
  # About 8 % faster than dense for a humanoid.
  model.opt.jacobian = mujoco.mjtJacobian.mjJAC_SPARSE
  # Diverged environments must be seen, not silently restarted.
  model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
  # Neither pays for one robot whose bodies have few geoms: together 8 %, same numbers.
  if model.ntree <= 1:
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_ISLAND)
  if model.body_geomnum.max() <= MANY_GEOMS:
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)
  # Shortcuts for frames that coincide would hide randomised offsets.
  for sameframe in (model.body_sameframe, model.geom_sameframe, model.site_sameframe):
    sameframe[:] = 0
  return model
