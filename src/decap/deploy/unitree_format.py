"""``deploy.yaml``: the description that Unitree RL lab's C++ controller loads.

Its rules, which trap: gains are in the order of the robot's motor slots, empty slots
included, everything else in the policy's order; `joint_ids_map` leads from one to the
other; the order of observations is that of the file; a clip comes before the scale.
Its gait phase never stops and is two steps ahead at the first output, so the gate for
standing must be, and is, inside the network.
"""

from __future__ import annotations

import math
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
  import yaml  # Not on a robot, which has no training packages.

  if not is_expressible(info):
    raise UserError("Unitree RL lab's controller does not know this policy's parts.")
  slots = [_SLOTS[name] for name in info["joint_names"]]
  ranges = next(iter(info["command_ranges"].values()))
  moves = {name: ranges[name] for name in ("lin_vel_x", "lin_vel_y", "ang_vel_z")}
  default = info["default_joint_pos"]
  description = {
    "joint_ids_map": slots,
    "step_dt": float(info["control_dt_s"]),
    "stiffness": _by_slot(info["stiffness"], slots),
    "damping": _by_slot(info["damping"], slots),
    "default_joint_pos": default,
    "commands": {"base_velocity": {"ranges": {**moves, "heading": None}}},
    "actions": {
      "JointPositionAction": {
        "clip": None,
        "joint_names": [".*"],
        "scale": info["action_scale"],
        "offset": list(default),  # Another list: the same one would be a reference.
        "joint_ids": None,
      }
    },
    "observations": {
      _NAMES[term["name"]]: {
        "params": _params(term),
        "clip": term["clip"] or None,
        "scale": term["scale"],
        "history_length": 1,
      }
      for term in info["observations"]
    },
  }
  return yaml.safe_dump(
    description, default_flow_style=None, sort_keys=False, width=math.inf
  )


def _params(term: dict[str, Any]) -> dict[str, Any]:
  if term["name"] == "command":
    return {"command_name": "base_velocity"}
  return {"period": float(term["period_s"])} if term["name"] == "clock" else {}


def _by_slot(values: Sequence[float], slots: Sequence[int]) -> list[float]:
  found = [0.0] * len(_SLOTS)
  for value, slot in zip(values, slots, strict=True):
    found[slot] = value
  return found
