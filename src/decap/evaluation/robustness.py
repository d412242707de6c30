"""Where a policy breaks: one property of robot or world changed at a time.

A walk counts as survived if the robot neither falls nor is stopped. The margin of a
property is how far it can go from its nominal value with every repeat survived.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, NamedTuple

from decap.deploy.bundle import Bundle
from decap.deploy.measure import followed
from decap.deploy.parallel import in_order
from decap.deploy.sim2sim import straight, walk
from decap.deploy.simulation import SimCfg
from decap.evaluation.robot_tables import Progress, describe, markdown

FORMAT = "decap-sim2sim-sweep"
SUFFIX = "-sweep"
"""Of its files' names."""
WALK = straight(0.5, 8.0)


class Axis(NamedTuple):
  """A property: what figures call it, its nominal value, and all that are tried."""

  label: str
  nominal: float
  tried: tuple[float, ...]


AXES = {
  "delay_s": Axis("actuation delay, s", 0.005, (0.0, 0.005, 0.01, 0.015, 0.02)),
  "payload_kg": Axis("payload, kg", 0.0, (0.0, 1.2, 2.4, 4.0, 6.0)),
  "ground_friction": Axis("ground friction", 0.6, (0.15, 0.3, 0.45, 0.6, 0.9)),
  "motor_strength": Axis("motor strength", 1.0, (0.4, 0.55, 0.7, 0.85, 1.0, 1.2)),
  "noise": Axis("sensor noise", 1.0, (0.0, 1.0, 2.0, 4.0, 8.0)),
}
"""By the name of the property in `SimCfg`."""


def sweep_policy(
  bundle: Bundle, repeats: int, jobs: int, progress: Progress
) -> dict[str, Any]:
  """Walk on flat ground under every value; returns what its file holds."""
  todo = [(name, value, repeats) for name, axis in AXES.items() for value in axis.tried]
  found: dict[str, list[dict[str, Any]]] = {name: [] for name in AXES}
  rows = in_order(_try, bundle, todo, jobs)
  for (name, value, _), row in zip(todo, rows, strict=True):
    found[name].append(row)
    what = f"{bundle.name}: {name} {value:g}"
    progress(f"{what}: {row['survived']} of {repeats} walks survived")
  return {
    "format": FORMAT,
    "policy": describe(bundle),
    "repeats": repeats,
    "axes": found,
    "margins": {name: margin(name, rows, repeats) for name, rows in found.items()},
  }


def _try(bundle: Bundle, axis: str, value: float, repeats: int) -> dict[str, Any]:
  """All repeats under one value."""
  nominal = {name: axis.nominal for name, axis in AXES.items()}
  cfg = replace(SimCfg(), **{**nominal, axis: value})
  traces = [walk(bundle, replace(cfg, seed=seed), WALK) for seed in range(repeats)]
  ended = [trace for trace in traces if trace.fell or trace.stop_reason]
  shares = [share for share in map(followed, traces) if math.isfinite(share)]
  return {
    "value": value,
    "survived": repeats - len(ended),
    "followed": sum(shares) / len(shares) if shares else 0.0,
    "reasons": sorted({trace.stop_reason or "fell" for trace in ended}),
  }


def margin(
  axis: str, rows: Sequence[dict[str, Any]], repeats: int
) -> list[float] | None:
  """Lowest and highest value around the nominal one with every walk survived.

  None where the nominal value itself fails.
  """
  survived = {row["value"]: row["survived"] == repeats for row in rows}
  values = sorted(survived)
  nominal = values.index(AXES[axis].nominal)
  down = list(takewhile(survived.get, values[nominal::-1]))
  up = list(takewhile(survived.get, values[nominal:]))
  return [down[-1], up[-1]] if up else None


def margin_table(sweeps: Sequence[dict[str, Any]]) -> list[str]:
  """Markdown: one row per policy; a bound at the end of what was tried has a mark."""
  axes = list(sweeps[0]["axes"])
  rows = []
  for sweep in sweeps:
    cells = [_cell(axis, sweep["margins"].get(axis)) for axis in axes]
    rows.append([sweep["policy"]["name"], *cells])
  lines = markdown(["policy", *(AXES[axis].label for axis in axes)], rows)
  return [*lines, "", "≤ and ≥: the end of what was tried; it may go further."]


def _cell(axis: str, bounds: list[float] | None) -> str:
  if bounds is None:
    return "none"
  tried = AXES[axis].tried
  low = f"{'≤ ' if bounds[0] == min(tried) else ''}{bounds[0]:g}"
  high = f"{'≥ ' if bounds[1] == max(tried) else ''}{bounds[1]:g}"
  return f"{low} … {high}"
