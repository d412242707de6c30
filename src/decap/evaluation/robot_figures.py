"""Figures of walks: angular velocity over time, and where policies break."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from decap.evaluation.figure_style import panels, style
from decap.evaluation.robot_tables import PAYLOAD_KG, TERRAINS, Results, chosen
from decap.evaluation.robustness import AXES

SMOOTH_S = 0.2
"""Curves over time are root mean squares over this window."""


def over_time(results: Sequence[Results], curve: str, payload_kg: float) -> Figure:
  """Angular velocity ("torso" or "wrist_xy") on each terrain, one line per policy."""
  titles = {"torso": "torso |ω|, rad/s", "wrist_xy": "wrist |(ω_x, ω_y)|, rad/s"}
  count = len(TERRAINS)
  with panels(7.0, 1.3 * count + 0.6, count, sharey=True) as (figure, axes):
    axes = axes[:, 0]
    for axis, terrain in zip(axes, TERRAINS, strict=True):
      for index, result in enumerate(results):
        walks = chosen(result, "terrain", terrain, payload_kg)
        if walks:
          _curve(axis, walks[0], curve, result["policy"]["name"], index)
      axis.set_title(terrain, loc="left")
    load = f" with {payload_kg:g} kg" if payload_kg else ""
    axes[count // 2].set_ylabel(titles[curve] + load)
    axes[-1].set_xlabel("time, s")
    if axes[0].get_lines():
      axes[0].legend(loc="upper right", ncols=3)
    return figure


def survival(sweeps: Sequence[dict[str, Any]]) -> Figure:
  """Share of walks survived and of the command followed, over each property."""
  names = list(sweeps[0]["axes"])
  size = (2.2 * len(names), 3.6, 2, len(names))
  with panels(*size, sharey="row", sharex="col") as (figure, axes):
    for (above, below), name in zip(axes.T, names, strict=True):
      for index, sweep in enumerate(sweeps):
        rows, label = sweep["axes"].get(name, []), sweep["policy"]["name"]
        looks = {**style(index), "marker": "o", "ms": 3, "label": label}
        values = [row["value"] for row in rows]
        above.plot(values, [r["survived"] / sweep["repeats"] for r in rows], **looks)
        below.plot(values, [r["followed"] for r in rows], **looks)
      for axis in (above, below):
        axis.axvline(AXES[name].nominal, color="#bbbbbb", linewidth=0.8, zorder=0)
      below.set_xlabel(AXES[name].label)
    axes[0, 0].set_ylabel("walks survived")
    axes[1, 0].set_ylabel("command followed")
    axes[0, 0].legend(loc="lower left")
    return figure


def figures(results: Sequence[Results]) -> dict[str, Figure]:
  """All figures of the tables by file name."""
  return {
    "torso": over_time(results, "torso", 0.0),
    "wrist": over_time(results, "wrist_xy", 0.0),
    "payload": over_time(results, "wrist_xy", PAYLOAD_KG),
  }


def _curve(axis, walk: dict[str, Any], curve: str, label: str, index: int) -> None:
  values = np.array(walk["over_time"][curve])
  if not len(values):  # It fell before its walk began.
    return
  dt = walk["seconds"] / len(values)
  width = min(len(values), max(1, round(SMOOTH_S / dt)))
  smooth = np.sqrt(np.convolve(values**2, np.ones(width) / width, mode="same"))
  looks = style(index)
  axis.plot(np.arange(len(values)) * dt, smooth, lw=1.0, label=label, **looks)
  if walk["fell"]:
    axis.plot(len(values) * dt, smooth[-1], "x", color=looks["color"])
