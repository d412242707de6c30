"""Tasks of one's own, by the place of their definition: "package.module:name"."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from decap.errors import UserError, suggest

T = TypeVar("T")


def load(place: str, kind: type[T], what: str = "A task of your own") -> T:
  """Import what a place names; everything that can be wrong with it is a sentence."""
  where, _, name = place.partition(":")
  if not all(part.isidentifier() for part in (*where.split("."), name)):
    raise UserError(f"{what} is PACKAGE.MODULE:NAME, not '{place}'.")
  try:
    module = import_module(where)
  except (Exception, SystemExit) as error:  # Whatever a module does when imported.
    raise UserError(_why(where, error)) from error
  found = getattr(module, name, None)
  if isinstance(found, kind):
    return found
  known = [key for key, value in vars(module).items() if isinstance(value, kind)]
  if found is None:
    raise UserError(f"The module '{where}' has no '{name}'{suggest(name, known)}.")
  raise UserError(
    f"'{place}' must be a {kind.__name__}, not {type(found).__name__}"
    f"{suggest(name, known)}."
  )


def made(field: str, make: Callable[..., object], kind: type[T], *told: object) -> T:
  """What a function of a task makes; only its own bugs end in its own words."""
  if not callable(make):
    raise UserError(
      f"The task's {field} must be a function, not a {type(make).__name__}."
    )
  found = make(*told)
  if not isinstance(found, kind):
    hint = " (see constrain)" if field == "env" else ""
    raise UserError(
      f"The task's {field} must return {kind.__name__}{hint}, not "
      f"{type(found).__name__}."
    )
  return found


def _why(where: str, error: BaseException) -> str:
  """Why a module cannot be imported, and by which line."""
  missing = error.name if isinstance(error, ModuleNotFoundError) else None
  if missing and f"{where}.".startswith(f"{missing}."):
    return (
      f"There is no module '{missing}', neither in the current folder nor on Python's "
      "path."
    )
  said = (str(error).splitlines() or [""])[0]
  line = traceback.extract_tb(error.__traceback__)[-1]
  # A SyntaxError says itself where it is.
  syntax = isinstance(error, SyntaxError)
  at = "" if syntax else f" ({Path(line.filename).name}, line {line.lineno})"
  return f"'{where}' cannot be imported: {type(error).__name__}: {said}{at}."
