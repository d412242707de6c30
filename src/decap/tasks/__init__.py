"""Tasks by name. Importing this imports neither torch nor mjlab."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from decap.errors import check_known

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnvCfg
  from decap.rl.config import AgentCfg
  from decap.robots.description import RobotDescription

TerrainName = Literal["flat", "rough"]

ITERATIONS, NUM_ENVS, CPU_NUM_ENVS = 1650, 1024, 256
"""How long and with how many environments a task is trained unless someone says."""


@dataclass(frozen=True)
class Task:
  """One combination of robot and terrain; as text, its summary."""

  robot: str
  """Where the function is that describes the robot: "module:function"."""
  terrain: TerrainName
  summary: str

  def __str__(self) -> str:
    return self.summary

  def describe(self) -> RobotDescription:
    """A fresh description of the robot."""
    module, _, function = self.robot.partition(":")
    return getattr(import_module(module), function)()


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


def get_task(name: str) -> Task:
  """The task of that name."""
  check_known("task", name, TASKS)
  return TASKS[name]


def env_cfg(name: str, play: bool = False) -> ConstrainedEnvCfg:
  """A fresh environment config: of training, or for watching."""
  from decap.tasks.velocity import velocity_env_cfg

  task = get_task(name)
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

  std = get_task(name).describe().exploration
  return AgentCfg(
    iterations=ITERATIONS,
    policy=PolicyCfg(init_std=std, std_type="log", std_growth=1.0),
    algorithm=PpoCfg(
      learning_rate=3e-4,
      schedule="fixed",
      rate_final=0.3,
      entropy_final=0.001,
      mirror_loss_coef=0.2,
    ),
  )


def mjlab_id(name: str) -> str:
  """The task's name in mjlab's registry: "g1-flat" is "Decap-G1-Flat"."""
  return "-".join(("Decap", *(part.capitalize() for part in name.split("-"))))
