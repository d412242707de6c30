"""What ``policy.json`` must hold before anything is made of it.

Bundles come from strangers. Each thing that is missing, of another type or not finite
is one sentence here, so that nothing behind has to ask again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from decap.errors import UserError

FORMAT = "decap-policy"
SCHEMA = 2
"""2: a gait's clock among the observations says its period and threshold."""
READABLE = (1, SCHEMA)

MALFORMED = (TypeError, LookupError, ValueError, OverflowError, AttributeError)
"""What Python raises at data of another type or size than expected."""

_LARGEST = float(np.finfo(np.float32).max)  # Networks and messages have no larger ones.
_PER_JOINT = ("default_joint_pos", "stiffness", "damping", "action_scale")
_REQUIRED = (
  "onnx_sha256",
  "robot",
  "task",
  "method",
  "joint_names",
  *_PER_JOINT,
  "observations",
  "control_dt_s",
  "command_ranges",
  "constraints",
  "versions",
)
_OF_TERMS = ("name", "dim", "scale", "clip", "meaning")


def check_info(info: Any, name: str) -> None:
  """Raise where a bundle's description is foreign, too new, incomplete or wrong."""
  if not isinstance(info, dict) or info.get("format") != FORMAT:
    raise UserError(f"{name} is not a decap policy (no '{FORMAT}' mark).")
  if info.get("schema") not in READABLE:
    raise UserError(
      f"{name} has schema {info.get('schema')}; this decap reads schemas "
      f"{' and '.join(map(str, READABLE))}."
    )
  missing = [key for key in _REQUIRED if key not in info]
  if missing:
    raise UserError(f"{name} lacks {', '.join(missing)}.")
  try:
    _check_joints(info, name)
    if not isinstance(info["observations"], list | tuple):
      raise TypeError("'observations' is no list")
    for index, term in enumerate(info["observations"], start=1):
      _check_term(term, index, name)
    for key in ("control_dt_s", "physics_dt_s"):
      if key in info:
        _check_numbers([info[key]], f"'{key}'", name)
    _check_ranges(info["command_ranges"], name)
  except MALFORMED as error:
    raise UserError(f"{name} is damaged: {error}.") from error


def _check_joints(info: dict[str, Any], name: str) -> None:
  joints = info["joint_names"]
  if not _is_list_of(joints, str):
    raise TypeError("'joint_names' is no list of names")
  for key in (*_PER_JOINT, "effort_limit"):
    if key not in info:
      continue  # The last one is not used, and can be left out.
    if len(info[key]) != len(joints):
      raise UserError(
        f"{name}: '{key}' has {len(info[key])} values for {len(joints)} joints."
      )
    _check_numbers(info[key], f"'{key}'", name)


def _check_term(term: Any, index: int, name: str) -> None:
  missing = [key for key in _OF_TERMS if key not in term]
  if missing:
    raise UserError(f"{name}: observation {index} lacks {', '.join(missing)}.")
  if not isinstance(term["name"], str):
    raise TypeError(f"the name of observation {index} is no text")
  dim, of_term = term["dim"], f"of '{term['name']}'"
  if type(dim) is not int or dim <= 0:
    raise UserError(
      f"{name}: observation '{term['name']}' must have a positive number of entries, "
      f"not {dim}."
    )
  if len(term["scale"]) != dim:
    raise UserError(
      f"{name}: observation '{term['name']}' has {dim} entries but "
      f"{len(term['scale'])} scales."
    )
  _check_numbers(term["scale"], f"the scale {of_term}", name)
  if term["clip"] is not None:
    _check_rising(term["clip"], f"the clip {of_term}", name, "null or ")
  if "period_s" in term:
    _check_numbers([term["period_s"]], f"the period_s {of_term}", name)


def _check_ranges(commands: Any, name: str) -> None:
  ranges = commands.values() if isinstance(commands, dict) else [commands]
  if not all(isinstance(of_command, dict) for of_command in ranges):
    raise TypeError("'command_ranges' is no table of ranges")
  for of_command in ranges:
    for key, bounds in of_command.items():
      # A range of one value is one, too.
      _check_rising(bounds, f"the range of '{key}'", name, equal=True)


def _check_rising(
  pair: Any, what: str, name: str, other: str = "", equal: bool = False
) -> None:
  if isinstance(pair, list | tuple) and len(pair) == 2:
    _check_numbers(pair, what, name)
    if pair[0] < pair[1] or (equal and pair[0] == pair[1]):
      return
  raise UserError(f"{name}: {what} must be {other}two rising numbers.")


def _check_numbers(values: Any, what: str, name: str) -> None:
  for value in values:
    if isinstance(value, bool) or not isinstance(value, int | float):
      raise TypeError(f"{what} holds {type(value).__name__} instead of a number")
    if not abs(value) <= _LARGEST:  # Neither is NaN.
      raise UserError(f"{name}: {what} has a value that is not finite.")


def _is_list_of(values: Any, kind: type) -> bool:
  return isinstance(values, list | tuple) and all(isinstance(v, kind) for v in values)
