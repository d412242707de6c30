"""The protocol of an evaluation: what its numbers depend on, and its options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

from decap.errors import UserError
from decap.options import machine
from decap.options.args import at_least
from decap.options.types import (
  Count,
  Flag,
  InputFile,
  Seed,
  Simulating,
  TaskName,
  Velocity,
  shown,
)

SWITCHING_S = 5.0
"""Seconds between two commands of the switching schedule: never with a push."""

SWITCHING_SCHEDULE: tuple[tuple[float, float, float], ...] = (
  (0.5, 0.0, 0.0),
  (1.0, 0.0, 0.0),
  (-0.3, 0.0, 0.0),
  (0.5, 0.3, 0.0),
)
"""Commands (vx, vy, yaw rate) of the switching schedule, repeated."""

COMMANDS: dict[str, tuple[float, float, float]] = {
  "forward 0.3": (0.3, 0.0, 0.0),
  "forward 0.5": (0.5, 0.0, 0.0),
  "forward 0.7": (0.7, 0.0, 0.0),
  "forward 1.0": (1.0, 0.0, 0.0),
  "backward 0.3": (-0.3, 0.0, 0.0),
  "backward 0.5": (-0.5, 0.0, 0.0),
  "left 0.3": (0.0, 0.3, 0.0),
  "right 0.3": (0.0, -0.3, 0.0),
  "turn left 0.2": (0.0, 0.0, 0.2),
  "turn right 0.2": (0.0, 0.0, -0.2),
  "mixed forward": (0.5, 0.2, 0.2),
  "mixed backward": (-0.3, -0.2, -0.2),
  "zero": (0.0, 0.0, 0.0),
  "stop": (0.5, 0.0, 0.0),
}
"""What some robots of every evaluation are told throughout: vx, vy (m/s), yaw (rad/s).

Means over random commands hide a policy that ignores slow commands, or one direction.
Robots of the last one walk and stand in turns: who follows all of them may still fall
when told to stop.
"""

STOPPING_S = 2.0
"""How long a turn of "stop" lasts."""


def fallen_stops(falls_per_minute: float) -> float:
  """Share of stops that ended in a fall, from the falls of "stop".

  These are told of whole turns of walking and standing only.
  """
  return min(1.0, falls_per_minute * 2.0 * STOPPING_S / 60.0)


@dataclass(frozen=True)
class Protocol:
  """How a policy is evaluated. Two results compare only under one protocol."""

  task: str = "g1-flat"
  """Task whose robot, terrain and randomisation are used."""
  rollouts: int = 5
  """Rollouts over which standard deviations are taken; they run as one batch."""
  envs: int = 256
  """Environments per rollout."""
  steps: int = 1000
  """Control steps of each environment."""
  warmup: int = 50
  """Steps after any reset that do not count for smoothness and violations."""
  commands: Literal["random", "fixed", "switching"] = "random"
  """`random`: resampled as in training. `fixed`: `command` throughout.
  `switching`: the schedule of the velocity-tracking figure, every 5 s."""
  command: tuple[float, float, float] | None = None
  """vx, vy (m/s) and yaw rate (rad/s) of fixed commands."""
  disturbed: bool = False
  """Observation noise, and a push every `push_interval_s`; otherwise neither."""
  push_interval_s: float = 4.0
  """Seconds between pushes when disturbed."""
  per_command: int = 32
  """Further robots for each of `COMMANDS`; none where commands are not random."""
  seed: int = 0
  """Seed of the environments. Not part of what must agree between results."""

  def __post_init__(self) -> None:
    if self.commands != "random":
      object.__setattr__(self, "per_command", 0)
    if self.steps <= self.warmup:
      raise UserError(
        f"--steps must be above {self.warmup}, since so many after a reset do not "
        f"count, not {self.steps}."
      )
    if (self.commands == "fixed") != (self.command is not None):
      raise UserError("commands are fixed exactly when a command is given")

  @property
  def num_envs(self) -> int:
    return self.rollouts * self.envs + self.per_command * len(COMMANDS)

  @property
  def label(self) -> str:
    """Suffix of result files; empty for the protocol of the simulation tables.

    The size of the batch is no part of it: a quick look is overwritten by the full
    evaluation.
    """
    parts = [] if self.commands == "random" else [self.commands]
    if self.command is not None:
      named = zip(("vx", "vy", "yaw"), self.command, strict=True)
      parts = [f"{name}{value:g}" for name, value in named if value] or ["standing"]
    return "-".join([*parts, *["disturbed"] * self.disturbed])

  def label_for(self, task: str | None) -> str:
    """The label for a policy of `task`, which may be another than this one."""
    away = self.task if task not in (None, self.task) else ""
    return "-".join(part for part in (away, self.label) if part)

  def is_within(self, other: Mapping[str, Any]) -> bool:
    """Whether an evaluation, by what its file says, is of this kind and no smaller."""
    ours = self.to_dict()
    alike = {**other, **{name: ours[name] for name in SIZES}}
    return not differing(alike, ours) and no_smaller(other, ours)

  def to_dict(self) -> dict[str, Any]:
    return {**asdict(self), "command": list(self.command) if self.command else None}


SIZES = ("rollouts", "envs", "steps")


def no_smaller(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
  """Whether a protocol has as many steps as another, and as many robots per command."""
  steps, least = (math.prod(p[name] for name in SIZES) for p in (a, b))
  return steps >= least and a.get("per_command", 0) >= b.get("per_command", 0)


def file_names(label: str) -> tuple[str, str]:
  """Names of the metrics and the trajectory file of a protocol's label."""
  suffix = f"-{label}" if label else ""
  return f"metrics{suffix}.json", f"trajectory{suffix}.npz"


QUICK = Protocol(rollouts=4, envs=16, steps=300, per_command=16)
"""A look in a minute on a CPU."""


def differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
  """What differs between two protocols, or limits, as `name: value against value`.

  Robots per command change no other number, and older files have none.
  """
  names = [name for name in {**a, **b} if name not in ("seed", "per_command")]
  return [
    f"{name}: {a.get(name)} against {b.get(name)}"
    for name in names
    if a.get(name) != b.get(name)
  ]


@dataclass(kw_only=True)
class ProtocolArgs(Simulating):
  """What is measured, and on what: all of `decap evaluate` but the policy."""

  task: TaskName = None
  """Task to evaluate on (default: the policy's own)."""
  quick: Flag = False
  """A quick look: 4 rollouts of 16 environments, 300 steps."""
  disturbed: Flag = False
  """Observation noise, and a push every 4 s."""
  commands: Literal["random", "switching"] = "random"
  """Velocity commands: random as in training, or a schedule."""
  command: Velocity = None
  """One fixed command in m/s, m/s and rad/s."""
  rollouts: Count = None
  """Rollouts, over which deviations are taken (default: 5; quick: 4)."""
  envs: Count = None
  """Environments per rollout (default: 256; quick: 16)."""
  steps: Count = None
  """Control steps per environment (default: 1000; quick: 300)."""
  per_command: Annotated[int | None, shown("N"), at_least(0)] = None
  """Further robots per fixed command (default: 32; quick: 16)."""
  seed: Seed = 0
  """Seed of the environments."""
  trajectory: Annotated[int, at_least(0)] = 1
  """Environments per rollout to record; 0 for none."""
  limits: InputFile = None
  """Count violations against these limits (default: the task's)."""

  def check(self) -> None:
    super().check()
    machine.check_num_envs(self.check_protocol().num_envs, self.device)

  def check_protocol(self) -> Protocol:
    """Refuse what is wrong on any machine."""
    if self.command is not None and self.commands != "random":
      raise UserError(f"--command and --commands {self.commands} exclude each other.")
    return self.protocol(self.task or "g1-flat")  # Or refuse its sizes.

  def protocol(self, task: str) -> Protocol:
    """The protocol that these options describe."""
    base = QUICK if self.quick else Protocol()
    names = ("rollouts", "envs", "steps", "per_command")
    sizes = {n: size for n in names if (size := getattr(self, n)) is not None}
    return replace(
      base,
      task=task,
      **sizes,
      commands="fixed" if self.command is not None else self.commands,
      command=self.command,
      disturbed=self.disturbed,
      seed=self.seed,
    )
