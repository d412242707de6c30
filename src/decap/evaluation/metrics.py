"""Smoothness, violations and tracking, accumulated on the device while a policy runs.

`Metrics.add` waits for nothing and keeps no trajectory; `Metrics.result` copies sums to
the host once. Quantities and termination probability are the functions of
`decap.constraints`, the ones that training uses. docs/evaluation.md documents the
result.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from decap.constraints import (
  action_rate,
  energy,
  joint_acceleration,
  joint_torque,
  joint_velocity,
)
from decap.errors import UserError
from decap.evaluation.bins import Bins, each, number, summary
from decap.evaluation.layout import QUANTITIES, Layout
from decap.evaluation.motion import Motion
from decap.evaluation.motion import finite as finite_motion
from decap.evaluation.protocol import COMMANDS
from decap.evaluation.spectrum import Spectrum, jitter
from decap.evaluation.trajectory import Sample
from decap.evaluation.violations import Violations

TRACKING = ("error_x", "error_y", "error_xy", "error_yaw", "mae_xy", "return_xy")

FOLLOWED = ("followed", "followed_yaw")
GAIT = ("correlation", "flight", "double_support", "lift_offs")
"""What of `Motion.result` is tracking, and what gait."""

RETURN_STEPS = 1000
"""Returns are scaled to this number of steps, an episode of 20 s."""


def measure(
  sample: Sample,
  prev_action: torch.Tensor,
  prev_vel: torch.Tensor,
  scale: torch.Tensor,
  layout: Layout,
) -> dict[str, torch.Tensor]:
  """Everything in `QUANTITIES` and all that the environment constrains, by name.

  [B, J] each, or [B] for scalars. What the environment measured is taken; for the
  rest of `QUANTITIES` this step is enough, and raw action and joint velocities of the
  one before. # [B, J]
  """
  vel, torque = sample.joint_vel, sample.joint_torque
  values = {
    "action_rate": action_rate(sample.action, prev_action, scale, layout.control_dt),
    "joint_acc": joint_acceleration(vel, sample.joint_vel_before, layout.physics_dt),
    "joint_torque": joint_torque(torque),
    "joint_vel": joint_velocity(vel),
    "joint_acc_20ms": joint_acceleration(vel, prev_vel, layout.control_dt),
    "energy": energy(torque, vel),
    **sample.quantities,
  }
  for name in layout.limits:
    if name not in values:
      raise UserError(f"There is a limit of '{name}', but nothing measured it.")
  return values


class Metrics:
  """Accumulates samples of `rollouts` × `envs` environments, rollout by rollout.

  After them come `per_command` environments for each of `COMMANDS`.
  """

  def __init__(
    self,
    layout: Layout,
    rollouts: int,
    envs: int,
    warmup: int,
    device: str = "cpu",
    per_command: int = 0,
  ) -> None:
    self.layout = layout
    commands = len(COMMANDS) if per_command else 0
    batch = rollouts * envs + commands * per_command
    place = torch.zeros(batch, 2, dtype=torch.long, device=device)
    place += (grounds := len(layout.grounds))
    self.bins = bins = Bins(rollouts, envs, commands, per_command, grounds, place)
    self.warmup = warmup
    zeros = partial(torch.zeros, dtype=torch.float64, device=device)
    joints = layout.num_joints
    self.age = zeros(batch, dtype=torch.long)
    """Steps that the episode had before the last sample. # [B]"""
    self._next_age = zeros(batch, dtype=torch.long)
    self._signals = zeros(batch, 2 * joints, dtype=torch.float32)
    self._unbroken = zeros(batch, dtype=torch.long)
    self._prev_action = zeros(batch, joints, dtype=torch.float32)
    self._prev_vel = zeros(batch, joints, dtype=torch.float32)
    self._scale = torch.tensor(layout.action_scale, device=device)  # [J]
    self._names = tuple(dict.fromkeys((*QUANTITIES, *layout.joint_quantities)))
    self.violations = Violations(layout, bins, device)
    self._steps = zeros(bins.count, 3)
    """That count, that are finite, that are not. # [K, 3]"""
    self._values = zeros(bins.count, len(self._names), joints)
    self._tracking, self._standing = zeros(2, bins.count, len(TRACKING))
    dt, segments = layout.control_dt, len(layout.segments)
    self._spectrum = Spectrum(bins.random, 2 * joints, 1.0 / dt, device)
    self._motion = Motion(bins, warmup, dt, segments, device, layout.feet)

  def add(self, sample: Sample) -> None:
    """Take in one control step of every environment."""
    self.accumulate(sample)
    self.follow()

  def accumulate(self, sample: Sample) -> None:
    """The part of `add` that can be recorded as a CUDA graph: fixed buffers only."""
    self.age.copy_(self._next_age)
    if sample.ground is not None:
      self.bins.place.copy_(sample.ground)
    first = (self.age == 0).unsqueeze(1)  # [B, 1]
    prev_action = torch.where(first, sample.action, self._prev_action)
    prev_vel = torch.where(first, sample.joint_vel, self._prev_vel)
    measured = measure(sample, prev_action, prev_vel, self._scale, self.layout)
    values = torch.stack([measured[name] for name in self._names], 1)  # [B, M, J]
    q = self.violations.composition.join(measured)  # [B, C]
    finite = values.isfinite().flatten(1).all(1) & q.isfinite().all(1)  # [B]
    finite = finite & finite_motion(sample)
    counts = finite & (self.age >= self.warmup)  # [B]
    self._steps += self.bins.sum(torch.stack((counts, finite, ~finite), 1))
    self._values += self.bins.sum(values.masked_fill(~counts.view(-1, 1, 1), 0.0))
    self.violations.add(q, counts)
    error = sample.command - sample.base_velocity
    self._tracking += self.bins.sum(self._errors(error, finite))
    self._standing += self.bins.sum(self._errors(sample.command, finite))
    self._motion.add(sample, self.age, finite)
    signals = torch.cat((sample.action * self._scale, sample.joint_vel), dim=1)
    self._signals.copy_(signals.nan_to_num(0.0))
    self._unbroken.masked_fill_(self.age == 0, 0).add_(1).mul_(counts)
    self._prev_action.copy_(sample.action)
    self._prev_vel.copy_(sample.joint_vel)
    self._next_age.copy_((self.age + 1) * ~(sample.fell | sample.timed_out))

  def follow(self) -> None:
    """The part of `add` that depends on the host's step count."""
    n = self.bins.random
    self._spectrum.add(self._signals[:n], self._unbroken[:n])

  def result(self) -> dict[str, Any]:
    """The `metrics` of a metrics file, as plain data."""
    rollouts = self.bins.rollouts
    counted, steps, broken = self._steps.cpu().unbind(1)  # [K]
    values = self._values.cpu() / counted.view(-1, 1, 1)  # [K, M, J]
    motion = self._motion.result()
    frequency, power, windows = self._spectrum.result()

    still = dict.fromkeys(FOLLOWED, torch.zeros(self.bins.count))
    numbers = {
      "smoothness": self._smoothness(values),
      **self.violations.result(counted),
      "tracking": self._tracking_result(self._tracking, motion),
      **self._walking(motion),
    }
    standing = {"standing_still": self._tracking_result(self._standing, still)}
    share = counted[:rollouts].sum() / steps[:rollouts].sum()
    grounds = rollouts + self.bins.commands  # The first bin of these.

    def told(k: int) -> dict[str, Any]:
      return each(numbers, lambda value: number(float(value[k])))

    return {
      **each(numbers | standing, lambda value: summary(value[:rollouts])),
      "commands": {
        name: {
          "command": list(command),
          "velocity": [number(v) for v in motion["velocity"][k].tolist()],
          **told(k),
        }
        for k, (name, command) in enumerate(COMMANDS.items(), rollouts)
        if k < grounds
      },
      "grounds": {
        name: {
          "minutes": number(float(steps[k]) * self.layout.control_dt / 60.0),
          **told(k),
        }
        for k, name in enumerate(self.layout.grounds, grounds)
      },
      "response": self._motion.response(),
      "delta": self.violations.delta_result(counted),
      "jitter": self._jitter(frequency, power),
      "joints": self._joints(values[:rollouts], counted, frequency, power),
      "histograms": self.violations.histograms(),
      "spectra": self._spectra(frequency, power, windows),
      "counted_share": number(float(share)),
      "non_finite_steps": int(broken[:grounds].sum()),
    }

  # Private methods.

  def _errors(self, error: torch.Tensor, finite: torch.Tensor) -> torch.Tensor:
    """The columns of `TRACKING` for a velocity error. # [B, 3] -> [B, 6]"""
    size = error.abs()
    squared = error[:, :2].square().sum(1)
    weight, variance = self.layout.tracking_reward
    reward = weight * torch.exp(-squared / variance)
    reward = reward * self.layout.control_dt * RETURN_STEPS
    x, y, yaw = size.unbind(1)
    both = size[:, :2].mean(1)
    columns = torch.stack((x, y, squared.sqrt(), yaw, both, reward), dim=1)
    return columns.masked_fill(~finite.unsqueeze(1), 0.0)

  # Each of these returns numbers by bin, in nested dicts. # [K] each

  def _smoothness(self, values: torch.Tensor) -> dict[str, Any]:
    return {
      group: {
        name: values[:, self._names.index(name), list(indices)].mean(1)
        for name in self.layout.smoothness
      }
      for group, indices in self.layout.groups.items()
    }

  def _tracking_result(
    self, errors: torch.Tensor, motion: dict[str, torch.Tensor]
  ) -> dict[str, torch.Tensor]:
    means = (errors / self._steps[:, 1:2]).cpu().unbind(1)
    named = dict(zip(TRACKING, means, strict=True))
    return {**named, **{name: motion[name] for name in FOLLOWED}}

  def _walking(self, motion: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Falls, gait, and root mean squares of angular velocity by axis and of the norm."""
    rms = motion["angular_velocity"]  # [K, S, 3]
    return {
      "falls_per_minute": motion["falls_per_minute"],
      "gait": {name: motion[name] for name in GAIT},
      "angular_velocity": {
        name: {
          **{axis: rms[:, s, i] for i, axis in enumerate("xyz")},
          "norm": rms[:, s].norm(dim=1),
        }
        for s, name in enumerate(self.layout.segments)
      },
      "head_jerk": motion["head_jerk"],
      "drift": motion["drift"],
    }

  # What random commands alone tell.

  def _jitter(self, frequency: torch.Tensor, power: torch.Tensor) -> dict[str, Any]:
    return {
      group: number(jitter(frequency, power[:, list(indices)].sum(1)))
      for group, indices in self.layout.groups.items()
    }

  def _joints(
    self,
    values: torch.Tensor,
    counted: torch.Tensor,
    frequency: torch.Tensor,
    power: torch.Tensor,
  ) -> dict[str, Any]:
    mean = values.mean(0)  # [M, J]
    shares = self.violations.joint_shares(counted)
    joints = {}
    for j, joint in enumerate(self.layout.joint_names):
      joints[joint] = {
        **{name: number(float(mean[m, j])) for m, name in enumerate(self._names)},
        "violations": {name: number(share[j]) for name, share in shares.items()},
        "jitter": number(jitter(frequency, power[:, j])),
      }
    return joints

  def _spectra(
    self, frequency: torch.Tensor, power: torch.Tensor, windows: int
  ) -> dict[str, Any]:
    joints = self.layout.num_joints
    signals = {"action": power[:, :joints], "joint_vel": power[:, joints:]}
    groups = {
      group: {name: p[:, list(ids)].mean(1).tolist() for name, p in signals.items()}
      for group, ids in self.layout.groups.items()
    }
    return {"frequency_hz": frequency.tolist(), "windows": windows, "groups": groups}
