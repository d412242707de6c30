"""From a command line to a command: tyro fills its dataclass, one sentence if it cannot.

tyro answers in boxes of many lines; here they become what a user needs of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
from collections.abc import Sequence
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from decap.errors import UserError, box_sentence, closest, suggest
from decap.options.args import Args, fields_of, metadata

C = TypeVar("C", bound=Args)
T = TypeVar("T")

KINDS = {int: ("a whole number", "whole numbers"), float: ("a number", "numbers")}


def read(
  cls: type[C],
  argv: Sequence[str],
  name: str = "",
  description: str = "",
  program: str = "decap",
) -> C:
  """A command from what stands after its program and name; `validate` checks it."""
  if argv and argv[0] in cls.modes:
    return read(cls.modes[argv[0]], argv[1:], f"{name} {argv[0]}", "", program)  # ty: ignore
  command = f"{program} {name}".strip()
  plain, overrides = split_overrides(argv)
  if overrides and not any(f.name == "overrides" for f in dataclasses.fields(cls)):
    raise UserError(f"'{command}' takes no '{overrides[0]}'.")
  options = _parse(cls, plain, command, description)
  if overrides:
    setattr(options, "overrides", tuple(overrides))  # noqa: B010
  options.argv = (name, *argv)
  return options


def split_overrides(argv: Sequence[str]) -> tuple[list[str], list[str]]:
  """Separate ``--env.… VALUE`` and ``--agent.… VALUE`` from the other options."""
  plain, overrides = [], []
  current = plain
  for token in argv:
    if token.startswith(("--env.", "--agent.")):
      current = overrides
    elif token.startswith("--"):
      current = plain
    current.append(token)
  return plain, overrides


def _parse(cls: type[C], argv: list[str], command: str, description: str) -> C:
  if not argv:
    with contextlib.suppress(TypeError):  # Where an argument is missing.
      return cls()  # Without tyro, which takes its time.
  import tyro

  types = option_types(cls)
  given: dict[str, list[str]] = {}
  values: list[str] = []
  for token in argv:
    if not token.startswith("--"):
      values.append(token)
      continue
    option, equals, value = token.partition("=")
    option = option.replace("_", "-")
    if option not in types and option != "--help":
      raise UserError(
        f"Unknown option '{token}' of '{command}'{suggest(option, types)}."
      )
    values = given[option] = [value] if equals else []
  summary = f"{description[:1].upper()}{description[1:]}. " if description else ""
  about = f"{summary}{cls.__doc__ or ''}"
  form = (tyro.conf.FlagCreatePairsOff,)
  if "--help" in argv:
    argv = ["--help"]  # What is given would be left out of it.
  try:
    return ask_tyro(
      cls, argv, prog=command, description=" ".join(about.split()), config=form
    )
  except UserError as error:
    raise UserError(_sentence(str(error), given, types, command)) from None


def ask_tyro(cls: type[T], argv: Sequence[str], **options: Any) -> T:
  """What tyro makes of arguments; what it cannot read is the one sentence that matters."""
  import tyro

  errors, width = io.StringIO(), os.environ.get("COLUMNS")
  if not {"-h", "--help"} & set(argv):
    os.environ["COLUMNS"] = "80"  # Narrower boxes break words.
  try:
    with contextlib.redirect_stderr(errors):
      return tyro.cli(cls, args=argv, **options)
  except SystemExit as error:
    if not error.code:  # --help
      raise
    raise UserError(box_sentence(errors.getvalue())) from None
  finally:
    os.environ.pop("COLUMNS", None)
    if width is not None:
      os.environ["COLUMNS"] = width


def option_types(cls: type) -> dict[str, Any]:
  """Option, as it is written, → its type."""
  from tyro.conf import Positional

  positional = metadata(Positional[str])[0]
  types = {}
  for owner, name, hint in fields_of(cls):
    if positional in metadata(hint):
      continue
    given = [m.name for m in metadata(hint) if getattr(m, "name", None)]
    option = given[0] if given else name.replace("_", "-")
    negated = getattr(owner, name, None) is True
    types[f"--no-{option}" if negated else f"--{option}"] = hint
  return types


def _sentence(
  text: str, given: dict[str, list[str]], types: dict[str, Any], command: str
) -> str:
  """What is wrong with the argument that tyro names, by what stands after options."""
  see = f"(see '{command} --help')"
  if found := re.search(r"Unrecognized options: ([^\s,]+)", text):
    return f"Unknown argument '{found[1].strip('.')}' of '{command}' {see}."
  if found := re.search(r"Missing from [^:]*: (\S+)", text):
    return f"The argument {found[1]} is missing {see}."
  if found := re.search(r"choice '(.*)' for argument '(.*)'\..*\((.*)\)", text):
    value, option, known = found.groups()
    choices = [choice.strip(" '") for choice in known.split(",") if choice.strip()]
    what = option if option in types else "What comes first"
    hint = closest(value, choices)
    return f"{what} must be one of {', '.join(choices)}, not '{value}'{hint}."
  found = re.search(r"(?:parsing|argument) '?(--[\w-]+)", text)
  option = found[1] if found else ""
  if option not in types:
    return f"{text.rstrip('.')} {see}."
  value, kind = " ".join(given.get(option, [])), _kind(types[option])
  return (
    f"{option} must be {kind}, not '{value}'." if value else f"{option} needs {kind}."
  )


def _kind(hint: Any) -> str:
  """In words what an option takes."""
  hint = _bare(hint)
  several, args = get_origin(hint) is tuple, get_args(hint)
  item = args[0] if several else hint
  if get_origin(item) is Literal:
    return f"one of {', '.join(map(str, get_args(item)))}"
  words = KINDS.get(item, ("a word", "words"))
  count = f"{len(args)} " if several and Ellipsis not in args else ""
  return count + words[several]


def _bare(hint: Any) -> Any:
  """A type without what stands beside it, and without None."""
  while get_origin(hint) is Annotated or NoneType in get_args(hint):
    hint = next(a for a in get_args(hint) if a is not NoneType)
  return hint
