"""The environment of an evaluation: a task under a protocol, read before resets."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

import torch

from decap.constraints.groups import resolve_groups
from decap.errors import UserError
from decap.evaluation.grounds import grounds_of
from decap.evaluation.layout import Layout, Limits
from decap.evaluation.protocol import (
  COMMANDS,
  STOPPING_S,
  SWITCHING_S,
  SWITCHING_SCHEDULE,
  Protocol,
)
from decap.evaluation.trajectory import Sample
from decap.export import joint_action

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnv, ConstrainedEnvCfg
  from decap.robots.description import RobotDescription

FEET_SENSOR = "feet_contact"
"""Contact sensor of the robot's feet, left and right first."""


def evaluation_cfg(
  protocol: Protocol, limits: Limits | None = None, blind: bool = False
) -> ConstrainedEnvCfg:
  """The task's training environment with the protocol's commands and disturbances.

  A blind policy does not see the gait's clock.
  """
  from decap.runs import apply_limits
  from decap.tasks import hide_clock, undisturbed

  cfg = measured_cfg(protocol.task)
  cfg.scene.num_envs = protocol.num_envs
  cfg.seed = protocol.seed
  if blind:
    hide_clock(cfg)
  apply_limits(cfg, limits or {})
  undisturbed(cfg, None if not protocol.disturbed else protocol.push_interval_s)
  _set_commands(cfg, protocol)
  return cfg


def measured_cfg(task: str) -> ConstrainedEnvCfg:
  """A task's environment, with a sentence where evaluation cannot measure it."""
  from decap.tasks import env_cfg

  cfg = env_cfg(task)
  if lacking := missing(task, cfg):
    raise UserError(
      f"The task {task} cannot be evaluated: it has no {', no '.join(lacking)}."
    )
  return cfg


def missing(task: str, cfg: ConstrainedEnvCfg) -> list[str]:
  """What evaluation measures a task by, and this environment of it has not."""
  from decap.envs.mdp import MASKED_COMMANDS
  from decap.tasks import get_task

  there = {
    "description of its robot": get_task(task).robot is not None,
    "velocity command 'twist'": type(cfg.commands.get("twist")) in MASKED_COMMANDS,
    "reward 'track_xy' with a 'variance'": "track_xy" in cfg.rewards
    and "variance" in cfg.rewards["track_xy"].params,
    f"contact sensor '{FEET_SENSOR}'": FEET_SENSOR
    in [s.name for s in cfg.scene.sensors],
  }
  return [name for name, found in there.items() if not found]


def make_layout(env: ConstrainedEnv, description: RobotDescription) -> Layout:
  """Joints, groups and limits of an environment."""
  robot = env.scene[env.cfg.constrained_entity]
  constraints, reward = env.cfg.constraints, env.cfg.rewards["track_xy"]
  groups = resolve_groups(env.cfg.groups, robot.joint_names)
  term, scale = joint_action(env), torch.zeros(len(robot.joint_names))
  whole = isinstance(term.scale, torch.Tensor)
  scale[term.target_ids.cpu()] = term.scale[0].cpu() if whole else term.scale
  return Layout(
    joint_names=tuple(robot.joint_names),
    groups={name: tuple(ids) for name, ids in groups.items()},
    p_max={name: group.p_max for name, group in env.cfg.groups.items()},
    limits={name: copy(term.limits) for name, term in constraints.items()},
    action_scale=tuple(scale.tolist()),
    control_dt=env.step_dt,
    physics_dt=env.physics_dt,
    scalar_p_max={
      name: term.p_max
      for name, term in constraints.items()
      if not isinstance(term.limits, dict)
    },
    # Weight and variance of what the task pays for the commanded velocity.
    tracking_reward=(reward.weight, reward.params["variance"]),
    units={name: term.unit for name, term in constraints.items() if term.unit},
    feet=len(description.feet),
    segments=tuple(description.segments),
    grounds=grounds.names if (grounds := grounds_of(env)) else (),
  )


def watch(env: ConstrainedEnv, description: RobotDescription) -> None:
  """Let `last_sample` tell of every step from now on, also of those that end episodes.

  Velocities come from the integrated state, which is never behind by a substep.
  """
  from decap.envs.mdp.rewards import in_contact

  robot = env.scene[env.cfg.constrained_entity]
  names = (*description.segments.values(), description.head[0])
  bodies = robot.indexing.body_ids[[list(robot.body_names).index(n) for n in names]]
  head = torch.tensor(description.head[1], device=env.device)
  columns, term = robot.indexing.joint_v_adr, joint_action(env)
  base, grounds = robot.indexing.root_body_id, grounds_of(env)

  def read(env: Any) -> None:
    action = env.action_manager.action
    joints = action.new_zeros(env.num_envs, robot.num_joints)
    env.evaluation_sample = {
      "action": joints.index_copy_(1, term.target_ids, action),
      "joint_pos": robot.data.joint_pos.clone(),
      "joint_vel": robot.data.joint_vel.clone(),
      "joint_vel_before": env.sim.qvel_prev[:, columns],
      "joint_torque": robot.data.qfrc_actuator.clone(),
      "base_velocity": _base_velocity(robot.data.data, robot.indexing),
      "command": command_term(env).command.clone(),
      "contact": in_contact(env, FEET_SENSOR),
      **_body_motion(env, robot, bodies, head),
    }
    if grounds is not None:
      xy = robot.data.data.xpos[:, base, :2]
      env.evaluation_sample["ground"] = grounds.at(xy)

  env.before_reset.append(read)


def last_sample(env: Any, terminated: torch.Tensor, time_outs: torch.Tensor) -> Sample:
  """The step that has just returned, of an environment that is watched."""
  return Sample(
    **env.evaluation_sample,
    fell=terminated,
    timed_out=time_outs,
    quantities=env.extras["constraints"]["quantities"],
  )


def command_term(env: Any) -> Any:
  """The velocity command that the policy follows."""
  return env.command_manager.get_term("twist")


def tell_commands(env: Any, protocol: Protocol) -> Callable[[int], None]:
  """Tell what the environment's config cannot; call it before each step with its number."""
  if protocol.commands != "switching":
    return hold_commands(env, protocol.per_command)
  term = command_term(env)
  schedule = torch.tensor(SWITCHING_SCHEDULE, device=env.device)  # [S, 3]

  def switch(t: int) -> None:
    turn = int(t * env.step_dt / SWITCHING_S + 1e-9)
    term.vel_command_b.copy_(schedule[turn % len(schedule)])

  return switch


def hold_commands(env: Any, robots: int) -> Callable[[int], None]:
  """Tell the last environments `COMMANDS`, `robots` of them each.

  Returns what is to be called with the number of every step before it: it stops those
  that are told to.
  """
  if not robots:
    return lambda t: None
  commands = torch.tensor(list(COMMANDS.values()), device=env.device)  # [C, 3]
  rows = commands.repeat_interleave(robots, 0)
  held = torch.zeros(env.num_envs, 3, device=env.device)
  held[-len(rows) :] = rows
  mask = torch.arange(env.num_envs, device=env.device) >= env.num_envs - len(rows)
  command_term(env).hold(mask, held)
  turn_steps = round(STOPPING_S / env.step_dt)

  def tell(t: int) -> None:
    turn, rest = divmod(t, turn_steps)
    if not rest:
      held[-robots:] = 0.0 if turn % 2 else commands[-1]

  return tell


# Parts of the config.


def _set_commands(cfg: ConstrainedEnvCfg, protocol: Protocol) -> None:
  if protocol.commands == "random":
    if cfg.following is not None:
      command = cfg.commands[cfg.following.command_name]
      for name, bounds in cfg.following.judged.items():
        setattr(command.ranges, name, bounds)  # ty: ignore
    return
  command, told = cfg.commands["twist"], protocol.command or SWITCHING_SCHEDULE[0]
  for name, value in zip(("lin_vel_x", "lin_vel_y", "ang_vel_z"), told, strict=True):
    setattr(command.ranges, name, (value, value))  # ty: ignore
  command.resampling_time_range = (1e9, 1e9)
  for name in ("standing", "heading", "world", "forward"):
    setattr(command, f"rel_{name}_envs", 0.0)


# Parts of the sample.


def _base_velocity(data: Any, indexing: Any) -> torch.Tensor:
  """vx, vy in the yaw frame (m/s) and the rate about the body's z (rad/s). # [B, 3]"""
  w, x, y, z = data.qpos[:, indexing.free_joint_q_adr[3:7]].unbind(-1)
  velocity = data.qvel[:, indexing.free_joint_v_adr]
  cos, sin = 1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y + w * z)
  size = torch.sqrt(cos * cos + sin * sin)
  cos, sin = cos / size, sin / size
  along = cos * velocity[:, 0] + sin * velocity[:, 1]
  across = cos * velocity[:, 1] - sin * velocity[:, 0]
  return torch.stack((along, across, velocity[:, 5]), dim=-1)


def _body_motion(
  env: Any, robot: Any, bodies: torch.Tensor, head: torch.Tensor
) -> dict[str, torch.Tensor]:
  """Angular velocities [B, S, 3] and positions [B, 3] of base and head.

  The last of the bodies [S + 1] carries the head, at this place of it [3].
  """
  data, origins = robot.data.data, env.scene.env_origins
  rotation = data.xmat[:, bodies]  # [B, S + 1, 3, 3]
  turning = data.cvel[:, bodies[:-1], :3].unsqueeze(-1)  # [B, S, 3, 1], in the world
  top = data.xpos[:, bodies[-1:]].squeeze(1) + (rotation[:, -1] * head).sum(-1)
  return {
    "angular_velocity": (rotation[:, :-1] * turning).sum(-2),
    "base_position": data.xpos[:, robot.indexing.root_body_id] - origins,
    "head_position": top - origins,
  }
