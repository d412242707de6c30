"""Values of sweep files: what they must be, and a sentence where they are not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from decap.errors import UserError


def check_keys(data: Mapping[str, Any], known: tuple[str, ...]) -> None:
  for key in data:
    if key not in known:
      raise UserError(f"unknown key '{key}' (there are {', '.join(known)}).")


def parse_duration(value: Any) -> float | None:
  """Seconds of ``90``, ``"90s"``, ``"40m"`` or ``"1.5h"``; None stays None."""
  if value is None:
    return None
  match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?", str(value).strip())
  if not match or float(match[1]) <= 0:
    raise UserError(f"'{value}' is no duration; write 90s, 40m or 2h.")
  return float(match[1]) * {"m": 60, "min": 60, "h": 3600}.get(match[2], 1)


def mapping(block: Mapping[str, Any], key: str) -> dict[str, Any]:
  value = block.get(key) or {}
  if not isinstance(value, dict):
    raise UserError(f"'{key}' must map options to values.")
  return value


def whole(block: Mapping[str, Any], key: str, least: int) -> int:
  value = block.get(key)
  if value is None:
    raise UserError(f"'{key}' is missing.")
  if isinstance(value, bool) or not isinstance(value, int) or value < least:
    raise UserError(f"'{key}' must be a whole number from {least} on, not {value!r}.")
  return value


def positive(block: Mapping[str, Any], key: str) -> float:
  value = block[key]
  if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
    raise UserError(f"'{key}' must be above 0, not {value!r}.")
  return float(value)


def yes(block: Mapping[str, Any], key: str) -> bool:
  value = block.get(key, False)
  if not isinstance(value, bool):
    raise UserError(f"'{key}' must be true or false, not {value!r}.")
  return value


def choice(value: Any, key: str, known: tuple[str, ...]) -> str:
  if value not in known:
    raise UserError(f"'{key}' must be one of {', '.join(known)}, not {value!r}.")
  return value


def as_list(value: Any) -> list[Any]:
  return list(value) if isinstance(value, (list, tuple)) else [value]
