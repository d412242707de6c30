"""Sections of sweep files: read and checked as the options of a command are."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar, get_args, get_origin

from tyro.conf import Fixed

from decap.errors import UserError
from decap.options.args import Args, validate
from decap.options.reading import option_types, read

S = TypeVar("S", bound=Args)


def keys(cls: type[Args]) -> dict[str, Any]:
  """Keys of a section, and their types."""
  return {option.removeprefix("--"): hint for option, hint in option_types(cls).items()}


def read_section(cls: type[S], data: Mapping[str, Any]) -> S:
  """What a section says; an empty value is the default.

  Fields that are `Fixed` for tyro hold maps, and take what is there.
  """
  types, plain, maps = keys(cls), {}, {}
  for key, value in data.items():
    if key not in types:
      raise UserError(f"unknown key '{key}' (there are {', '.join(types)}).")
    kind, *marks = get_args(types[key]) or [None]
    if value is None:
      continue
    if kind is bool and not isinstance(value, bool):
      raise UserError(f"'{key}' must be true or false, not {value!r}.")
    if get_args(Fixed[Any])[1] not in marks:
      plain[key] = value if kind is bool else list(map(str, as_list(value)))
    elif get_origin(kind) is dict and not isinstance(value, dict):
      raise UserError(f"'{key}' must map options to values.")
    else:
      maps[key.replace("-", "_")] = value
  try:
    section = read(cls, list(tokens(plain)), "sweep")
    validate(section)
  except UserError as error:
    raise UserError(re.sub(r"--([a-z][a-z-]+)", r"'\1'", str(error))) from error
  return dataclasses.replace(section, **maps)


def tokens(options: Mapping[str, Any]) -> Iterator[str]:
  """Options as they stand on a command line; one without a value has its default."""
  for key, value in options.items():
    if value is None or value is False:
      continue
    yield f"--{key}"
    if value is not True:
      yield from map(str, as_list(value))


def as_list(value: Any) -> list[Any]:
  return list(value) if isinstance(value, (list, tuple)) else [value]


def seconds(text: str) -> float:
  """Seconds of ``90``, ``90s``, ``40m`` or ``1.5h``."""
  match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?", text.strip())
  if not match or float(match[1]) <= 0:
    raise UserError(f"'{text}' is no duration; write 90s, 40m or 2h.")
  return float(match[1]) * {"m": 60, "min": 60, "h": 3600}.get(match[2], 1)


def _check_time(option: str, value: str) -> str:
  seconds(value)
  return value


Time = Annotated[str, _check_time]
"""As `seconds` reads it."""
