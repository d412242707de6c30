"""Policy bundles: ``policy.onnx`` + ``policy.json``, all that a robot needs.

Training and deployment meet only here, so this file needs numpy and onnxruntime only.
The JSON keeps full precision and names every quantity: joint order, default pose,
gains, action scale, observation terms, control rate, command ranges, and the limits
that the policy was trained with.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from decap.deploy.description import FORMAT, MALFORMED, SCHEMA, check_info
from decap.deploy.mjlab_format import differences
from decap.deploy.onnx_numbers import not_finite
from decap.errors import UserError

ONNX_FILE = "policy.onnx"
JSON_FILE = "policy.json"


@dataclass(frozen=True)
class ObservationTerm:
  """One slice of the observation vector."""

  name: str
  dim: int
  """Number of entries."""
  scale: tuple[float, ...]
  """Factor on each entry, applied after `clip`."""
  clip: tuple[float, float] | None
  """Range that the raw value is limited to."""
  meaning: str
  """What the raw value is: quantity, frame, unit, order."""


class Bundle:
  """A checked policy bundle: its description and the network, ready to run."""

  def __init__(self, folder: Path, info: dict[str, Any], onnx: bytes):
    import onnxruntime

    self.folder = folder
    self.info = info
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # A 50 Hz policy gains nothing from a thread pool.
    options.log_severity_level = 4  # What is wrong with a file is said below.
    try:
      self._session = onnxruntime.InferenceSession(
        onnx, options, providers=["CPUExecutionProvider"]
      )
    except Exception as error:  # Its exceptions have no common class of their own.
      raise UserError(
        f"{folder / ONNX_FILE} is not a network in ONNX format."
      ) from error
    self._check_shapes()
    self._check_properties()
    self._check_numbers(onnx)

  @property
  def name(self) -> str:
    """What tables and files call it."""
    return bundle_name(self.folder)

  @property
  def joint_names(self) -> tuple[str, ...]:
    """Joints in the order of actions and of joint observations."""
    return tuple(self.info["joint_names"])

  @property
  def default_joint_pos(self) -> np.ndarray:
    """Pose at action zero, rad, [J]."""
    return np.array(self.info["default_joint_pos"], np.float64)

  @property
  def stiffness(self) -> np.ndarray:
    """Proportional gains, Nm/rad, [J]."""
    return np.array(self.info["stiffness"], np.float64)

  @property
  def damping(self) -> np.ndarray:
    """Derivative gains, Nm·s/rad, [J]."""
    return np.array(self.info["damping"], np.float64)

  @property
  def action_scale(self) -> np.ndarray:
    """Target = default pose + scale · action, rad, [J]."""
    return np.array(self.info["action_scale"], np.float64)

  @property
  def control_dt_s(self) -> float:
    """Time between two policy steps."""
    return float(self.info["control_dt_s"])

  @property
  def observations(self) -> tuple[ObservationTerm, ...]:
    """Terms of the observation vector, in order."""
    return tuple(
      ObservationTerm(
        name=term["name"],
        dim=term["dim"],
        scale=tuple(term["scale"]),
        clip=tuple(term["clip"]) if term["clip"] else None,
        meaning=term["meaning"],
      )
      for term in self.info["observations"]
    )

  def act(self, obs: np.ndarray) -> np.ndarray:
    """Actions [N, J] for observations [N, D] (float32, unnormalised)."""
    inputs = {"obs": obs.astype(np.float32, copy=False)}
    return np.asarray(self._session.run(None, inputs)[0])

  def targets(self, actions: np.ndarray) -> np.ndarray:
    """Joint-position targets [N, J], rad, for actions [N, J]."""
    return self.default_joint_pos + self.action_scale * actions

  def _check_shapes(self) -> None:
    """The network must fit the description that comes with it."""
    inputs = self._session.get_inputs()
    if [(i.name, i.type) for i in inputs] != [("obs", "tensor(float)")]:
      found = ", ".join(f"{i.name} of {i.type}" for i in inputs) or "nothing"
      raise UserError(
        f"{self.folder / ONNX_FILE} must take one input 'obs' of float32, not {found}."
      )
    expected = (sum(t.dim for t in self.observations), len(self.joint_names))
    found = (
      *self._session.get_inputs()[0].shape[-1:],
      *self._session.get_outputs()[0].shape[-1:],
    )
    if found != expected:
      raise UserError(
        f"{self.folder / ONNX_FILE} maps {found[0]} observations to {found[1]} "
        f"actions, but {JSON_FILE} describes {expected[0]} and {expected[1]}."
      )

  def _check_properties(self) -> None:
    """The network carries its description, too: an edited one is found."""
    properties = self._session.get_modelmeta().custom_metadata_map
    changed = differences(self.info, properties)
    if changed:
      raise UserError(
        f"{self.folder / JSON_FILE} was changed after the export: {changed[0]} is not "
        f"what {ONNX_FILE} says."
      )

  def _check_numbers(self, onnx: bytes) -> None:
    """A network with NaN or infinity in it, or that answers so, is of no use."""
    broken = not_finite(onnx)
    if broken:
      raise UserError(
        f"{self.folder / ONNX_FILE} holds a policy that diverged: {broken[0]} is not "
        "finite."
      )
    obs = np.zeros((1, sum(term.dim for term in self.observations)), np.float32)
    try:
      actions = self.act(obs)
    except Exception as error:  # As above.
      raise UserError(f"{self.folder / ONNX_FILE} cannot be run.") from error
    if actions.shape != (1, len(self.joint_names)):
      raise UserError(
        f"{self.folder / ONNX_FILE} answers one observation with actions of shape "
        f"{actions.shape}."
      )
    if not np.isfinite(actions).all():
      raise UserError(
        f"{self.folder / ONNX_FILE} answers zeros with numbers that are not finite."
      )


def bundle_folder(source: str | Path) -> Path:
  """Where a bundle is; a run has its own beside its checkpoints."""
  folder = Path(source)
  own = folder / "policy"
  is_run = not (folder / JSON_FILE).is_file() and (own / JSON_FILE).is_file()
  return own if is_run else folder


def bundle_name(folder: Path) -> str:
  """What a bundle is called: its folder, after the run's where it is a run's own.

  Those of runs are all in a folder `policy`, and would be one in tables and files.
  """
  folder = folder.absolute()
  in_run = (folder / JSON_FILE).is_file() and (folder.parent / "params").is_dir()
  return f"{folder.parent.name}-{folder.name}" if in_run else folder.name


def load_bundle(folder: str | Path) -> Bundle:
  """Read and check a bundle folder."""
  folder = Path(folder)
  info = read_info(folder)
  try:
    onnx = (folder / ONNX_FILE).read_bytes()
  except OSError as error:
    raise UserError(f"Cannot read {folder / ONNX_FILE}: {error.strerror}.") from error
  digest = hashlib.sha256(onnx).hexdigest()
  if digest != info["onnx_sha256"]:
    raise UserError(
      f"{folder / ONNX_FILE} does not match the checksum in {JSON_FILE} (it has "
      f"{digest[:12]}…, {str(info['onnx_sha256'])[:12]}… was expected): the two files are "
      "not from the same export, or one was damaged."
    )
  try:
    return Bundle(folder, info, onnx)
  except MALFORMED as error:
    raise UserError(f"{folder / JSON_FILE} is damaged: {error}.") from error


def read_info(folder: Path) -> dict[str, Any]:
  """Read and check ``policy.json`` alone."""
  path = folder / JSON_FILE
  try:
    info = json.loads(path.read_text())
  except OSError as error:
    raise UserError(
      f"{folder} is not a policy bundle: cannot read {path.name}: {error.strerror}."
    ) from error
  except (ValueError, RecursionError) as error:
    raise UserError(f"{path} is not valid JSON: {error}.") from error
  check_info(info, str(path))
  return info


def write_bundle(
  folder: Path,
  onnx: bytes,
  info: dict[str, Any],
  others: Mapping[str, str] | None = None,
) -> None:
  """Write a bundle folder in one move, so that no reader finds half of one.

  Args:
    others: File → text of what else belongs to it.
  """
  if folder.exists() and not (folder / JSON_FILE).is_file() and any(folder.iterdir()):
    raise UserError(f"{folder} holds other files; give an empty or new folder.")
  info = {
    "format": FORMAT,
    "schema": SCHEMA,
    "onnx_sha256": hashlib.sha256(onnx).hexdigest(),
    **info,
  }
  check_info(info, JSON_FILE)
  try:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".bundle-") as work:
      fresh, old = Path(work) / "fresh", Path(work) / "old"
      fresh.mkdir()
      (fresh / ONNX_FILE).write_bytes(onnx)
      (fresh / JSON_FILE).write_text(json.dumps(info, indent=2, allow_nan=False) + "\n")
      for name, text in (others or {}).items():
        (fresh / name).write_text(text, encoding="utf-8")
      if folder.exists():
        os.replace(folder, old)
      try:
        os.replace(fresh, folder)
      except OSError:
        if old.exists():
          os.replace(old, folder)
        raise
      if old.exists():
        _keep_others(old, folder)
  except OSError as error:
    raise UserError(f"Cannot write the bundle {folder}: {error.strerror}.") from error


def _keep_others(old: Path, folder: Path) -> None:
  """Notes and scripts that someone put beside a policy stay there."""
  for path in old.iterdir():
    if not (folder / path.name).exists():
      os.replace(path, folder / path.name)
