"""Tasks by name. Importing this imports neither torch nor mjlab."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnvCfg


@dataclass(frozen=True)
class Task:
  """A task's environment config, made when it is asked for."""

  robot: str
  terrain: str
  summary: str
  mjlab_id: str
  """Its name in mjlab's registry."""

  def env_cfg(self, play: bool = False) -> ConstrainedEnvCfg:
    """A fresh config: of training, or for watching."""
    from decap.tasks.velocity import velocity_env_cfg

    return velocity_env_cfg(self.robot, self.terrain, play)  # type: ignore[arg-type]


TASKS: dict[str, Task] = {
  "g1-flat": Task(
    "g1", "flat", "G1 (29 DoF), velocity commands on a plane", "Decap-G1-Flat"
  ),
  "g1-rough": Task(
    "g1",
    "rough",
    "G1 (29 DoF), velocity commands on slopes, rough ground and low stairs",
    "Decap-G1-Rough",
  ),
  "g1-23dof-flat": Task(
    "g1-23dof",
    "flat",
    "G1 (23 DoF), velocity commands on a plane",
    "Decap-G1-23Dof-Flat",
  ),
  "g1-23dof-rough": Task(
    "g1-23dof",
    "rough",
    "G1 (23 DoF), velocity commands on slopes, rough ground and low stairs",
    "Decap-G1-23Dof-Rough",
  ),
}
