"""Tasks by name. Importing this imports neither torch nor mjlab."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnvCfg
  from decap.rl.config import AgentCfg

RobotName = Literal["g1", "g1-23dof"]
TerrainName = Literal["flat", "rough"]


@dataclass(frozen=True)
class Task:
  """One combination of robot and terrain; as text, its summary."""

  robot: RobotName
  terrain: TerrainName
  summary: str

  def __str__(self) -> str:
    return self.summary


_ROUGH = "slopes, rough ground and low stairs"

TASKS: dict[str, Task] = {
  "g1-flat": Task("g1", "flat", "G1 with 29 DoF, velocity commands, plane"),
  "g1-rough": Task("g1", "rough", f"G1 with 29 DoF, velocity commands, {_ROUGH}"),
  "g1-23dof-flat": Task("g1-23dof", "flat", "G1 with 23 DoF, velocity commands, plane"),
  "g1-23dof-rough": Task(
    "g1-23dof", "rough", f"G1 with 23 DoF, velocity commands, {_ROUGH}"
  ),
}


def task_names() -> tuple[str, ...]:
  """Names that `env_cfg` knows."""
  return tuple(TASKS)


def env_cfg(name: str, play: bool = False) -> ConstrainedEnvCfg:
  """A fresh environment config: of training, or for watching."""
  from decap.tasks.velocity import velocity_env_cfg

  task = TASKS[name]
  return velocity_env_cfg(task.robot, task.terrain, play)


def agent_cfg() -> AgentCfg:
  """A fresh agent config, the same for all tasks; methods edit it.

  Exploration is decoupled like the limits: arms start with the noise that their
  action-rate limit allows, legs with what balance is learnt from. log σ, so that it can
  shrink tenfold in a hundred iterations. The rate is fixed: the KL-adaptive one falls
  to its floor on small batches, and learns no faster on large ones.
  """
  from decap.rl.config import AgentCfg, PolicyCfg, PpoCfg

  std = {".*_(shoulder|elbow|wrist)_.*": 0.06, ".*(hip|knee|ankle|waist)_.*": 0.6}
  return AgentCfg(
    policy=PolicyCfg(init_std=std, std_type="log", std_growth=1.0),
    algorithm=PpoCfg(
      learning_rate=3e-4, schedule="fixed", entropy_final=0.002, mirror_loss_coef=0.2
    ),
  )


def mjlab_id(name: str) -> str:
  """The task's name in mjlab's registry: "g1-flat" is "Decap-G1-Flat"."""
  return "-".join(("Decap", *(part.capitalize() for part in name.split("-"))))
