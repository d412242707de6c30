"""How much of a velocity command is carried out, by direction and speed, and how.

Rewards tell little of it: a robot that stands keeps most of the tracking reward of a
slow command. So the environment reports metres done and metres asked, and how far feet
agree with the gait's clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from decap.envs.masked import constant
from decap.envs.mdp.kinematics import get_command, root_velocity_b, root_velocity_yaw
from decap.envs.mdp.rewards import gait

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnv


@dataclass
class FollowingCfg:
  """Which commands are told apart."""

  bands: dict[str, tuple[int, float, float]] = field(default_factory=dict)
  """Name → entry of the command (vx, vy, yaw rate), and its least and largest value;
  of vy and yaw rate the size."""
  judged: dict[str, tuple[float, float]] = field(default_factory=dict)
  """Ranges of the commands that a policy is measured by, where those of training are
  wider."""
  gait: dict[str, Any] | None = None
  """Parameters of the gait reward, where feet have a clock: "stepping" is 0 for a robot
  that stands, 1 where all feet agree with it."""
  command_name: str = "twist"
  settle_s: float = 1.0
  """Time after a new command that does not count."""

  @property
  def names(self) -> tuple[str, ...]:
    """What is reported."""
    return (*self.bands, *(() if self.gait is None else ("stepping",)))


def followed(env: ConstrainedEnv, cfg: FollowingCfg) -> torch.Tensor:
  """What was done and what was asked in this step, summed over robots. # [n, 2]"""
  asset = env.scene[env.cfg.constrained_entity]
  bands = tuple(cfg.bands.values())
  axis = constant(env, ("following axes", bands), [band[0] for band in bands])
  bounds = constant(env, ("following bounds", bands), [band[1:] for band in bands])
  command = get_command(env, cfg.command_name)  # [B, 3]
  planar, turn = root_velocity_yaw(env, asset), root_velocity_b(env, asset)[:, 5:]
  velocity = torch.cat((planar, turn), 1)  # [B, 3]
  value = torch.cat((command[:, :1], command[:, 1:].abs()), 1)[:, axis]  # [B, n]
  term = env.command_manager.get_term(cfg.command_name)
  settled = term.time_left < term.cfg.resampling_time_range[0] - cfg.settle_s  # [B]
  counts = (value > bounds[:, 0]) & (value <= bounds[:, 1]) & settled.unsqueeze(1)
  # Of a robot whose physics has diverged nothing was done; it is about to be reset.
  done = torch.nan_to_num(velocity * command.sign(), 0.0, 0.0, 0.0)[:, axis]
  asked = command.abs()[:, axis] * counts
  reported = torch.stack((done * counts, asked), -1).sum(0)
  if cfg.gait is None:
    return reported
  return torch.cat((reported, _stepping(env, cfg.gait).unsqueeze(0)))


def _stepping(env: ConstrainedEnv, clock: dict[str, Any]) -> torch.Tensor:
  """Feet that agree with the clock beyond those of a robot that stands. # [2]"""
  feet, share = len(clock["offsets"]), clock["stance_share"]
  command = get_command(env, clock["command_name"])
  moving = (command.norm(dim=1) > clock["command_threshold"]).sum()
  agreeing = gait(env, **clock).sum()
  asked = (1.0 - share) * feet * moving
  return torch.stack((agreeing - share * feet * moving, asked))
