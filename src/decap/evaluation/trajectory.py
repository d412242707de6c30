"""Samples of a rollout, and the one file format that stores them.

A trajectory file is a NumPy `.npz` archive (compressed) of arrays [T, B, …], one per
field of `Sample` plus `age` and `delta`, one per constrained quantity
(`quantity/NAME`), and a JSON text `meta` with the layout
(joint names, groups, limits, time steps), the protocol and the skeleton for playback.
docs/evaluation.md lists fields and units. `load_trajectory` opens it.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from decap.deploy.description import MALFORMED
from decap.errors import UserError, check_known
from decap.evaluation.layout import Layout
from decap.files import replacing

if TYPE_CHECKING:
  import torch

TRAJECTORY_SCHEMA = 2


@dataclass
class Sample:
  """What one control step left behind, before any reset; batched tensors."""

  action: torch.Tensor  # [B, J], raw
  joint_pos: torch.Tensor  # [B, J], rad
  joint_vel: torch.Tensor  # [B, J], rad/s
  joint_vel_before: torch.Tensor  # [B, J], before the last physics substep
  joint_torque: torch.Tensor  # [B, J], Nm, applied by the actuators at the joints
  base_velocity: torch.Tensor  # [B, 3], vx, vy (m/s, yaw frame), yaw rate (rad/s)
  command: torch.Tensor  # [B, 3], what base_velocity should be
  contact: torch.Tensor  # [B, F], bool: feet on the ground, left and right first
  angular_velocity: torch.Tensor  # [B, S, 3], rad/s, of segments in their own frames
  base_position: torch.Tensor  # [B, 3], m, from the environment's origin
  head_position: torch.Tensor  # [B, 3], m, from the environment's origin
  fell: torch.Tensor  # [B], bool: this step ended the episode by a fall
  timed_out: torch.Tensor  # [B], bool: this step ended the episode by its length
  quantities: dict[str, torch.Tensor] = field(default_factory=dict)
  """What the environment constrains, by name: [B, J], or [B] for scalars. What is not
  in it is made from the fields above, where that is possible."""
  ground: torch.Tensor | None = None  # [B, 2], where the terrain has several


_UNSAVED = ("quantities", "ground")
SAMPLE_FIELDS = tuple(f.name for f in fields(Sample) if f.name not in _UNSAVED)
_META = ("protocol", "rollout", "skeleton", "policy")
QUANTITY = "quantity/"
"""Prefix of the arrays of constrained quantities."""


@dataclass
class Trajectory:
  """A recorded rollout: NumPy arrays [T, B, …] and what they mean."""

  layout: Layout
  arrays: dict[str, np.ndarray]
  """One array per field of `Sample`; `age` [T, B]: steps that the episode had before
  this one; `delta` [T, B]: δ̄; `points` [T, B, P, 3]: skeleton in the world, m."""
  protocol: dict[str, Any] = field(default_factory=dict)
  rollout: tuple[int, ...] = ()
  """Which rollout each environment belongs to."""
  skeleton: dict[str, Any] = field(default_factory=dict)
  """`names` and `parents` (index or -1) of the points."""
  policy: dict[str, Any] = field(default_factory=dict)

  def __getattr__(self, name: str) -> np.ndarray:
    arrays = self.__dict__.get("arrays", {})
    if name in arrays:
      return arrays[name]
    raise AttributeError(name)

  @property
  def num_steps(self) -> int:
    return self.arrays["action"].shape[0]

  @property
  def num_envs(self) -> int:
    return self.arrays["action"].shape[1]

  @property
  def time_s(self) -> np.ndarray:
    """Time at the end of each step. # [T]"""
    return (np.arange(self.num_steps) + 1) * self.layout.control_dt

  @property
  def valid(self) -> np.ndarray:
    """Steps that count for smoothness and violations. # [T, B] bool"""
    return self.arrays["age"] >= self.protocol.get("warmup", 0)

  def quantity(self, name: str) -> np.ndarray:
    """A constrained quantity, as the environment reported it. # [T, B, J] or [T, B]"""
    check_known("quantity", name, self.layout.limits)
    if QUANTITY + name not in self.arrays:
      raise UserError(
        f"The trajectory of {self.policy.get('name')} is an older one, without "
        f"'{name}': evaluate again."
      )
    return self.arrays[QUANTITY + name]

  def save(self, path: Path | str) -> None:
    """Write the file; an existing one is replaced only when it is complete."""
    meta = {"schema": TRAJECTORY_SCHEMA, "layout": self.layout.to_dict()}
    meta |= {name: getattr(self, name) for name in _META}
    contents: dict[str, Any] = {"meta": np.array(json.dumps(meta)), **self.arrays}
    with replacing(path) as partial, partial.open("wb") as file:
      np.savez_compressed(file, **contents)  # ty: ignore[invalid-argument-type]


def load_trajectory(path: Path | str) -> Trajectory:
  """Open a trajectory file."""
  try:
    with np.load(path, allow_pickle=False) as archive:
      meta = json.loads(str(archive["meta"]))
      arrays = {name: archive[name] for name in archive.files if name != "meta"}
    if meta["schema"] > TRAJECTORY_SCHEMA:
      raise UserError(
        f"{path} has trajectory schema {meta['schema']}, newer than the "
        f"{TRAJECTORY_SCHEMA} that this version of decap reads; update decap."
      )
    more = {name: meta[name] for name in _META} | {"rollout": tuple(meta["rollout"])}
    return Trajectory(Layout.from_dict(meta["layout"]), arrays, **more)
  except (OSError, EOFError, BadZipFile, zlib.error, *MALFORMED) as error:
    raise UserError(f"{path} is not a trajectory file: {error}.") from error
