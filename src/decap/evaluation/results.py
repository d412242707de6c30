"""Metrics files: written by an evaluation, read by tables, plots and reports."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decap.errors import UserError
from decap.evaluation.layout import Layout, limits_by_row
from decap.evaluation.protocol import Protocol, differing, file_names, no_smaller
from decap.files import write_text

METRICS_FORMAT = "decap-metrics"
METRICS_SCHEMA = 1

_SECTIONS = ("policy", "protocol", "layout", "metrics", "engine", "versions")
_SUMMARIES = ("smoothness", "violations", "tracking", "standing_still")
_FIELDS = {
  "protocol": ("task", "rollouts", "envs", "steps", "commands", "command", "disturbed"),
  "metrics": (*_SUMMARIES, "joints", "histograms", "spectra"),
}
"""What tables and figures read of every file; the rest may be missing in older ones."""


@dataclass
class Result:
  """One evaluation of one policy; docs/evaluation.md documents the fields."""

  policy: dict[str, Any]
  """`name`, `source`, `method`, `seed`, `task`, `options`; see policies.py."""
  protocol: dict[str, Any]
  layout: Layout
  metrics: dict[str, Any]
  engine: dict[str, str] = field(default_factory=dict)
  """`backend` and `device` that ran the physics."""
  versions: dict[str, str] = field(default_factory=dict)
  path: Path | None = None
  """File that it was read from."""

  def to_dict(self) -> dict[str, Any]:
    """Plain data. It holds no time or date: equal evaluations give equal files."""
    return {
      "format": METRICS_FORMAT,
      "schema": METRICS_SCHEMA,
      **{name: getattr(self, name) for name in _SECTIONS},
      "layout": self.layout.to_dict(),
    }

  def save(self, path: Path) -> None:
    """Write the file; an existing one is replaced only when it is complete."""
    write_text(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")


def load_result(path: Path | str) -> Result:
  """Read a metrics file."""
  path = Path(path)
  try:
    data = json.loads(path.read_text())
  except OSError as error:
    raise UserError(f"Cannot read {path}: {error.strerror}.") from error
  except ValueError as error:
    raise UserError(f"{path} is not a metrics file: {error}.") from error
  if not isinstance(data, dict) or data.get("format") != METRICS_FORMAT:
    raise UserError(f"{path} is not a metrics file (no '{METRICS_FORMAT}' mark).")
  schema = data.get("schema", METRICS_SCHEMA)
  if not isinstance(schema, int) or schema > METRICS_SCHEMA:
    raise UserError(
      f"{path} has schema {schema}; this decap reads up to schema {METRICS_SCHEMA}: "
      "please upgrade."
    )
  try:
    _check_whole(data)
    layout = Layout.from_dict(data["layout"])
  except (KeyError, TypeError, ValueError, AttributeError) as error:
    what = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
    raise UserError(f"{path} is not a whole metrics file: {what}.") from error
  sections = {name: data[name] for name in _SECTIONS}
  return Result(**sections | {"layout": layout}, path=path)


def _check_whole(data: Mapping[str, Any]) -> None:
  """Name the first field that every metrics file has and this one lacks."""
  lacking = [] if "schema" in data else ["schema"]
  lacking += [name for name in _SECTIONS if not isinstance(data.get(name), dict)]
  for section, names in _FIELDS.items() if not lacking else ():
    lacking += [f"{section}.{name}" for name in names if name not in data[section]]
  for name in _SUMMARIES if not lacking else ():
    if place := _not_a_number(data["metrics"][name], f"metrics.{name}"):
      lacking.append(f"a number at {place}")
  if lacking:
    raise ValueError(f"it lacks {lacking[0]}")


def _not_a_number(value: Any, place: str) -> str | None:
  """Where below a place there is something else than numbers, if anywhere."""
  if isinstance(value, (dict, list)):
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = (_not_a_number(v, f"{place}.{k}") for k, v in items)
    return next(filter(None, found), None)
  number = value is None or isinstance(value, (int, float))
  return None if number else place


def find_result(source: str | Path, label: str = "") -> Result:
  """Read the result in a folder, or a metrics file itself."""
  path = Path(source)
  if path.is_file():
    return load_result(path)
  if not path.exists():
    raise UserError(f"There is no run folder or metrics file {path}.")
  name = file_names(label)[0]
  if not (path / name).is_file():
    others = sorted(p.name for p in path.glob("metrics*.json"))
    hint = f" (it has {', '.join(others)})" if others else ""
    raise UserError(
      f"{path} has no {name}{hint}: run 'decap evaluate {path}' with that protocol "
      "first."
    )
  return load_result(path / name)


def keep_larger(
  folder: Path, label: str, policy: Mapping[str, Any], protocol: Protocol
) -> None:
  """Refuse to replace a larger evaluation of the same policy."""
  path = folder / file_names(label)[0]
  try:
    found = load_result(path)
  except UserError:
    return  # What cannot be read is replaced.
  # Its source is as it was typed, and older files lack some.
  same = all(
    found.policy[name] == value
    for name, value in policy.items()
    if name in found.policy and name != "source"
  )
  there, now = {"per_command": 0, **found.protocol}, protocol.to_dict()
  if same and no_smaller(there, now) and not no_smaller(now, there):
    sizes = "{rollouts} × {envs} environments × {steps} steps".format(**there)
    sizes += f", {there['per_command']} robots per command"
    raise UserError(
      f"{path} holds a larger evaluation of this policy ({sizes}): delete it, or give "
      "--output DIR."
    )


def check_comparable(results: Sequence[Result]) -> None:
  """Refuse results of different protocols, joints, groups, limits or rewards."""
  for other in results[1:]:
    differences = differing(results[0].protocol, other.protocol)
    differences += _layout_differences(results[0].layout, other.layout)
    if differences:
      raise UserError(
        f"{where(results[0])} and {where(other)} were evaluated differently: "
        f"{'; '.join(differences)}."
      )


def where(result: Result) -> str:
  """What sentences call a result: its file."""
  return str(result.path) if result.path else str(result.policy.get("name"))


def _layout_differences(a: Layout, b: Layout) -> list[str]:
  differences = []
  if a.joint_names != b.joint_names:
    odd = sorted(set(a.joint_names) ^ set(b.joint_names))
    what = ", ".join(odd) if odd else "their order"
    differences.append(
      f"joints: {len(a.joint_names)} against {len(b.joint_names)} ({what})"
    )
  elif a.groups != b.groups:
    differences.append("body groups")
  ours, theirs = limits_by_row(a.limits), limits_by_row(b.limits)
  differences += [f"limit of {text}" for text in sorted(differing(ours, theirs))]
  names = ["control_dt", "physics_dt", "p_max", "scalar_p_max"]
  # Older files do not know what the task pays.
  if not any(map(math.isnan, a.tracking_reward + b.tracking_reward)):
    names.append("tracking_reward")
  rest = [{name: getattr(layout, name) for name in names} for layout in (a, b)]
  return differences + differing(*rest)
