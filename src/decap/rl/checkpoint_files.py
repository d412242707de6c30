"""Where checkpoints lie in a run folder. Imports nothing heavy."""

from __future__ import annotations

import re
from pathlib import Path

from decap.errors import UserError

FOLDER = "checkpoints"
WEIGHTS_FILE = "weights.pt"
"""Networks beside a released policy, to start another training from."""
_NAME = re.compile(r"model_(\d+)\.pt")


def path_for(run_dir: Path, iteration: int) -> Path:
  """Path of the checkpoint written after `iteration` iterations."""
  return run_dir / FOLDER / f"model_{iteration}.pt"


def best_path(run_dir: Path) -> Path:
  """Path of the checkpoint that scored best while it trained."""
  return run_dir / FOLDER / "best.pt"


def iteration_of(path: Path) -> int | None:
  """Iteration after which a checkpoint was written, by its name."""
  match = _NAME.fullmatch(path.name)
  return int(match[1]) if match else None


def list_checkpoints(run_dir: Path) -> list[tuple[int, Path]]:
  """Checkpoints of a run folder as (iteration, path), oldest first."""
  found = []
  for path in (run_dir / FOLDER).glob("model_*.pt"):
    iteration = iteration_of(path)
    if iteration is not None:
      found.append((iteration, path))
  return sorted(found)


def resolve(run_or_checkpoint: str | Path) -> Path:
  """Path of a checkpoint, given itself, its run folder (the latest one then) or a
  released policy with its weights."""
  path = Path(run_or_checkpoint)
  if path.is_file():
    return path
  if not path.is_dir():
    raise UserError(f"There is no run folder or checkpoint {path}.")
  if (path / WEIGHTS_FILE).is_file():
    return path / WEIGHTS_FILE
  checkpoints = list_checkpoints(path)
  if not checkpoints:
    raise UserError(f"{path} has no checkpoint in its folder '{FOLDER}'.")
  return checkpoints[-1][1]


def prune(run_dir: Path, keep: int) -> None:
  """Delete all but the `keep` newest checkpoints, and what a kill left half-written."""
  for _, path in list_checkpoints(run_dir)[:-keep]:
    path.unlink(missing_ok=True)
  for leftover in (run_dir / FOLDER).glob(".*.pt*"):
    leftover.unlink(missing_ok=True)
