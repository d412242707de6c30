"""The protocol of an evaluation as options, for the command line and for sweeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from decap.evaluation.protocol import QUICK, Protocol, check_steps
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
    if self.steps is not None:
      check_steps(self.steps)
    size = self.protocol(self.task or "g1-flat").num_envs
    machine.check_num_envs(size, self.device)

  def protocol(self, task: str) -> Protocol:
    """The protocol that these options describe."""
    base = QUICK if self.quick else Protocol()
    sizes = {
      name: getattr(base if getattr(self, name) is None else self, name)
      for name in ("rollouts", "envs", "steps", "per_command")
    }
    return Protocol(
      task=task,
      **sizes,
      commands="fixed" if self.command is not None else self.commands,
      command=self.command,
      disturbed=self.disturbed,
      seed=self.seed,
    )
