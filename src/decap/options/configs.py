"""What fields of configs may be: mistakes that only a later step, or nobody, would notice.

mjlab's configs hold whatever they are given. A variance of zero then is a reward of NaN,
and a negative length none at all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from typing import Any

from decap.errors import UserError, check_known

BOUNDS: tuple[tuple[str, Callable[[float], bool], str], ...] = (
  (
    "above 0",
    lambda value: value > 0,
    r"variance|period-s|time-s|episode-length-s|timestep|decimation|num-envs|num-rows"
    r"|num-cols|num-slots|size|(.*-)?iterations|impratio|limit-angle|std-growth"
    r"|(horizontal|vertical)-scale|step-width|height|width|distance|std-range"
    r"|limits(\.[^.]+)?",
  ),
  (
    "at least 0",
    lambda value: value >= 0,
    r"history-length|.*-lag|delay-update-period|min-step-count-between-reset"
    r"|.*-threshold|settle-s|target-m|(ls-)?tolerance|proportion|border-width|env-spacing"
    r"|entropy-final|(cost-)?value-loss-coef|friction\.params\.ranges",
  ),
  (
    "between 0 and 1",
    lambda value: 0 <= value <= 1,
    r"rel-.*-envs|.*-prob|difficulty-range",
  ),
  ("above 0 and below 1", lambda value: 0 < value < 1, r"p-max|stance-share"),
)
"""What a number must be, whether it is, and the last words of the fields that it is for."""


def check_values(
  value: Any, default: Any, commands: Collection[str], path: tuple[str, ...] = ()
) -> None:
  """Refuse what makes no sense; both are plain data.

  Numbers that are not finite where the defaults are or out of their bounds, ranges from
  high to low, and commands that do not exist.
  """
  if isinstance(value, dict):
    before = default if isinstance(default, dict) else {}
    for key, item in value.items():
      check_values(item, before.get(key), commands, (*path, key))
    return
  option = "--" + ".".join(path).replace("_", "-")
  if isinstance(value, list):
    before = default if isinstance(default, list) else []
    for index, item in enumerate(value):
      known = before[index] if index < len(before) else None
      check_values(item, known, commands, path)
    _check_range(value, option)
  elif isinstance(value, (int, float)) and not isinstance(value, bool):
    if value != default:
      _check_number(value, option)
  elif option.endswith(".command-name") and value is not None:
    check_known(f"command of {option}", value, commands)


def _check_number(value: float, option: str) -> None:
  if not math.isfinite(value):
    raise UserError(f"{option} must be finite, not {value}.")
  for what, holds, names in BOUNDS:
    if re.search(rf"\.({names})$", option) and not holds(value):
      raise UserError(f"{option} must be {what}, not {value}.")


def _check_range(value: list[Any], option: str) -> None:
  if len(value) != 2 or not all(isinstance(item, (int, float)) for item in value):
    return
  # The entry of a range, or of a table of ranges.
  if not any(re.search(r"range|judged", p) for p in option.split(".")[-2:]):
    return
  low, high = value
  if low > high:
    raise UserError(f"{option} must go from low to high, not from {low} to {high}.")
  if re.search(r"time-range$|range-s$", option) and low <= 0:
    raise UserError(f"{option} must be above 0, not {low}.")
