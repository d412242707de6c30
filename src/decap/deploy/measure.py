"""The paper's robot measures from the trace of a walk, in numpy.

The joint quantities are those of `decap.constraints.quantities`, which need torch; a test
compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from decap.deploy.bundle import Bundle
from decap.deploy.sim2sim import Trace

JOINT_METRICS = ("action_rate", "joint_acc", "joint_vel", "energy")
"""Columns of the paper's Table III, in rad/s, rad/s², rad/s and W."""

MOVING_M_S = 0.1
"""Commands below this ask for standing."""


def joint_quantities(trace: Trace) -> dict[str, np.ndarray]:
  """Each of `JOINT_METRICS` from the second control step on. # [T − 1, J]

  Accelerations are differences over the control step: all that a robot can measure.
  """
  action, dq = trace.arrays["action"], trace.arrays["dq"]
  torque, dt = trace.arrays["torque"], trace.control_dt_s
  return {
    "action_rate": np.abs(np.diff(action, axis=0) * trace.action_scale) / dt,
    "joint_acc": np.abs(np.diff(dq, axis=0)) / dt,
    "joint_vel": np.abs(dq[1:]),
    "energy": np.abs(torque * dq)[1:],
  }


def body_groups(bundle: Bundle) -> dict[str, list[str]]:
  """Joints of each body group that the bundle names."""
  groups = bundle.info["constraints"].get("groups") or {}
  return {name: list(group["joint_names"]) for name, group in groups.items()}


def joint_metrics(
  trace: Trace, groups: Mapping[str, list[str]]
) -> dict[str, dict[str, float]]:
  """Group → metric → mean over its joints and the walk; NaN for no walk at all."""
  quantities = joint_quantities(trace)
  found: dict[str, dict[str, float]] = {}
  for group, names in groups.items():
    columns = [trace.joint_names.index(name) for name in names]
    found[group] = {
      name: float(values[:, columns].mean()) if len(values) else math.nan
      for name, values in quantities.items()
    }
  return found


def gyro_rms(trace: Trace) -> dict[str, float]:
  """Root mean square of each gyro's angular velocity, rad/s."""
  return {
    site: float(np.sqrt((values**2).sum(1).mean())) if len(values) else math.nan
    for site, (_, values) in trace.gyros.items()
  }


def speed_over_time(trace: Trace, site: str, axes: int = 3) -> np.ndarray:
  """RMS of the norm of a gyro's first axes in each control step. # [T]

  The paper shows the wrist's ‖(ω_x, ω_y)‖ under payload: two axes.
  """
  times, values = trace.gyros[site]
  size = (values[:, :axes] ** 2).sum(1)
  index = np.clip((times / trace.control_dt_s).astype(int), 0, None)
  steps = len(trace.arrays["time_s"])
  inside = index < steps
  total = np.bincount(index[inside], size[inside], minlength=steps)
  count = np.bincount(index[inside], minlength=steps)
  return np.sqrt(total / np.maximum(count, 1))


def followed(trace: Trace) -> float:
  """Share of the commanded velocity that was carried out; NaN without commands.

  A robot that stands is calm: no table of smoothness without this.
  """
  command, velocity = trace.arrays["command"][:, :2], trace.arrays["velocity"][:, :2]
  squared = (command**2).sum(1)
  moving = squared >= MOVING_M_S**2
  if not moving.any():
    return math.nan
  share = (velocity * command).sum(1)[moving] / squared[moving]
  return float(share.mean())


def measure(trace: Trace, bundle: Bundle) -> dict[str, Any]:
  """Everything that tables need of one walk, as plain data."""
  error = trace.arrays["velocity"][:, :2] - trace.arrays["command"][:, :2]
  return {
    "seconds": round(trace.seconds, 3),
    "distance_m": trace.distance(),
    "followed": _number(followed(trace)),
    "velocity_error": float(np.linalg.norm(error, axis=1).mean())
    if len(error)
    else None,
    "fell": trace.fell,
    "intervened": trace.intervened,
    "stop_reason": trace.stop_reason,
    "joints": {
      group: {name: _number(value) for name, value in values.items()}
      for group, values in joint_metrics(trace, body_groups(bundle)).items()
    },
    "gyro_rms": {site: _number(value) for site, value in gyro_rms(trace).items()},
  }


def _number(value: float) -> float | None:
  """JSON has no NaN."""
  return value if math.isfinite(value) else None
