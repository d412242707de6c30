"""A model as C MuJoCo needs it: its settings, and no meshes that are only looked at."""

from __future__ import annotations

import copy

import mujoco
import numpy as np

# C MuJoCo meets mjlab's usual cap of 10 in 1 % of the steps, and then differs from Warp.
MIN_SOLVER_ITERATIONS = 20

# Geoms per body beyond which C MuJoCo's mid-phase collision pays (terrains).
MANY_GEOMS = 32

# Sensors that see geoms which nothing touches, or may.
_LOOKING_SENSORS = [
  int(mujoco.mjtSensor.mjSENS_RANGEFINDER),
  int(mujoco.mjtSensor.mjSENS_GEOMDIST),
  int(mujoco.mjtSensor.mjSENS_GEOMNORMAL),
  int(mujoco.mjtSensor.mjSENS_GEOMFROMTO),
  int(mujoco.mjtSensor.mjSENS_TACTILE),
  int(mujoco.mjtSensor.mjSENS_PLUGIN),
  int(mujoco.mjtSensor.mjSENS_USER),
]
# How the names of model fields begin that say what a mesh looks like.
_PICTURE_FIELDS = ("mesh_", "bvh_", "body_bvh", "name", "geom_type", "geom_dataid")


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


def without_visual_geoms(model: mujoco.MjModel, spec: mujoco.MjSpec) -> mujoco.MjModel:
  """The model with points in place of meshes that are only looked at.

  In every step C MuJoCo clears one byte for each node of each mesh's search tree. For
  G1 that is 0.8 MB: a fifth of its time, and all of a core's cache.

  Args:
    model: The model as compiled; returned as it is where no mesh can be spared.
    spec: What it was compiled from.
  """
  looking = np.isin(model.sensor_type, _LOOKING_SENSORS).any()
  if looking or model.nflex or model.geom_fluid.any():
    return model
  spec = spec.copy()
  if not _replace_meshes(spec, model):
    return model
  _fix_inertias(spec, model)
  try:
    light = spec.compile()
  except ValueError:
    return model
  return light if _copy_fields(light, model) else model


def _replace_meshes(spec: mujoco.MjSpec, model: mujoco.MjModel) -> bool:
  """Puts small spheres where nothing is touched; whether there was such a mesh."""
  touching = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
  touching[model.pair_geom1] = touching[model.pair_geom2] = True
  visual = [
    geom
    for geom in spec.geoms
    if geom.type == mujoco.mjtGeom.mjGEOM_MESH and not touching[geom.id]
  ]
  for geom in visual:
    geom.type = mujoco.mjtGeom.mjGEOM_SPHERE
    geom.size[0] = 0.01
    geom.meshname = ""
  in_use = {geom.meshname for geom in spec.geoms}
  for mesh in list(spec.meshes):
    if mesh.name not in in_use:
      spec.delete(mesh)
  return bool(visual)


def _fix_inertias(spec: mujoco.MjSpec, model: mujoco.MjModel) -> None:
  """Bodies keep the inertia that the compiler may have taken from their meshes."""
  spec.compiler.inertiafromgeom = int(mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE)
  for body in spec.bodies:
    if body.id > 0:
      body.explicitinertial = True
      body.mass = model.body_mass[body.id]
      body.ipos = model.body_ipos[body.id]
      body.iquat = model.body_iquat[body.id]
      body.inertia = model.body_inertia[body.id]
      body.fullinertia = np.full(6, np.nan)


def _copy_fields(light: mujoco.MjModel, model: mujoco.MjModel) -> bool:
  """Copies what else the compiler derived from meshes; whether the models fit."""
  fields = {n: getattr(model, n) for n in dir(model) if not n.startswith("_")}
  for name, array in fields.items():
    if not isinstance(array, np.ndarray) or name.startswith(_PICTURE_FIELDS):
      continue
    if name.endswith("_pathadr"):  # Places in a list of files, which became shorter.
      continue
    copied = getattr(light, name)
    if copied.shape != array.shape:
      return False
    copied[:] = array
  light.stat.meaninertia = model.stat.meaninertia
  # The bodies' search trees, which come first, are in the frames of their inertias.
  nodes = int(model.body_bvhnum.sum())
  return (
    np.array_equal(light.body_bvhadr, model.body_bvhadr)
    and np.array_equal(light.body_bvhnum, model.body_bvhnum)
    and np.allclose(light.bvh_aabb[:nodes], model.bvh_aabb[:nodes], atol=1e-9)
  )
