"""Errors that a user can cause, and the sentence that explains them."""

from __future__ import annotations

from collections.abc import Collection


class UserError(Exception):
  """Something the user asked for cannot be done.

  The message is one clear sentence that names the offender and what was expected.
  The command line prints it without a traceback and exits with `exit_code`.
  """

  exit_code = 2


def first_line(error: BaseException) -> str:
  """What an error says first, or what it is called where it says nothing."""
  return (str(error).splitlines() or [type(error).__name__])[0]


def check_known(kind: str, name: object, known: Collection[str]) -> None:
  """Refuse a name that is none of the known ones."""
  if name not in known:
    raise UserError(f"Unknown {kind} '{name}'{suggest(str(name), known)}.")


def suggest(name: str, known: Collection[str]) -> str:
  """A hint at the known name that comes closest, or all names if they are few."""
  few = f" (there are {', '.join(known)})" if 0 < len(known) <= 30 else ""
  return closest(name, known) or few


def closest(name: str, known: Collection[str]) -> str:
  """A hint at the known name that comes closest, if one does."""
  import difflib

  close = difflib.get_close_matches(name, list(known), n=1)
  return f" (did you mean '{close[0]}'?)" if close else ""


def box_sentence(text: str) -> str:
  """The one sentence that matters in tyro's boxed error message."""
  lines = [line.strip(" │╭╮╰╯─-") for line in text.splitlines()]
  lines = [line for line in lines if line and not line.startswith("For full helptext")]
  sentence = " ".join(lines[1:]).strip() or "An option cannot be read"
  return sentence.split(" Argument helptext")[0].rstrip(".") + "."
