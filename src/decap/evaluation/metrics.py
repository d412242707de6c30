"""Smoothness, violations and tracking, accumulated on the device while a policy runs.

`Metrics.add` waits for nothing and keeps no trajectory; `Metrics.result` copies sums to
the host once. Quantities and termination probability are the functions of
`decap.constraints`, the ones that training uses. docs/evaluation.md documents the
result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from decap.constraints import (
  ViolationScale,
  action_rate,
  decap_probability,
  energy,
  joint_acceleration,
  joint_torque,
  joint_velocity,
)
from decap.constraints.termination import TerminationCfg
from decap.evaluation.layout import QUANTITIES, SMOOTHNESS, Layout
from decap.evaluation.spectrum import Spectrum, jitter
from decap.evaluation.trajectory import Sample, Trajectory

MEASURED = (*QUANTITIES, "joint_acc_20ms", "energy")
"""Everything measured per joint, in the order of the [.., M, ..] axis."""

TRACKING = ("error_x", "error_y", "error_xy", "error_yaw", "mae_xy", "return_xy")

MOVING = 0.1
"""Commanded speed in m/s from which a robot is expected to move."""

RETURN_STEPS = 1000
"""Returns are scaled to this number of steps, an episode of 20 s."""

HISTOGRAM_BINS = 80
HISTOGRAM_MAX = 2.0
"""Histograms of q/ε have equal bins from 0 to this; the last also holds all above."""


def measure(
  sample: Sample,
  prev_action: torch.Tensor,
  prev_vel: torch.Tensor,
  scale: torch.Tensor,
  layout: Layout,
) -> torch.Tensor:
  """Everything in `MEASURED`, from two consecutive steps. # [..., M, J]

  Args:
    sample: This step. # [..., J]
    prev_action: Raw actions of the step before. # [..., J]
    prev_vel: Joint velocities after the step before. # [..., J]
    scale: Action scale. # [J]
    layout: Time steps.
  """
  vel, torque = sample.joint_vel, sample.joint_torque
  values = (
    action_rate(sample.action, prev_action, scale, layout.control_dt),
    joint_acceleration(vel, sample.joint_vel_before, layout.physics_dt),
    joint_torque(torque),
    joint_velocity(vel),
    joint_acceleration(vel, prev_vel, layout.control_dt),
    energy(torque, vel),
  )
  return torch.stack(values, dim=-2)


def measure_trajectory(trajectory: Trajectory) -> dict[str, np.ndarray]:
  """Everything in `MEASURED` at each step of a trajectory. # [T, B, J] each"""
  sample = trajectory.whole()
  first = torch.from_numpy(trajectory.age == 0).unsqueeze(-1)  # [T, B, 1]
  prev_action = torch.where(first, sample.action, sample.action.roll(1, 0))
  prev_vel = torch.where(first, sample.joint_vel, sample.joint_vel.roll(1, 0))
  scale = torch.tensor(trajectory.layout.action_scale)
  values = measure(sample, prev_action, prev_vel, scale, trajectory.layout).numpy()
  return {name: values[:, :, m] for m, name in enumerate(MEASURED)}


class Metrics:
  """Accumulates samples of `rollouts` × `envs` environments, rollout by rollout."""

  def __init__(
    self, layout: Layout, rollouts: int, envs: int, warmup: int, device: str = "cpu"
  ) -> None:
    self.layout = layout
    self.rollouts = rollouts
    self.warmup = warmup
    self._device = device
    batch, joints, groups = rollouts * envs, layout.num_joints, len(layout.groups)
    quantities = len(QUANTITIES)
    self.age = self._zeros(batch, dtype=torch.long)
    """Steps that the episode had before the last sample. # [B]"""
    self.delta = self._zeros(batch, dtype=torch.float32)
    """δ̄ of the last sample. # [B]"""
    self._next_age = self._zeros(batch, dtype=torch.long)
    self._signals = self._zeros(batch, 2 * joints, dtype=torch.float32)
    self._unbroken = self._zeros(batch, dtype=torch.long)
    self._prev_action = self._zeros(batch, joints, dtype=torch.float32)
    self._prev_vel = self._zeros(batch, joints, dtype=torch.float32)
    self._constants(layout)
    self._counted = self._zeros(rollouts)
    self._steps = self._zeros(rollouts)
    self._broken = self._zeros(rollouts)
    self._values = self._zeros(rollouts, len(MEASURED), joints)
    self._above = self._zeros(rollouts, quantities, joints)
    self._any_above = self._zeros(rollouts, quantities, groups)
    self._tracking = self._zeros(rollouts, len(TRACKING))
    self._standing = self._zeros(rollouts, len(TRACKING))
    self._followed = self._zeros(rollouts)
    self._moving = self._zeros(rollouts)
    self._falls = self._zeros(rollouts)
    self._delta = self._zeros(rollouts)
    self._share = self._zeros(quantities, groups)
    self._histogram = self._zeros(
      quantities * groups * HISTOGRAM_BINS, dtype=torch.long
    )
    self._spectrum = Spectrum(batch, 2 * joints, 1.0 / layout.control_dt, device)

  # Methods.

  def add(self, sample: Sample) -> None:
    """Take in one control step of every environment."""
    self.accumulate(sample)
    self.follow()

  def accumulate(self, sample: Sample) -> None:
    """The part of `add` that can be recorded as a CUDA graph: fixed buffers only."""
    self.age.copy_(self._next_age)
    first = (self.age == 0).unsqueeze(1)  # [B, 1]
    prev_action = torch.where(first, sample.action, self._prev_action)
    prev_vel = torch.where(first, sample.joint_vel, self._prev_vel)
    values = measure(sample, prev_action, prev_vel, self._scale, self.layout)
    finite = values.isfinite().flatten(1).all(1)  # [B]
    counts = finite & (self.age >= self.warmup)  # [B]
    self._add_values(values, finite, counts)
    self._add_delta(values[:, : len(QUANTITIES)], counts)
    self._add_tracking(sample, finite)
    self._falls += self._per_rollout(sample.fell)
    signals = torch.cat((sample.action * self._scale, sample.joint_vel), dim=1)
    self._signals.copy_(signals.nan_to_num(0.0))
    self._unbroken.copy_((self.age + 1 - self.warmup) * finite)
    self._prev_action.copy_(sample.action)
    self._prev_vel.copy_(sample.joint_vel)
    self._next_age.copy_((self.age + 1) * ~(sample.fell | sample.timed_out))

  def follow(self) -> None:
    """The part of `add` that depends on the host's step count."""
    self._spectrum.add(self._signals, self._unbroken)

  def result(self) -> dict[str, Any]:
    """The `metrics` of a metrics file, as plain data."""
    counted, steps = self._counted.cpu(), self._steps.cpu()  # [R]
    values = self._values.cpu() / counted.view(-1, 1, 1)  # [R, M, J]
    above = self._above.cpu() / counted.view(-1, 1, 1)  # [R, Q, J]
    any_above = self._any_above.cpu() / counted.view(-1, 1, 1)  # [R, Q, G]
    minutes = steps * self.layout.control_dt / 60.0
    frequency, power, windows = self._spectrum.result()
    return {
      "smoothness": self._smoothness(values),
      "violations": self._violations(above, any_above),
      "tracking": self._tracking_result(self._tracking, self._followed),
      "standing_still": self._tracking_result(self._standing, 0.0 * self._followed),
      "falls_per_minute": summary(self._falls.cpu() / minutes),
      "delta": self._delta_result(counted),
      "jitter": self._jitter(frequency, power),
      "joints": self._joints(values, above, frequency, power),
      "histograms": self._histograms(),
      "spectra": self._spectra(frequency, power, windows),
      "counted_share": _number(float(counted.sum() / steps.sum())),
      "non_finite_steps": int(self._broken.sum().item()),
    }

  # Private methods: accumulation.

  def _constants(self, layout: Layout) -> None:
    device = self._device
    self._scale = torch.tensor(layout.action_scale, device=device)  # [J]
    self._limit = torch.tensor(layout.limit_rows(), device=device)  # [Q, J]
    self._p_max = torch.tensor(layout.per_joint(layout.p_max), device=device)  # [J]
    self._indices = layout.group_indices(device)
    member = torch.zeros(layout.num_joints, len(layout.groups), device=device)
    for g, indices in enumerate(self._indices):
      member[indices, g] = 1.0
    self._member = member  # [J, G]
    quantity = torch.arange(len(QUANTITIES), device=device).unsqueeze(1)
    group = member.argmax(1).unsqueeze(0)
    row = quantity * len(layout.groups) + group
    self._first_bin = row * HISTOGRAM_BINS  # [Q, J]
    cfg = TerminationCfg()
    self._termination = cfg
    flat = self._limit.flatten()  # [QJ]
    self._violation_scale = ViolationScale(
      flat.shape, floor=cfg.floor(flat), decay=cfg.scale_decay, device=device
    )

  def _zeros(self, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.zeros(*shape, dtype=dtype, device=self._device)

  def _per_rollout(self, values: torch.Tensor) -> torch.Tensor:
    """Sums over the environments of each rollout. # [B, …] -> [R, …]"""
    return values.view(self.rollouts, -1, *values.shape[1:]).sum(1, dtype=torch.float64)

  def _add_values(
    self, values: torch.Tensor, finite: torch.Tensor, counts: torch.Tensor
  ) -> None:
    mask = counts.view(-1, 1, 1)
    limited = values[:, : len(QUANTITIES)]  # [B, Q, J]
    above = ((limited > self._limit) & mask).float()
    self._counted += self._per_rollout(counts)
    self._steps += self._per_rollout(finite)
    self._broken += self._per_rollout(~finite)
    self._values += self._per_rollout(values.masked_fill(~mask, 0.0))
    self._above += self._per_rollout(above)
    self._any_above += self._per_rollout((above @ self._member) > 0)
    bins = (limited / self._limit) * (HISTOGRAM_BINS / HISTOGRAM_MAX)
    bins = bins.nan_to_num(0.0).clamp(0, HISTOGRAM_BINS - 1).long() + self._first_bin
    ones = mask.expand_as(bins).long()
    self._histogram.scatter_add_(0, bins.flatten(), ones.flatten())

  def _add_delta(self, limited: torch.Tensor, counts: torch.Tensor) -> None:
    """δ̄ of DeCap (Eq. 4) under the evaluation's limits, whatever trained the policy."""
    cfg = self._termination
    flat, limit = limited.flatten(1), self._limit.flatten()  # [B, QJ], [QJ]
    self._violation_scale.update(flat - limit)
    delta = decap_probability(
      limited,
      self._limit,
      self._p_max,
      self._violation_scale.value.view_as(self._limit),
      rho=cfg.rho,
      kappa=cfg.kappa,
    )
    rows = torch.stack([delta[:, :, i].amax(2) for i in self._indices], 2)  # [B, Q, G]
    self.delta.copy_(rows.flatten(1).amax(1))
    counted = self.delta * counts
    self._delta += self._per_rollout(counted)
    decides = (rows == self.delta.view(-1, 1, 1)).float()
    decides = decides / decides.sum((1, 2), keepdim=True)
    self._share += (decides * counted.view(-1, 1, 1)).sum(0, dtype=torch.float64)

  def _add_tracking(self, sample: Sample, finite: torch.Tensor) -> None:
    error = sample.command - sample.base_velocity
    self._tracking += self._per_rollout(self._errors(error, finite))
    self._standing += self._per_rollout(self._errors(sample.command, finite))
    self._add_followed(sample.command[:, :2], sample.base_velocity[:, :2], finite)

  def _add_followed(
    self, command: torch.Tensor, velocity: torch.Tensor, finite: torch.Tensor
  ) -> None:
    share, moving = _followed(command, velocity)
    moving = moving & finite
    self._followed += self._per_rollout(share.masked_fill(~moving, 0.0))
    self._moving += self._per_rollout(moving)

  def _errors(self, error: torch.Tensor, finite: torch.Tensor) -> torch.Tensor:
    """The columns of `TRACKING` for a velocity error. # [B, 3] -> [B, 6]"""
    size = error.abs()
    squared = error[:, :2].square().sum(1)
    reward = 1.5 * torch.exp(-squared / 0.25) * self.layout.control_dt * RETURN_STEPS
    columns = torch.stack(
      (
        size[:, 0],
        size[:, 1],
        squared.sqrt(),
        size[:, 2],
        size[:, :2].mean(1),
        reward,
      ),
      dim=1,
    )
    return columns.masked_fill(~finite.unsqueeze(1), 0.0)

  # Private methods: results.

  def _smoothness(self, values: torch.Tensor) -> dict[str, Any]:
    return {
      group: {
        name: summary(values[:, MEASURED.index(name), list(indices)].mean(1))
        for name in SMOOTHNESS
      }
      for group, indices in self.layout.groups.items()
    }

  def _violations(self, above: torch.Tensor, any_above: torch.Tensor) -> dict[str, Any]:
    return {
      group: {
        name: {
          "any_joint": summary(any_above[:, q, g]),
          "joint_steps": summary(above[:, q, list(indices)].mean(1)),
        }
        for q, name in enumerate(QUANTITIES)
      }
      for g, (group, indices) in enumerate(self.layout.groups.items())
    }

  def _tracking_result(
    self, errors: torch.Tensor, followed: torch.Tensor
  ) -> dict[str, Any]:
    means = (errors / self._steps.unsqueeze(1)).cpu()  # [R, 6]
    named = {name: summary(means[:, i]) for i, name in enumerate(TRACKING)}
    return {**named, "followed": summary((followed / self._moving).cpu())}

  def _delta_result(self, counted: torch.Tensor) -> dict[str, Any]:
    share = self._share.cpu()
    total = float(share.sum())
    return {
      "mean": summary(self._delta.cpu() / counted),
      "share": {
        f"{name}/{group}": _number(float(share[q, g]) / total if total else math.nan)
        for q, name in enumerate(QUANTITIES)
        for g, group in enumerate(self.layout.groups)
      },
    }

  def _jitter(self, frequency: torch.Tensor, power: torch.Tensor) -> dict[str, Any]:
    return {
      group: _number(jitter(frequency, power[:, list(indices)].sum(1)))
      for group, indices in self.layout.groups.items()
    }

  def _joints(
    self,
    values: torch.Tensor,
    above: torch.Tensor,
    frequency: torch.Tensor,
    power: torch.Tensor,
  ) -> dict[str, Any]:
    mean, share = values.mean(0), above.mean(0)  # [M, J], [Q, J]
    joints = {}
    for j, joint in enumerate(self.layout.joint_names):
      joints[joint] = {
        **{name: _number(float(mean[m, j])) for m, name in enumerate(MEASURED)},
        "violations": {
          name: _number(float(share[q, j])) for q, name in enumerate(QUANTITIES)
        },
        "jitter": _number(jitter(frequency, power[:, j])),
      }
    return joints

  def _histograms(self) -> dict[str, Any]:
    shape = (len(QUANTITIES), len(self.layout.groups), HISTOGRAM_BINS)
    counts = self._histogram.view(shape).cpu().tolist()
    return {
      "largest": HISTOGRAM_MAX,
      "counts": {
        group: {name: counts[q][g] for q, name in enumerate(QUANTITIES)}
        for g, group in enumerate(self.layout.groups)
      },
    }

  def _spectra(
    self, frequency: torch.Tensor, power: torch.Tensor, windows: int
  ) -> dict[str, Any]:
    joints = self.layout.num_joints
    groups = {}
    for group, indices in self.layout.groups.items():
      chosen = torch.tensor(indices)
      groups[group] = {
        "action": power[:, chosen].mean(1).tolist(),
        "joint_vel": power[:, chosen + joints].mean(1).tolist(),
      }
    return {"frequency_hz": frequency.tolist(), "windows": windows, "groups": groups}


def metrics_of_trajectory(trajectory: Trajectory) -> dict[str, Any]:
  """The same numbers from a stored trajectory of a whole batch.

  A trajectory of some of the environments gives their numbers.
  """
  rollouts = len(set(trajectory.rollout)) or 1
  metrics = Metrics(
    trajectory.layout,
    rollouts,
    trajectory.num_envs // rollouts,
    trajectory.protocol.get("warmup", 0),
  )
  for sample in trajectory.samples():
    metrics.add(sample)
  return metrics.result()


def summary(values: torch.Tensor | Sequence[float]) -> dict[str, Any]:
  """Mean, standard deviation (n - 1; 0 for one) and the values themselves. # [R]"""
  values = torch.as_tensor(values, dtype=torch.float64)
  std = values.std() if len(values) > 1 else torch.zeros(())
  return {
    "mean": _number(float(values.mean())),
    "std": _number(float(std)),
    "rollouts": [_number(v) for v in values.tolist()],
  }


def followed(trajectory: Trajectory) -> float:
  """Mean share of the commanded velocity that is carried out; NaN without commands."""
  sample = trajectory.whole()
  share, moving = _followed(sample.command[..., :2], sample.base_velocity[..., :2])
  return float(share[moving].mean())


def _followed(
  command: torch.Tensor, velocity: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
  """Share of the command that is done, 0 for standing still; whether one is given.

  Args:
    command: Commanded velocity in the plane. # [..., 2]
    velocity: Of the robot. # [..., 2]
  """
  squared = command.square().sum(-1)
  share = (velocity * command).sum(-1) / squared.clamp(min=MOVING**2)
  return share, squared >= MOVING**2


def _number(value: float) -> float | None:
  """JSON has no NaN: a number that does not exist is null."""
  return value if math.isfinite(value) else None
