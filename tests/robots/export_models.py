"""Writes the model files of the simulated robots: ``python -m tests.robots.export_models``.

Deployment has no mjlab, so the robots that it simulates are files in this package. They
are mjlab's models as training uses them, without visual geoms (meshes are 19 MB and cost a
fifth of a step), with motors in place of position actuators, and with a head of its own
on a compliant neck, because a gyro in a rigid head reads what the torso's reads. Run it
again when mjlab's model changes; a test compares the files with a fresh export.
"""

from __future__ import annotations

import math
import re

import mujoco
import numpy as np
from mjlab.entity import Entity

from decap.deploy.simulation import MODELS
from decap.robots.g1 import g1

HEAD_MASS_KG = 1.036
"""Of the vendor's URDF; its MJCF counts it to the torso."""
HEAD_COM = (0.0092, 0.0003, 0.4059)
"""Centre of the head's mass in the frame of the torso, m."""
HEAD_RADIUS_M = 0.085
"""The head's inertia is that of a solid sphere."""
NECK_POS = (0.004, 0.0, 0.30)
"""Where the head's mount bends, in the frame of the torso, m."""
NECK_HZ = 12.0
NECK_DAMPING_RATIO = 0.1
"""Natural frequency and damping of the mount: assumed, not measured on a robot."""

CAMERA_POS = (0.058, 0.018, 0.430)
CAMERA_PITCH = 0.831
"""Depth camera in the head, in the frame of the torso: m, and rad below the horizon."""
LIDAR_POS = (0.0003, 0.0, 0.416)
"""Where the head's IMU sits: in its lidar."""

_NOTICE = """<!-- Unitree G1, derived from mjlab's model of it (Apache-2.0), which is derived from
     Unitree Robotics' description (BSD-3-Clause): see LICENSE in this folder. Changed:
     no meshes, torque motors, the head on a compliant neck, IMU sites, a head camera.
     Written by python -m tests.robots.export_models; do not edit. -->
"""


def export(dof: int) -> str:
  """The MJCF of one robot."""
  spec = Entity(g1(dof).entity).spec
  _drop_visual_geoms(spec)
  _drop(spec.sensors, spec)
  _drop(spec.keys, spec)
  _make_motors(spec)
  _split_head(spec)
  spec.modelname = f"g1_{dof}dof"
  spec.meshdir = ""
  spec.compile()
  # Defaults of the visual geoms, which cannot be deleted from a spec.
  xml = re.sub(
    r' *<default class="visual">.*?</default>\n', "", spec.to_xml(), flags=re.S
  )
  return f"{_NOTICE}{xml}"


def main() -> None:
  for dof in (29, 23):
    path = MODELS / f"g1_{dof}dof.xml"
    path.write_text(export(dof))
    print(f"Wrote {path}")


def _drop(elements, spec: mujoco.MjSpec) -> None:
  for element in list(elements):
    spec.delete(element)


def _drop_visual_geoms(spec: mujoco.MjSpec) -> None:
  for geom in list(spec.geoms):
    if geom.type == mujoco.mjtGeom.mjGEOM_MESH:
      spec.delete(geom)
  for elements in (spec.meshes, spec.materials, spec.lights, spec.cameras):
    _drop(elements, spec)


def _make_motors(spec: mujoco.MjSpec) -> None:
  """Torque motors in the order of the joints; the simulation closes the loop."""
  _drop(spec.actuators, spec)
  for joint in spec.joints:
    if joint.type == mujoco.mjtJoint.mjJNT_HINGE:
      motor = spec.add_actuator(name=joint.name, target=joint.name)
      motor.trntype = mujoco.mjtTrn.mjTRN_JOINT
      motor.set_to_motor()


def _split_head(spec: mujoco.MjSpec) -> None:
  """Takes the head's mass from the torso and puts it on three springs."""
  torso = spec.body("torso_link")
  inertia = 0.4 * HEAD_MASS_KG * HEAD_RADIUS_M**2
  _subtract_sphere(torso, HEAD_MASS_KG, np.array(HEAD_COM), inertia)
  offset = np.subtract(HEAD_COM, NECK_POS)
  head = torso.add_body(name="head_link", pos=NECK_POS)
  head.mass, head.ipos, head.inertia = HEAD_MASS_KG, offset, [inertia] * 3
  head.explicitinertial = True
  about_mount = inertia + HEAD_MASS_KG * (offset @ offset - offset**2)
  for index, (name, axis) in enumerate(
    (("roll", (1, 0, 0)), ("pitch", (0, 1, 0)), ("yaw", (0, 0, 1)))
  ):
    omega = 2 * math.pi * NECK_HZ
    joint = head.add_joint(name=f"neck_{name}_joint", axis=axis)
    joint.stiffness[0] = about_mount[index] * omega**2
    joint.damping[0] = 2 * NECK_DAMPING_RATIO * about_mount[index] * omega
  skull = spec.geom("head_collision")
  head.add_geom(
    name="head_link_collision",
    type=skull.type,
    size=skull.size,
    pos=skull.pos - NECK_POS,
    group=skull.group,
    rgba=skull.rgba,
    condim=1,
  )
  spec.delete(skull)
  spec.geom("head_link_collision").name = "head_collision"
  spec.add_exclude(bodyname1="torso_link", bodyname2="head_link")
  head.add_site(name="imu_in_head", pos=np.subtract(LIDAR_POS, NECK_POS))
  half = 0.5 * (math.pi / 2 - CAMERA_PITCH)
  head.add_camera(
    name="head_camera",
    pos=np.subtract(CAMERA_POS, NECK_POS),
    # Cameras look along −z: turn x forward, then pitch down.
    quat=_product(
      (math.cos(half), 0, -math.sin(half), 0), (math.sqrt(0.5), 0, 0, -math.sqrt(0.5))
    ),
    fovy=58.0,
  )


def _subtract_sphere(
  body: mujoco.MjsBody, mass: float, com: np.ndarray, inertia: float
) -> None:
  """The body without a sphere in it: masses, first and second moments add up."""
  axes = np.zeros(9)
  mujoco.mju_quat2Mat(axes, np.asarray(body.iquat) / np.linalg.norm(body.iquat))
  turn = axes.reshape(3, 3)
  whole = turn @ np.diag(body.inertia) @ turn.T + _steiner(body.mass, body.ipos)
  rest_mass = body.mass - mass
  rest_com = (body.mass * np.asarray(body.ipos) - mass * com) / rest_mass
  rest = whole - _steiner(mass, com) - inertia * np.eye(3)
  rest = rest - _steiner(rest_mass, rest_com)
  values, vectors = np.linalg.eigh(rest)
  if np.linalg.det(vectors) < 0:
    vectors[:, 0] *= -1
  quat = np.zeros(4)
  mujoco.mju_mat2Quat(quat, vectors.flatten())
  body.mass, body.ipos, body.iquat, body.inertia = rest_mass, rest_com, quat, values


def _steiner(mass: float, com: np.ndarray) -> np.ndarray:
  com = np.asarray(com)
  return mass * (com @ com * np.eye(3) - np.outer(com, com))


def _product(a: tuple[float, ...], b: tuple[float, ...]) -> np.ndarray:
  result = np.zeros(4)
  mujoco.mju_mulQuat(result, np.array(a, float), np.array(b, float))
  return result


if __name__ == "__main__":
  main()
