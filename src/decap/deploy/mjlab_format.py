"""mjlab's way to describe a policy: properties inside the ONNX file.

Controllers that load mjlab's policies read names and numbers from the model's metadata,
as comma-separated text in the order of `joint_names`. mjlab rounds to three decimals;
here they are exact, and control step, torque limits and command ranges, which mjlab
leaves out, are there too under names of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def metadata(info: dict[str, Any]) -> dict[str, str]:
  """mjlab's properties of a policy, from the description in its bundle."""
  terms = info["observations"]
  found = {
    "run_path": f"{info['task']}/{info['method']}",
    "joint_names": _csv(info["joint_names"]),
    "joint_stiffness": _csv(info["stiffness"]),
    "joint_damping": _csv(info["damping"]),
    "default_joint_pos": _csv(info["default_joint_pos"]),
    "command_names": _csv(info["command_ranges"]),
    "observation_names": _csv(term["name"] for term in terms),
    "observation_terms_scale": _csv(_scale(term["scale"]) for term in terms),
    "observation_terms_flatten_history_dim": _csv("True" for _ in terms),
    "observation_terms_history_length": _csv(0 for _ in terms),
    "observation_terms_clip": _csv(
      term["clip"] or (float("-inf"), float("inf")) for term in terms
    ),
    "action_scale": _csv(info["action_scale"]),
    # What mjlab leaves out.
    "control_dt_s": repr(float(info["control_dt_s"])),
  }
  if "effort_limit" in info:
    found["joint_effort_limit"] = _csv(info["effort_limit"])
  for command, ranges in info["command_ranges"].items():
    for name, bounds in ranges.items():
      found[f"command_range.{command}.{name}"] = _csv(bounds)
  for term in terms:
    if "period_s" in term:
      found[f"observation_period_s.{term['name']}"] = repr(float(term["period_s"]))
  return found


def differences(info: dict[str, Any], properties: dict[str, str]) -> list[str]:
  """Properties of a model that its bundle's description contradicts.

  The description can be edited by anybody; the model is under a checksum. A model of an
  older export, without properties, contradicts nothing.
  """
  if "joint_stiffness" not in properties:
    return []
  return [k for k, v in metadata(info).items() if properties.get(k) != v]


def _scale(values: Sequence[float]) -> float | Sequence[float]:
  """One number where all entries share it, as mjlab writes it."""
  return values[0] if len(set(values)) == 1 else values


def _csv(values: Iterable[Any]) -> str:
  return ",".join(
    ";".join(_text(v) for v in value)
    if isinstance(value, (list, tuple))
    else _text(value)
    for value in values
  )


def _text(value: Any) -> str:
  return repr(value) if isinstance(value, float) else str(value)
