"""How a policy walks: what it follows, with which gait, how still its body is.

Accumulated on the device like the other metrics, for every rollout and every fixed
command; docs/evaluation.md documents the definitions.
"""

from __future__ import annotations

import math
from functools import partial

import torch

from decap.evaluation.bins import Bins
from decap.evaluation.protocol import COMMANDS, STOPPING_S
from decap.evaluation.trajectory import Sample

MOVING = 0.1
"""Commanded speed in m/s from which a robot is expected to move."""

FALL_STEPS = 50
"""The last steps before a fall, which is one second: not following, but falling."""

LEAST_LIFTED = 0.01
"""Share of steps that each foot must be lifted for a correlation to mean something."""

RESPONSE_BINS = 21
RESPONSE_WIDTH = (0.1, 0.1, 0.05)
"""Bins of commanded vx, vy (m/s) and yaw rate (rad/s), centred on zero."""

_FOLLOWING = 5
"""Columns of what is followed: share, yaw rate · command, vx, vy, yaw rate."""
_COUNTS = (
  *("steps", "falls", "still", "counted", "told"),
  *("walking", "left", "right", "both", "flight", "smooth"),
)
_AMOUNTS = ("told_yaw", "lift_offs", "jerk", "moved", "seconds")
"""Columns that are summed: first those of booleans, as one conversion is enough."""


def followed(
  command: torch.Tensor, velocity: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
  """Share of the command [..., 2] that is done, 0 for standing; whether one is given."""
  squared = command.square().sum(-1)
  share = (velocity * command).sum(-1) / squared.clamp(min=MOVING**2)
  return share, squared >= MOVING**2


def finite(sample: Sample) -> torch.Tensor:
  """Where everything that `Motion` reads is a finite number. # [B]"""
  parts = (
    sample.base_velocity,
    sample.angular_velocity.flatten(1),
    sample.base_position,
    sample.head_position,
  )
  return torch.cat(parts, 1).isfinite().all(1)


class Motion:
  """Sums over steps of following, gait, posture and drift, by bin."""

  def __init__(
    self, bins: Bins, warmup: int, dt: float, segments: int, device: str, feet: int = 2
  ) -> None:
    self.bins = bins
    self._warmup, self._dt = warmup, dt
    batch = bins.batch

    zeros = partial(torch.zeros, device=device)
    columns = len(_COUNTS) + len(_AMOUNTS) + _FOLLOWING + 3 * segments
    self._sums = zeros(bins.count, columns, dtype=torch.float64)
    self._response = zeros(3 * RESPONSE_BINS, 3, dtype=torch.float64)
    # Following, the command and whether a step counts wait until no fall came after it.
    self._pending = zeros(FALL_STEPS, batch, _FOLLOWING + 4)
    self._now = zeros(1, dtype=torch.long)
    self._fell_at = zeros(batch, dtype=torch.long) - 1
    self._after_fall = zeros(batch, dtype=torch.bool)
    self._contact = zeros(batch, feet, dtype=torch.bool)
    self._heads = zeros(3, batch, 3)
    self._start = zeros(batch, 2)
    self._open = zeros(batch, 2)
    self._cycle = round(2.0 * STOPPING_S / dt)
    self._stops = zeros(bins.count, 2, dtype=torch.float64)
    self._fixed = torch.arange(batch, device=device) >= bins.random
    self._width = torch.tensor(RESPONSE_WIDTH, device=device)
    self._first_bin = torch.arange(3, device=device) * RESPONSE_BINS

  def add(self, sample: Sample, age: torch.Tensor, finite: torch.Tensor) -> None:
    """Take in one control step; fixed buffers only, so that a graph can record it.

    `age`: steps that each episode had before; `finite`: all of its numbers are. # [B]
    """
    awake = finite & (age >= self._warmup)
    counted, told, told_yaw, done = self._following(sample, age, finite, awake)
    *feet, lifted = self._gait(sample, age, awake)
    smooth, jerk, squares = self._posture(sample, age, awake)
    way = self._drift(sample, age, awake)
    counts = torch.stack((finite, sample.fell, awake, counted, told, *feet, smooth), 1)
    amounts = torch.stack((told_yaw, lifted, jerk, *way.unbind(1)), 1)
    table = torch.cat((counts.float(), amounts, done, squares), 1)
    self._sums += self.bins.sum(table.nan_to_num(0.0, 0.0, 0.0))
    whole = self._now % self._cycle == 0  # Walking and standing are both over.
    self._stops.copy_(torch.where(whole, self._sums[:, :2], self._stops))

  def result(self) -> dict[str, torch.Tensor]:
    """Numbers by bin, on the host; NaN where nothing counted. # [R + C + G, …] each"""
    names = (*_COUNTS, *_AMOUNTS)
    sums, done, squares = (
      self._sums.cpu().clone().tensor_split((len(names), len(names) + _FOLLOWING), 1)
    )
    s = dict(zip(names, sums.unbind(1), strict=True))
    done = done + self.bins.sum(self._waiting().sum(0)[:, :_FOLLOWING]).cpu()
    moved, seconds = (self.bins.sum(self._open).cpu() + sums[:, -2:]).unbind(1)
    squares = squares.view(len(squares), -1, 3)
    # A walk without its stop would make the share of stops that end in a fall smaller.
    if self.bins.commands == len(COMMANDS):
      stop = self.bins.rollouts + self.bins.commands - 1
      s["steps"][stop], s["falls"][stop] = self._stops[stop].cpu()
    walking, minutes = s["walking"], s["steps"] * self._dt / 60.0
    left, right = s["left"] / walking, s["right"] / walking
    covariance = s["both"] / walking - left * right
    spread = left * (1.0 - left) * right * (1.0 - right)
    steps = torch.minimum(1.0 - left, 1.0 - right) >= LEAST_LIFTED
    return {
      "followed": done[:, 0] / s["told"],
      "followed_yaw": done[:, 1] / s["told_yaw"],
      "velocity": done[:, 2:] / s["counted"].unsqueeze(1),
      "falls_per_minute": s["falls"] / minutes,
      "correlation": torch.where(steps, covariance / spread.sqrt(), math.nan),
      "flight": s["flight"] / walking,
      "double_support": s["both"] / walking,
      "lift_offs": s["lift_offs"] / (walking * self._dt),
      "angular_velocity": (squares / s["still"].view(-1, 1, 1)).sqrt(),
      "head_jerk": (s["jerk"] / s["smooth"]).sqrt(),
      "drift": moved / seconds,
    }

  def response(self) -> dict[str, dict[str, list[float]]]:
    """Achieved velocity by commanded velocity, over the random commands that occurred.

    Steps around falls are left out.
    """
    axes = {}
    table = self._response.clone()
    for step in self._waiting():
      self._add_response(step, table)
    table = table.cpu().view(3, RESPONSE_BINS, 3)
    for name, rows, width in zip(
      ("vx", "vy", "yaw_rate"), table, RESPONSE_WIDTH, strict=True
    ):
      seen = rows[:, 0] > 0
      count, total, squares = rows[seen].unbind(1)
      mean = total / count
      centres = (torch.arange(RESPONSE_BINS) - RESPONSE_BINS // 2) * width
      axes[name] = {
        "command": [round(v, 3) for v in centres[seen].tolist()],
        "mean": mean.tolist(),
        "std": (squares / count - mean.square()).clamp(min=0.0).sqrt().tolist(),
      }
    return axes

  # Private methods.

  def _waiting(self) -> torch.Tensor:
    """The pending steps that no fall has followed yet. # [50, B, 9]"""
    slots = torch.arange(FALL_STEPS, device=self._now.device)
    written = self._now - 1 - (self._now - 1 - slots) % FALL_STEPS  # [50]
    upright = self._fell_at < written.unsqueeze(1)  # [50, B]
    return self._pending * upright.unsqueeze(-1)

  # Each of these returns columns of what is summed. # [B, …] each

  def _following(
    self, sample: Sample, age: torch.Tensor, finite: torch.Tensor, awake: torch.Tensor
  ) -> tuple[torch.Tensor, ...]:
    """A fall's last second and the second after it are told, and follow nothing."""
    command, velocity = sample.command, sample.base_velocity
    share, moving = followed(command[:, :2], velocity[:, :2])
    yaw = velocity[:, 2] * command[:, 2]
    achieved = torch.stack((share * moving, yaw, *velocity.unbind(1)), 1)  # [B, 5]
    done = torch.cat((achieved, command, torch.ones_like(yaw).unsqueeze(1)), 1)
    done = torch.where(awake.unsqueeze(1), done, 0.0)  # [B, 9]
    slot = self._now % FALL_STEPS
    upright = (self._fell_at < self._now - FALL_STEPS).unsqueeze(1)
    leaving = self._pending.index_select(0, slot).squeeze(0) * upright  # [B, 9]
    self._add_response(leaving, self._response)
    self._pending.index_copy_(0, slot, done.unsqueeze(0))
    self._fell_at.copy_(torch.where(sample.fell, self._now, self._fell_at))
    self._now += 1
    counted = finite & ((age >= self._warmup) | self._after_fall)
    self._after_fall.copy_((self._after_fall & ~sample.timed_out) | sample.fell)
    told_yaw = command[:, 2].square() * counted
    return counted, counted & moving, told_yaw, leaving[:, :_FOLLOWING]

  def _gait(
    self, sample: Sample, age: torch.Tensor, awake: torch.Tensor
  ) -> tuple[torch.Tensor, ...]:
    walking = awake & ((sample.command.norm(dim=1) >= MOVING) | self._fixed)
    down = sample.contact & walking.unsqueeze(1)
    left, right = down[:, 0], down[:, 1]
    lifted = (self._contact & ~sample.contact).float().mean(1)
    lifted = lifted * (walking & (age > 0))
    self._contact.copy_(sample.contact)
    return walking, left, right, left & right, walking & ~down.any(1), lifted

  def _posture(
    self, sample: Sample, age: torch.Tensor, awake: torch.Tensor
  ) -> tuple[torch.Tensor, ...]:
    """Also the head's jerk: the third difference of its position, at the control rate."""
    turning = sample.angular_velocity.flatten(1).square()
    before3, before2, before1 = self._heads
    now = sample.head_position
    jerk = (now - 3.0 * before1 + 3.0 * before2 - before3) / self._dt**3
    self._heads.copy_(torch.stack((before2, before1, now)))
    smooth = awake & (age >= 3)
    jerk = torch.where(smooth, jerk.square().sum(1), 0.0)
    return smooth, jerk, torch.where(awake.unsqueeze(1), turning, 0.0)

  def _drift(
    self, sample: Sample, age: torch.Tensor, awake: torch.Tensor
  ) -> torch.Tensor:
    """Way and time from the end of the warm-up to the end of the episode, when it ends."""
    planar = sample.base_position[:, :2]
    first = (age == self._warmup).unsqueeze(1)
    self._start.copy_(torch.where(first, planar, self._start))
    moved = (planar - self._start).norm(dim=1)
    way = torch.stack((moved, (age - self._warmup) * self._dt), 1)  # [B, 2]
    way = torch.where(awake.unsqueeze(1), way, 0.0)
    ended = (sample.fell | sample.timed_out).unsqueeze(1)
    self._open.copy_(torch.where(ended, 0.0, way))
    return torch.where(ended, way, 0.0)

  def _add_response(self, step: torch.Tensor, table: torch.Tensor) -> None:
    """Add a step [B, 9] of `_pending` to a table of bins [3 · 21, 3]."""
    step = step[: self.bins.random]
    velocity, command, count = step[:, 2:5], step[:, 5:8], step[:, 8:]
    middle = RESPONSE_BINS // 2
    bins = (command / self._width).round().clamp(-middle, middle).long() + middle
    values = (count.expand_as(velocity), velocity, velocity.square())
    rows = (bins + self._first_bin).flatten()
    table.index_add_(0, rows, torch.stack(values, -1).flatten(0, 1).double())
