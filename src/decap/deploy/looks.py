"""What the simulated robot looks like: for videos and viewers, never for physics.

Meshes come from mjlab where it is installed. Without it the robot is drawn as what it
collides with: capsules and spheres.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import mujoco
import numpy as np

from decap.deploy.simulation import SimCfg, build_spec
from decap.robots.motors import RobotMotors

COLLISION_GROUP, PICTURE_GROUP = 3, 2


def build_looks(motors: RobotMotors, cfg: SimCfg) -> mujoco.MjModel:
  """The model of `build_spec` with light, sky and, where there are any, meshes.

  Its state has the same layout, so poses of the simulation can be shown in it.
  """
  spec = build_spec(motors, cfg)
  spec.visual.global_.offwidth, spec.visual.global_.offheight = 1280, 720
  spec.visual.headlight.ambient = [0.35, 0.35, 0.35]
  spec.visual.headlight.diffuse = [0.5, 0.5, 0.5]
  spec.visual.map.znear = 0.005
  spec.worldbody.add_light(
    type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
    dir=(0.3, 0.4, -1.0),
    diffuse=(0.5, 0.5, 0.5),
    castshadow=False,
  )
  add_sky(spec)
  _tile_ground(spec)
  meshes = _mesh_file()
  if meshes is not None:
    _add_meshes(spec, meshes)
  else:
    for geom in spec.geoms:
      if geom.group == COLLISION_GROUP:
        geom.group, geom.rgba = PICTURE_GROUP, (0.75, 0.75, 0.78, 1.0)
  return spec.compile()


def add_sky(spec: mujoco.MjSpec) -> None:
  """A sky that is lighter towards the horizon."""
  spec.add_texture(
    name="sky",
    type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
    builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
    rgb1=(0.45, 0.62, 0.85),
    rgb2=(0.92, 0.96, 1.0),
    width=64,
    height=64,
  )


def _mesh_file() -> Path | None:
  """mjlab's G1, found without importing mjlab."""
  found = importlib.util.find_spec("mjlab")
  if found is None or found.origin is None:
    return None
  path = Path(found.origin).parent / "asset_zoo/robots/unitree_g1/xmls/g1.xml"
  return path if path.is_file() else None


def _tile_ground(spec: mujoco.MjSpec) -> None:
  """Tiles, so that one sees the robot move over a plane."""
  texture = spec.add_texture(
    name="tiles",
    type=mujoco.mjtTexture.mjTEXTURE_2D,
    builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
    rgb1=(0.85, 0.85, 0.85),
    rgb2=(1.0, 1.0, 1.0),
    width=128,
    height=128,
  )
  material = spec.add_material(name="tiles", texrepeat=(2, 2), texuniform=True)
  material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = texture.name
  for geom in spec.geoms:
    if geom.name.startswith("ground"):
      geom.material = material.name
    if geom.type == mujoco.mjtGeom.mjGEOM_PLANE:
      geom.size = (40.0, 40.0, 1.0)  # Where nobody walks; an endless one flickers.


def _add_meshes(spec: mujoco.MjSpec, path: Path) -> None:
  """Hangs mjlab's meshes on the bodies of the same name."""
  source = mujoco.MjSpec.from_file(str(path))
  folder = path.parent / source.meshdir
  files = {mesh.name: folder / mesh.file for mesh in source.meshes}
  neck = np.asarray(spec.body("head_link").pos)
  used = set()
  for geom in source.geoms:
    if geom.type != mujoco.mjtGeom.mjGEOM_MESH:
      continue
    is_head = geom.meshname == "head_link"
    body = spec.body("head_link" if is_head else geom.parent.name)
    if geom.meshname not in used:
      spec.add_mesh(name=geom.meshname, file=str(files[geom.meshname]))
      used.add(geom.meshname)
    shade = 0.2 if geom.material == "black" else 0.75
    body.add_geom(
      type=mujoco.mjtGeom.mjGEOM_MESH,
      meshname=geom.meshname,
      pos=np.asarray(geom.pos) - (neck if is_head else 0.0),
      quat=geom.quat,
      group=PICTURE_GROUP,
      contype=0,
      conaffinity=0,
      mass=0.0,
      rgba=(shade, shade, shade + 0.02, 1.0),
    )
