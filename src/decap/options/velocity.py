"""Velocity commands: as options give them, in words, and beside what training gave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from decap.errors import UserError

FORWARD = (0.5, 0.0, 0.0)
AXES = (
  ("forward", "backward", "m/s"),
  ("left", "right", "m/s"),
  ("turn left", "turn right", "rad/s"),
)
"""Of a command: what its positive and its negative values are, and in what."""
Timed = tuple[float, float, float, float]
"""From when in s, then forward, left (m/s) and turn (rad/s)."""


def read_commands(
  command: tuple[float, float, float] | None, schedule: str | None
) -> tuple[Timed, ...]:
  """(from when in s, vx, vy, yaw rate), by --command or --schedule."""
  if command and schedule:
    raise UserError("--command and --schedule exclude each other.")
  if not schedule:
    vx, vy, yaw = command or FORWARD
    return ((0.0, vx, vy, yaw),)
  commands = tuple(_read_entry(entry) for entry in schedule.split())
  if not commands or list(commands) != sorted(commands, key=lambda c: c[0]):
    raise UserError("--schedule must be commands in the order of their times.")
  return commands


def _read_entry(entry: str) -> Timed:
  try:
    start_s, vx, vy, yaw = map(float, entry.replace(":", ",", 1).split(","))
  except ValueError:
    start_s = vx = vy = yaw = math.nan
  if not (start_s >= 0 and all(map(math.isfinite, (start_s, vx, vy, yaw)))):
    raise UserError(
      f"'{entry}' in --schedule is not SECONDS:VX,VY,YAW, such as 3:0.5,0,0.2."
    )
  return start_s, vx, vy, yaw


def spell(command: Sequence[float]) -> str:
  """A command in words, such as "forward 0.5 m/s, turn left 0.3 rad/s"."""
  parts = [
    f"{positive if value > 0 else negative} {abs(value):g} {unit}"
    for value, (positive, negative, unit) in zip(command, AXES, strict=True)
    if value
  ]
  return ", ".join(parts) or "stand"


def out_of_range(commands: Sequence[Sequence[float]], cfg: Any) -> list[str]:
  """Sentences on commands that training never gave, by its command's config."""
  known = (cfg.ranges.lin_vel_x, cfg.ranges.lin_vel_y, cfg.ranges.ang_vel_z)
  sentences = []
  for i, ((name, _, unit), (low, high)) in enumerate(zip(AXES, known, strict=True)):
    odd = sorted({c[i] for c in commands if not low - 1e-6 <= c[i] <= high + 1e-6})
    if odd:
      sentences.append(
        f"Warning: {name.split()[0]} {', '.join(f'{v:g}' for v in odd)} {unit} lies "
        f"outside of {low:g} to {high:g}, which the policy was trained for; expect it "
        "to fall short or to fall."
      )
  return sentences
