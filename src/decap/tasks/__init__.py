"""Tasks by name: ours, and those that users name by the place of their definition.

Importing this imports neither torch nor mjlab.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from decap.errors import UserError, check_known
from decap.tasks import own

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnvCfg
  from decap.rl.config import AgentCfg
  from decap.robots.description import RobotDescription

TerrainName = Literal["flat", "rough"]

ITERATIONS, NUM_ENVS, CPU_NUM_ENVS = 1650, 1024, 256
"""How long and with how many environments a task is trained unless someone says."""


@dataclass(frozen=True)
class Task:
  """A robot on a terrain that is told velocities, or an environment of one's own; as
  text, its summary."""

  robot: str | Callable[[], RobotDescription] | None = None
  """The function that describes the robot, or its place, "module:function", which is
  imported when it is needed. What has none cannot be evaluated."""
  terrain: TerrainName = "flat"
  summary: str = ""
  env: Callable[[bool], ConstrainedEnvCfg] | None = None
  """Makes a fresh config of the environment: told False for training, True for watching.
  None: the velocity task of the robot."""
  agent: Callable[[], AgentCfg] | None = None
  """Makes a fresh config of the agent, which methods edit. None: as our tasks have."""

  def __str__(self) -> str:
    return self.summary

  def describe(self) -> RobotDescription:
    """A fresh description of the robot."""
    if self.robot is None:
      raise UserError("This task has no description of its robot (docs/own-task.md).")
    from decap.robots.description import RobotDescription

    robot = self.robot
    if isinstance(robot, str):
      robot = own.load(robot, Callable, "A robot's function")
    return own.made("robot", robot, RobotDescription)


_ROUGH = "slopes, rough ground and low stairs"

_G1, _G1_23DOF = "decap.robots.g1:g1_29dof", "decap.robots.g1:g1_23dof"

TASKS: dict[str, Task] = {
  "g1-flat": Task(_G1, "flat", "G1 with 29 DoF, velocity commands, plane"),
  "g1-rough": Task(_G1, "rough", f"G1 with 29 DoF, velocity commands, {_ROUGH}"),
  "g1-23dof-flat": Task(_G1_23DOF, "flat", "G1 with 23 DoF, velocity commands, plane"),
  "g1-23dof-rough": Task(
    _G1_23DOF, "rough", f"G1 with 23 DoF, velocity commands, {_ROUGH}"
  ),
  "go1-flat": Task(
    "decap.robots.go1:go1", "flat", "Go1, a quadruped, velocity commands, plane"
  ),
}


_NAMED: dict[str, Task] = {}
"""Tasks of their own that users have named."""


def is_own(name: str) -> bool:
  """Whether it names the place of a task that is not ours."""
  return ":" in str(name)  # A damaged file may have anything there.


def folder_name(name: str) -> str:
  """What folders and files of a task are called; colons mean something to many tools."""
  return name.replace(":", ".")


def name_task(name: str) -> None:
  """Make the task known that a user names; one of their own is imported, from the current
  folder first."""
  if is_own(name) and name not in _NAMED:
    if os.getcwd() not in sys.path:  # As of `python -m`.
      sys.path.insert(0, os.getcwd())
    _NAMED[name] = own.load(name, Task)
  get_task(name)


def get_task(name: str) -> Task:
  """The task of that name; imports nothing, since names in files may be a stranger's."""
  if name in _NAMED:
    return _NAMED[name]
  if is_own(name):
    raise UserError(
      f"The task '{name}' is not one of decap's, and is not imported because a file says "
      "so: if you trust it, name it yourself by --task."
    )
  check_known("task", name, TASKS)
  return TASKS[name]


def env_cfg(name: str, play: bool = False) -> ConstrainedEnvCfg:
  """A fresh environment config: of training, or for watching."""
  task = get_task(name)
  if task.env is not None:
    from decap.envs.constrained_env import ConstrainedEnvCfg

    return own.made("env", task.env, ConstrainedEnvCfg, play)
  from decap.tasks.velocity import velocity_env_cfg

  check_known("terrain", task.terrain, get_args(TerrainName))
  return velocity_env_cfg(task.describe(), task.terrain, play)


def hide_clock(cfg: ConstrainedEnvCfg) -> None:
  """Make actor and critic blind for the gait's clock, as in the paper."""
  for group in cfg.observations.values():
    group.terms.pop("clock", None)


def undisturbed(
  cfg: ConstrainedEnvCfg, push_interval_s: float | None = None
) -> ConstrainedEnvCfg:
  """Without noise, pushes and curricula; returns the config.

  With an interval there is noise, and a push that often.
  """
  from mjlab.envs import mdp
  from mjlab.managers import EventTermCfg

  cfg.metrics = {}
  cfg.observations["actor"].enable_corruption = push_interval_s is not None
  for name, event in list(cfg.events.items()):
    if event.mode == "interval":
      if push_interval_s is None:
        del cfg.events[name]
      else:
        event.interval_range_s = (push_interval_s, push_interval_s)
  if cfg.curriculum:
    # Every level of difficulty alike, instead of the one that training has reached;
    # drawn before the base is placed, which starts from the patch's origin.
    patch = EventTermCfg(func=mdp.randomize_terrain, mode="reset")
    cfg.curriculum, cfg.events = {}, {"patch": patch, **cfg.events}
  return cfg


def agent_cfg(name: str) -> AgentCfg:
  """A fresh agent config of a task; methods edit it.

  The robot says how it explores, and never explores more than that: an entropy bonus
  that helps legs to walk would make arms break their limits by noise alone. log σ, so
  that it can shrink tenfold in a hundred iterations. The rate is fixed at first: the
  KL-adaptive one falls to its floor on small batches, and learns no faster on large
  ones. docs/lab-book.md tells where the values come from.
  """
  from decap.rl.config import AgentCfg, PolicyCfg, PpoCfg

  task = get_task(name)
  if task.agent is not None:
    return own.made("agent", task.agent, AgentCfg)
  std = PolicyCfg().init_std if task.robot is None else task.describe().exploration
  return AgentCfg(
    iterations=ITERATIONS,
    policy=PolicyCfg(init_std=std, std_type="log", std_growth=1.0),
    algorithm=PpoCfg(
      learning_rate=3e-4,
      schedule="fixed",
      rate_final=0.3,
      entropy_final=0.001,
      # How an unknown environment looks in a mirror is not known.
      mirror_loss_coef=0.2 if task.env is None else 0.0,
    ),
  )


def mjlab_id(name: str) -> str:
  """The task's name in mjlab's registry: "g1-flat" is "Decap-G1-Flat"."""
  return "-".join(("Decap", *(part.capitalize() for part in name.split("-"))))
