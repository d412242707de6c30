"""Velocity commands that are resampled by mask.

The distribution, the options and the config are those of mjlab's
UniformVelocityCommand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from mjlab.managers.command_manager import CommandTerm
from mjlab.tasks.velocity.mdp.velocity_command import (
  UniformVelocityCommand,
  UniformVelocityCommandCfg,
)
from mjlab.utils.lab_api.math import quat_apply, wrap_to_pi

from decap.envs.masked import redraw_where, write_where
from decap.envs.mdp.kinematics import (
  root_qpos,
  root_qvel,
  root_velocity_b,
  root_velocity_yaw,
)

if TYPE_CHECKING:
  from mjlab.envs import ManagerBasedRlEnv


class MaskedCommandTerm(CommandTerm):
  """A command term whose timers and resampling work by mask."""

  masked = True

  def resample(self, mask: torch.Tensor) -> None:
    """New commands and full timers for the masked environments [B]."""
    redraw_where(self.time_left, mask, self.cfg.resampling_time_range)
    self._sample(mask)
    self.command_counter += mask

  def reset_masked(self, mask: torch.Tensor) -> None:
    """Starts an episode in the masked environments."""
    for metric in self.metrics.values():
      metric.masked_fill_(mask, 0.0)
    self.command_counter.masked_fill_(mask, 0)
    self.resample(mask)

  def compute(
    self, dt: float | torch.Tensor, env_ids: torch.Tensor | None = None
  ) -> None:
    assert env_ids is None or dt == 0.0, "environments advance together"
    self._update_metrics()
    self.time_left -= dt
    self.resample(self.time_left <= 0.0)
    self._update_command(None)

  def _sample(self, mask: torch.Tensor) -> None:
    """Draws commands for all environments and keeps those of the masked ones."""
    raise NotImplementedError


class VelocityCommand(UniformVelocityCommand, MaskedCommandTerm):
  """Uniform planar velocity and yaw rate, with tracking errors as metrics.

  The ranges live on the device, so that a curriculum can change them between replays
  of a CUDA graph: change ``cfg.ranges``, then call ``load_ranges``.
  """

  def __init__(self, cfg: UniformVelocityCommandCfg, env: ManagerBasedRlEnv):
    super().__init__(cfg, env)
    self.ranges = torch.zeros(2, 4, device=self.device)  # [low/high, x/y/yaw/heading]
    self.load_ranges()
    self._steps = torch.zeros(self.num_envs, device=self.device)
    self._held: tuple[torch.Tensor, torch.Tensor] | None = None
    self._sliders: list[Any] = []

  def load_ranges(self) -> None:
    """Copies the config's ranges to the device; host work, not for inside a step."""
    r = self.cfg.ranges
    bounds = (r.lin_vel_x, r.lin_vel_y, r.ang_vel_z, r.heading or (0.0, 0.0))
    self.ranges.copy_(torch.tensor(bounds, device=self.device).T)

  def hold(self, mask: torch.Tensor, command: torch.Tensor) -> None:
    """Tell the masked environments [B] the same [B, 3] from now on, resets included."""
    self._held = (mask, command)

  def tell(self, command: Sequence[float]) -> None:
    """Tell all environments one command from now on; the viewer's sliders show it."""
    every = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
    row = torch.tensor([list(command)], dtype=torch.float32, device=self.device)
    self.hold(every, row.expand(self.num_envs, 3))
    for slider, value in zip(self._sliders, command, strict=False):
      if slider.value != value:  # Setting it calls back.
        slider.min, slider.max = min(slider.min, value), max(slider.max, value)
        slider.value = value

  def create_gui(
    self,
    name: str,
    server: Any,
    get_env_idx: Callable[[], int],
    on_change: Callable[[], None] | None = None,
    request_action: Callable[[str, Any], None] | None = None,
  ) -> None:
    """Sliders over the trained range in mjlab's viewer; they tell all robots, at once."""
    del name, get_env_idx, on_change, request_action
    told = [0.0] * 3 if self._held is None else self._held[1][0].tolist()
    r = self.cfg.ranges
    sliders = [
      server.gui.add_slider(
        label, float(low), float(high), 0.05, min(high, max(low, 0))
      )
      for label, (low, high) in (
        ("forward, m/s", r.lin_vel_x),
        ("left, m/s", r.lin_vel_y),
        ("turn left, rad/s", r.ang_vel_z),
      )
    ]
    self._sliders = sliders
    self.tell([round(value, 4) for value in told])
    for slider in sliders:
      slider.on_update(lambda _: self.tell([slider.value for slider in sliders]))
    server.gui.add_button("Stand").on_click(lambda _: self.tell([0.0] * 3))

  def reset_masked(self, mask: torch.Tensor) -> None:
    super().reset_masked(mask)
    self._steps.masked_fill_(mask, 0.0)
    if self.cfg.init_velocity_prob > 0.0:
      chance = torch.rand(self.num_envs, device=self.device)
      self._start_moving(mask & (chance < self.cfg.init_velocity_prob))

  # Private methods.

  def _sample(self, mask: torch.Tensor) -> None:
    draw = torch.rand(self.num_envs, 8, device=self.device)
    low, high = self.ranges
    drawn = torch.lerp(low, high, draw[:, :4])
    velocity, heading = drawn[:, :3], drawn[:, 3]
    standing, headed, fixed, ahead = draw[:, 4:].unbind(1)
    cfg = self.cfg
    if cfg.heading_command:
      write_where(self.heading_target, mask, heading)
      write_where(self.is_heading_env, mask, headed < cfg.rel_heading_envs)
    write_where(self.is_standing_env, mask, standing < cfg.rel_standing_envs)
    if cfg.rel_world_envs > 0.0:
      write_where(self.is_world_env, mask, fixed < cfg.rel_world_envs)
      write_where(self.vel_command_w, mask, velocity)
    if cfg.rel_forward_envs > 0.0:
      write_where(self.is_forward_env, mask, ahead < cfg.rel_forward_envs)
      forward = torch.zeros_like(velocity)
      forward[:, 0] = velocity[:, 0].abs().clamp(min=0.3)
      velocity = torch.where(self.is_forward_env.unsqueeze(1), forward, velocity)
    write_where(self.vel_command_b, mask, velocity)

  def _update_command(self, env_ids: torch.Tensor | None = None) -> None:
    del env_ids  # A function of the current state: refreshing all is right.
    command = self.vel_command_b
    if self.cfg.heading_command:
      heading = self.robot.data.heading_w
      self.heading_error.copy_(wrap_to_pi(self.heading_target - heading))
      rate = self.cfg.heading_control_stiffness * self.heading_error
      rate = rate.clamp(self.ranges[0, 2], self.ranges[1, 2])
      write_where(command[:, 2], self.is_heading_env, rate)
    if self.cfg.rel_world_envs > 0.0:
      heading = self.robot.data.heading_w
      cos, sin = torch.cos(heading), torch.sin(heading)
      x, y = self.vel_command_w[:, 0], self.vel_command_w[:, 1]
      planar = torch.stack((cos * x + sin * y, cos * y - sin * x), -1)
      write_where(command[:, :2], self.is_world_env, planar)
    command.masked_fill_(self.is_standing_env.unsqueeze(1), 0.0)
    if self._held is not None:
      write_where(command, *self._held)

  def _update_metrics(self) -> None:
    """Mean tracking errors of the episode so far; planar ones in the yaw frame."""
    self._steps += 1.0
    share = self._steps.reciprocal()
    xy = self.vel_command_b[:, :2] - root_velocity_yaw(self._env, self.robot)
    yaw = self.vel_command_b[:, 2] - root_velocity_b(self._env, self.robot)[:, 5]
    self.metrics["error_vel_xy"].lerp_(xy.norm(dim=-1), share)
    self.metrics["error_vel_yaw"].lerp_(yaw.abs(), share)

  def _start_moving(self, mask: torch.Tensor) -> None:
    """Gives the masked robots the velocity that they are commanded to have."""
    quat = root_qpos(self._env, self.robot)[:, 3:]
    zero = torch.zeros_like(self.vel_command_b[:, :1])
    planar_b = torch.cat((self.vel_command_b[:, :2], zero), -1)
    angular_b = torch.cat((zero, zero, self.vel_command_b[:, 2:]), -1)
    qvel = torch.cat((quat_apply(quat, planar_b), angular_b), -1)
    write_where(root_qvel(self._env, self.robot), mask, qvel)


MASKED_COMMANDS: dict[type, Any] = {UniformVelocityCommandCfg: VelocityCommand}
"""Config of mjlab's term → our term for the same config."""
