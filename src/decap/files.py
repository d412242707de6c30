"""Files: complete or not there at all, and a sentence where reading or writing fails."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from decap.errors import UserError


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
  """A new file beside `path`, of the same suffix, that takes its place at the end.

  Devices and links, such as ``/dev/stdout``, are written directly.
  """
  path = Path(path)
  special = path.is_symlink() or (path.exists() and not path.is_file())
  partial = path if special else path.with_name(f".{os.getpid()}.{path.name}")
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
      yield partial
      if not special:
        os.replace(partial, path)
    finally:
      if not special:
        partial.unlink(missing_ok=True)
  except OSError as error:
    raise UserError(f"Cannot write {path}: {error.strerror or error}.") from error


def write_text(path: str | Path, text: str) -> None:
  """Write a text file as a whole."""
  with replacing(path) as partial:
    partial.write_text(text, encoding="utf-8")


def read_yaml(path: str | Path, what: str) -> Any:
  """Contents of a YAML or JSON file, which users call `what`."""
  import yaml

  try:
    return yaml.safe_load(Path(path).read_text("utf-8"))
  except OSError as error:
    raise UserError(f"Cannot read the {what} {path}: {error.strerror}.") from error
  except (yaml.YAMLError, UnicodeDecodeError) as error:
    reason = " ".join(str(error).split())
    raise UserError(f"{path} is not YAML: {reason}.") from error


def check_writable(folder: str | Path) -> None:
  """Raise if files cannot be written below `folder`, without leaving any there."""
  target = Path(folder)
  try:
    ancestor = next(p for p in (target, *target.absolute().parents) if p.exists())
    with tempfile.NamedTemporaryFile(dir=ancestor, prefix=".decap-") as probe:
      probe.write(b"\0" * 4096)
      probe.flush()
      os.fsync(probe.fileno())
  except OSError as error:
    raise UserError(
      f"Cannot write to the output folder {target}: {error.strerror}."
    ) from error
