"""Checkpoints: written so that a kill at any moment leaves the last good one.

A checkpoint holds tensors and plain Python only, so it loads with
``weights_only=True``. The keys that rsl_rl writes (``actor_state_dict``, ``iter``,
``infos``, …) keep their names and places, so mjlab's own tools can read the policy.
"""

from __future__ import annotations

import io
import os
import pickle
import random
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from decap.errors import UserError
from decap.files import replacing
from decap.rl import divergence

FORMAT = "decap-checkpoint"
VERSION = 2
"""2: what the robots achieve is part of the agent's state."""


def save(path: Path, state: dict[str, Any]) -> None:
  """Write a checkpoint: temporary file, fsync, rename.

  A reader therefore sees either the whole file or none of it, also after a power cut.
  """
  # In memory first: torch's own file writer hides what went wrong with the disk.
  contents = io.BytesIO()
  torch.save({"format": FORMAT, "version": VERSION, **state}, contents)
  with replacing(path) as partial, open(partial, "wb") as file:
    file.write(contents.getbuffer())
    file.flush()
    os.fsync(file.fileno())
  _fsync_folder(path.parent)


def load(path: Path, device: str | torch.device = "cpu") -> dict[str, Any]:
  """Read a checkpoint that `save` wrote, or say what is wrong with the file.

  One whose networks are not finite is refused: nobody can use it.
  """
  if not path.is_file():
    raise UserError(f"There is no checkpoint {path}.")
  try:
    state = torch.load(path, map_location=device, weights_only=True)
  except torch.OutOfMemoryError:
    raise
  except Exception as error:  # Other files than torch's end its reader in any way.
    if isinstance(error, pickle.UnpicklingError) and zipfile.is_zipfile(path):
      raise UserError(
        f"{path} was not written by decap: it holds objects other than tensors and "
        "plain values."
      ) from error
    raise UserError(f"{path} is corrupt or not a checkpoint at all.") from error
  if not isinstance(state, dict) or state.get("format") != FORMAT:
    raise UserError(
      f"{path} was not written by decap (no '{FORMAT}' mark); checkpoints of other "
      "trainers cannot be continued."
    )
  if not _is_whole(state):
    raise UserError(f"{path} is damaged: it is marked as decap's and is not.")
  if state.get("version", 0) > VERSION:
    raise UserError(
      f"{path} was written by a newer decap (checkpoint format {state['version']}; "
      f"this one reads up to {VERSION}): please upgrade."
    )
  divergence.require_finite(state, path)
  return state


def require_continuable(state: dict[str, Any], path: Path) -> None:
  """Refuse to go on with a run that was trained another way."""
  if "progress" not in state:
    raise UserError(
      f"{path} was written by an earlier decap, which trained another way, and cannot "
      "be continued: evaluate or export it, or start another run from it with "
      "--blind --init-from."
    )


def require_joints(state: Mapping[str, Any], path: Path, wanted: Sequence[str]) -> None:
  """Refuse the policy of another robot, before weights differ in unnamed ways.

  The same joints in another order have weights of the same shapes, and fall at once.
  """
  found = list(state.get("policy", {}).get("joint_names", wanted))
  if found == list(wanted):
    return
  if sorted(found) == sorted(wanted):
    raise UserError(f"{path} was trained with these joints in another order.")
  odd = sorted(set(found) ^ set(wanted))
  shown = ", ".join(odd[:3]) + (", …" if len(odd) > 3 else "")
  raise UserError(
    f"{path} was trained on a robot with {len(found)} joints, this task's has "
    f"{len(wanted)}: they differ in {shown}."
  )


def require_shapes(
  state: Mapping[str, Any], path: Path, networks: Mapping[str, torch.nn.Module]
) -> None:
  """Refuse weights of other networks; torch would list them all, in its own words."""
  for name, network in networks.items():
    found, own = state.get(f"{name}_state_dict"), network.state_dict()
    if found is None:
      raise UserError(f"{path} does not fit this agent: it has no {name}.")
    for key in {**own, **found}:
      have, need = (tuple(d[key].shape) if key in d else None for d in (found, own))
      if have != need:
        raise UserError(
          f"{path} does not fit this task and agent: {key} of its {name} is "
          f"{_size(have)}, not {_size(need)}."
        )


def rng_state() -> dict[str, Any]:
  """States of every random number generator that training draws from."""
  name, keys, position, has_gauss, gauss = np.random.get_state()  # ty: ignore
  return {
    "torch": torch.get_rng_state(),
    "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    "numpy": [name, [int(k) for k in keys], position, has_gauss, gauss],
    "python": random.getstate(),
  }


def set_rng_state(state: dict[str, Any]) -> None:
  """Restore what `rng_state` returned.

  The CUDA states are restored only where the number of GPUs is the same: on a GPU a
  run continues statistically anyway.
  """
  torch.set_rng_state(state["torch"].cpu())
  if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
    torch.cuda.set_rng_state_all([s.cpu() for s in state["cuda"]])
  name, keys, position, has_gauss, gauss = state["numpy"]
  np.random.set_state((name, np.array(keys, np.uint32), position, has_gauss, gauss))
  version, internal, gauss_next = state["python"]
  random.setstate((version, tuple(internal), gauss_next))


def _is_whole(state: Mapping[str, Any]) -> bool:
  """Whether what is read of any checkpoint is what `save` writes."""
  networks = [state.get(name, {}) for name in divergence.NETWORKS]
  return (
    isinstance(state.get("version", 0), int)
    and all(isinstance(part, dict) for part in (state.get("policy", {}), *networks))
    and all(isinstance(x, torch.Tensor) for part in networks for x in part.values())
  )


def _size(shape: tuple[int, ...] | None) -> str:
  if shape is None:
    return "missing"
  return " × ".join(map(str, shape)) if shape else "a number"


def _fsync_folder(folder: Path) -> None:
  """Make a rename inside `folder` survive a power cut."""
  descriptor = os.open(folder, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)
