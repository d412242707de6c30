"""``deploy.yaml``: the description that Unitree RL lab's C++ controller loads.

Its rules, which trap: gains are in the order of the robot's motor slots, empty slots
included, everything else in the policy's order; `joint_ids_map` leads from one to the
other; the order of observations is that of the file; a clip comes before the scale.
Its gait phase never stops and is two steps ahead at the first output, so the gate for
standing must be, and is, inside the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from decap.errors import UserError
from decap.robots.g1_motors import G1_29DOF

FILE = "deploy.yaml"

_NAMES = {
  "base_ang_vel": "base_ang_vel",
  "projected_gravity": "projected_gravity",
  "command": "velocity_commands",
  "joint_pos": "joint_pos_rel",
  "joint_vel": "joint_vel_rel",
  "actions": "last_action",
  "clock": "gait_phase",
}
"""Our observation → theirs."""

_SLOTS = {motor.joint: motor.slot for motor in G1_29DOF.motors}


def is_expressible(info: dict[str, Any]) -> bool:
  """Whether a policy's robot and observations exist in that controller."""
  return set(info["joint_names"]) <= set(_SLOTS) and all(
    term["name"] in _NAMES for term in info["observations"]
  )


def deploy_yaml(info: dict[str, Any]) -> str:
  """The file for a policy, from the description in its bundle, at full precision."""
  if not is_expressible(info):
    raise UserError("Unitree RL lab's controller does not know this policy's parts.")
  slots = [_SLOTS[name] for name in info["joint_names"]]
  ranges = next(iter(info["command_ranges"].values()))
  lines = [
    f"joint_ids_map: {_flow(slots)}",
    f"step_dt: {float(info['control_dt_s'])!r}",
    f"stiffness: {_flow(_by_slot(info['stiffness'], slots))}",
    f"damping: {_flow(_by_slot(info['damping'], slots))}",
    f"default_joint_pos: {_flow(info['default_joint_pos'])}",
    "commands:",
    "  base_velocity:",
    "    ranges:",
    *(
      f"      {name}: {_flow(ranges[name])}"
      for name in ("lin_vel_x", "lin_vel_y", "ang_vel_z")
    ),
    "      heading: null",
    "actions:",
    "  JointPositionAction:",
    "    clip: null",
    "    joint_names: ['.*']",
    f"    scale: {_flow(info['action_scale'])}",
    f"    offset: {_flow(info['default_joint_pos'])}",
    "    joint_ids: null",
    "observations:",
  ]
  for term in info["observations"]:
    lines += [
      f"  {_NAMES[term['name']]}:",
      f"    params: {_params(term)}",
      f"    clip: {_flow(term['clip']) if term['clip'] else 'null'}",
      f"    scale: {_flow(term['scale'])}",
      "    history_length: 1",
    ]
  return "\n".join(lines) + "\n"


def _params(term: dict[str, Any]) -> str:
  if term["name"] == "command":
    return "{command_name: base_velocity}"
  if term["name"] == "clock":
    return f"{{period: {float(term['period_s'])!r}}}"
  return "{}"


def _by_slot(values: Sequence[float], slots: Sequence[int]) -> list[float]:
  found = [0.0] * len(_SLOTS)
  for value, slot in zip(values, slots, strict=True):
    found[slot] = value
  return found


def _flow(values: Sequence[float]) -> str:
  return f"[{', '.join(repr(v) for v in values)}]"
