"""What every command is: a dataclass of options, each with what it may be.

An option's type may carry checks, as ``Annotated[int, at_least(1)]``. All commands are
checked here, before anything heavy is imported, so that the same mistake gets the same
sentence everywhere.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args, get_origin, get_type_hints

from decap.errors import UserError, check_known
from decap.files import check_writable


@dataclass(kw_only=True)
class Args:
  """Options of one command, and what it does with them."""

  modes: ClassVar[Mapping[str, type[Args]]] = {}
  """First word → what the command then is, with options of its own."""

  argv: tuple[str, ...] = dataclasses.field(init=False, default=(), compare=False)
  """The whole command line, where there is one."""

  def check(self) -> None:
    """What no single option can tell: those that exclude or need each other."""

  def run(self) -> int | None:
    """Do it; returns the exit code, None for 0."""
    raise NotImplementedError


Check = Callable[[str, Any], Any]
"""Part of an option's type, a function: of the option's name and its value, which is not
None, it makes the value, another one, or an error."""


def validate(options: Any) -> None:
  """Check all options of a command by their types, then together."""
  for part, name, hint in fields_of(options):
    value = given = getattr(part, name)
    option = f"--{name.strip('_').replace('_', '-')}"
    for check in filter(inspect.isfunction, metadata(hint)):
      if isinstance(value, tuple):
        value = tuple(check(option, item) for item in value)
      elif value is not None:
        value = check(option, value)
    if value is not given:  # A config may be frozen.
      setattr(part, name, value)
  if isinstance(options, Args):
    options.check()


def fields_of(options: Any) -> Iterator[tuple[Any, str, Any]]:
  """Owner, name and type of all options, nested dataclasses flattened."""
  hints = get_type_hints(
    options if isinstance(options, type) else type(options), include_extras=True
  )
  for field in dataclasses.fields(options):
    inner = get_args(hints[field.name])[0] if metadata(hints[field.name]) else None
    if dataclasses.is_dataclass(inner):
      nested = inner if isinstance(options, type) else getattr(options, field.name)
      yield from fields_of(nested)
    elif field.init:
      yield options, field.name, hints[field.name]


def metadata(hint: Any) -> tuple[Any, ...]:
  """What stands beside the type in Annotated."""
  return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def bounded(what: str, holds: Callable[[Any], bool]) -> Check:
  """A number, or each of several, that must be `what`."""

  def check(option: str, value: float) -> float:
    if not holds(value):
      number = f"{value:g}" if isinstance(value, float) else value
      raise UserError(f"{option} must be {what}, not {number}.")
    return value

  return check


def at_least(least: float) -> Check:
  return bounded(f"at least {least:g}", lambda value: value >= least)


def at_most(most: float) -> Check:
  return bounded(f"at most {most:g}", lambda value: value <= most)


def above(bound: float) -> Check:
  return bounded(f"above {bound:g}", lambda value: value > bound)


def between(least: float, most: float, unit: str = "") -> Check:
  what = f"between {least:g} and {most:g}{unit}"
  return bounded(what, lambda value: least <= value <= most)


def one_of(kind: str, names: Collection[str]) -> Check:
  """One of the names that are known when the option is read."""

  def check(option: str, value: str) -> str:
    check_known(kind, value, names)
    return value

  return check


def output_file(option: str, value: str) -> str:
  check_writable(Path(value).absolute().parent)
  return value


def output_folder(option: str, value: str) -> str:
  check_writable(value)
  return value


def video(option: str, value: str) -> str:
  path = Path(value)
  if path.suffix not in (".mp4", ".gif"):
    raise UserError(f"{option} must end in .mp4 or .gif, not '{path.name}'.")
  if not path.absolute().parent.is_dir():
    raise UserError(f"There is no folder {path.parent} for the video.")
  return output_file(option, value)


FINITE = bounded("a finite number", math.isfinite)
SEED = bounded(
  "from 0 to below 2^32, as all generators take", range(2**32).__contains__
)


def refuse_idle(options: Any, names: Sequence[str], without: str) -> None:
  """Refuse options that were given, and do nothing without another."""
  for field in dataclasses.fields(options):
    if field.name in names and getattr(options, field.name) != field.default:
      option = field.name.replace("_", "-")
      raise UserError(f"--{option} does nothing without {without}.")


def require_some(what: str, given: Sequence[Any]) -> None:
  """At least one of the arguments that have no name."""
  if not given:
    raise UserError(f"The argument {what} is missing.")
