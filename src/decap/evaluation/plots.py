"""Figures from metrics files, trajectories and training logs.

Each function takes what it plots and returns a matplotlib Figure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from decap.errors import UserError, check_known
from decap.evaluation.figure_style import panels, style
from decap.evaluation.layout import title
from decap.evaluation.results import Result
from decap.evaluation.spectrum import JITTER_HZ
from decap.evaluation.trajectory import Trajectory

Trajectories = Mapping[str, Trajectory]
Results = Mapping[str, Result]

LIMIT: Any = {"color": "#B00020", "ls": (0, (5, 3)), "lw": 1.2, "label": "limit"}
"""How the line of a limit looks."""


def velocity_tracking(trajectories: Trajectories) -> Figure:
  """Forward and lateral velocity against the command; band: 10 to 90 % of environments.

  Meant for the switching protocol with pushes, where every environment has the same
  command at the same time; otherwise it shows the first environment. Random commands are
  drawn anew after a fall: where policies were told different things, each has its own
  command, a thin line in its colour.
  """
  first, *others = trajectories.values()
  shared = all(
    np.array_equal(other.command[:, 0], first.command[:, 0]) for other in others
  )
  with panels(8, 4.4, 2) as (fig, axes):
    for axis, name in enumerate(("forward", "lateral")):
      ax = axes[axis, 0]
      if shared:
        command = first.command[:, 0, axis]
        ax.plot(first.time_s, command, color="black", lw=1.2, label="command")
      for i, (label, trajectory) in enumerate(trajectories.items()):
        _tracking_line(ax, trajectory, axis, i, label)
        if not shared:
          command = trajectory.command[:, 0, axis]
          looks = {"color": style(i)["color"], "label": f"{label}: command"}
          ax.plot(trajectory.time_s, command, lw=0.7, **looks)
      _mark_pushes(ax, first)
      ax.set_ylabel(f"{name} velocity (m/s)")
    axes[-1, 0].set_xlabel("time (s)")
    return fig


def response(results: Results) -> Figure:
  """Achieved against commanded velocity: forward, sideways, turning.

  Lines are means over random commands, dots robots that are told nothing else; whoever
  follows lies on the diagonal, whoever stands on zero.
  """
  units = {"vx": "forward (m/s)", "vy": "sideways (m/s)", "yaw_rate": "turning (rad/s)"}
  with panels(8, 3.1, 1, 3, sharex=False) as (fig, (axes,)):
    for axis, (ax, (key, name)) in enumerate(zip(axes, units.items(), strict=True)):
      largest = 0.1
      for i, (label, result) in enumerate(results.items()):
        looks = style(i)
        curve = result.metrics.get("response", {}).get(key)
        if curve and curve["command"]:
          ax.plot(curve["command"], curve["mean"], label=label, **looks)
          largest = max(largest, *map(abs, curve["command"]))
        for which, told in result.metrics.get("commands", {}).items():
          command = told["command"]
          achieved = np.array(told["velocity"], float)  # NaN where there is none.
          # Who is told to stop walks and stands in turns.
          alone = not any(command[:axis] + command[axis + 1 :])
          if command[axis] and alone and which != "stop":
            ax.plot(command[axis], achieved[axis], "o", ms=4, color=looks["color"])
      ideal = (-largest, largest)
      ax.plot(ideal, ideal, color="#888888", lw=0.9, zorder=0)
      ax.set_xlabel(f"commanded {name}")
      ax.set_ylabel("achieved" if axis == 0 else "")
    return fig


def traces(
  trajectories: Trajectories, quantity: str = "joint_vel", seconds: float = 10.0
) -> Figure:
  """Largest joint of each group over time in one environment, limits dashed.

  A scalar quantity has one panel.
  """
  layout = next(iter(trajectories.values())).layout
  check_known("quantity", quantity, layout.limits)
  limits = layout.limits[quantity]
  groups: dict[str, tuple[int, ...]] = layout.groups
  if quantity in layout.scalars:
    groups, limits = {"": (0,)}, {"": limits}
  with panels(8, 2.1 * len(groups), len(groups)) as (fig, axes):
    axes = axes[:, 0]
    for i, (label, trajectory) in enumerate(trajectories.items()):
      values = trajectory.quantity(quantity)[:, 0]  # [T, J] or [T]
      values = values.reshape(len(values), -1)
      start = min(int(trajectory.protocol.get("warmup", 0)), len(values) - 1)
      stop = start + round(seconds / trajectory.layout.control_dt)
      time = trajectory.time_s[start:stop]
      for ax, indices in zip(axes, groups.values(), strict=True):
        peak = values[start:stop, list(indices)].max(1)
        # Solid: dashes cannot be read in a line that swings at every step.
        ax.plot(time, peak, label=label, lw=1.0, color=style(i)["color"])
    unit = f"\n({layout.unit(quantity)})" if layout.unit(quantity) else ""
    for ax, group in zip(axes, groups, strict=True):
      ax.axhline(limits[group], **LIMIT)
      name = f"max |{title(quantity).lower()}|" if group else title(quantity)
      ax.set_title(f"{group} body" if group else "", loc="left")
      ax.set_ylabel(f"{name}{unit}")
      ax.set_ylim(bottom=0)
    axes[-1].set_xlabel("time (s)")
    return fig


def distributions(results: Results) -> Figure:
  """Share of joint-steps over q/ε for each quantity and group; the limit is at 1.

  A row of panels per group, and a last one for scalar quantities.
  """
  layout = next(iter(results.values())).layout
  sections: dict[str, tuple[str, ...]] = dict.fromkeys(
    layout.groups, layout.joint_quantities
  )
  if layout.scalars:
    sections[""] = layout.scalars
  columns = max(map(len, sections.values()))
  with panels(9, 2.3 * len(sections), len(sections), columns) as (fig, axes):
    for i, (row, group) in enumerate(zip(axes, sections, strict=True)):
      unit = "joint-steps" if group else "steps"
      row[0].set_ylabel(f"{group or 'whole'} body\nshare of {unit}")
      for ax, quantity in zip_longest(row, sections[group]):
        if quantity is None:
          ax.set_visible(False)
          continue
        _histogram(ax, results, group, quantity)
        if i == 0 or not group:
          ax.set_title(title(quantity))
        if i == len(sections) - 1:
          ax.set_xlabel("value / limit")
    return fig


def joint_violations(results: Results, quantity: str = "joint_vel") -> Figure:
  """Share of steps at which each joint is above its limit, by joint and policy."""
  layout = next(iter(results.values())).layout
  check_known("quantity", quantity, layout.joint_quantities)
  order = [j for indices in layout.groups.values() for j in indices]
  names = [layout.joint_names[j] for j in order]
  with panels(8, 1.2 + 0.2 * len(names), 1) as (fig, ((ax,),)):
    height = 0.8 / len(results)
    for i, (label, result) in enumerate(results.items()):
      joints = result.metrics["joints"]
      told = [joints[name]["violations"][quantity] for name in names]
      share = 100 * np.array(told, float)  # NaN where no step counted.
      offset = (i - (len(results) - 1) / 2) * height
      places, colour = np.arange(len(names)) + offset, style(i)["color"]
      ax.barh(places, share, height, label=label, color=colour)
    ax.set_yticks(range(len(names)), [name.removesuffix("_joint") for name in names])
    ax.tick_params(axis="y", labelsize=7)
    ax.invert_yaxis()
    boundary = -0.5
    for indices in list(layout.groups.values())[:-1]:
      boundary += len(indices)
      ax.axhline(boundary, color="#888888", lw=0.8)
    ax.set_xlabel(f"steps above the limit of {title(quantity).lower()} (%)")
    ax.set_xlim(0.0, max(ax.get_xlim()[1], 0.1))
    ax.grid(axis="y", visible=False)
    return fig


def spectra(results: Results) -> Figure:
  """Power spectral density of position targets and joint velocities by group."""
  groups = next(iter(results.values())).layout.groups
  signals = {
    "action": "position target (rad²/Hz)",
    "joint_vel": "velocity (rad²/s²/Hz)",
  }
  with panels(8, 2.3 * len(groups), len(groups), len(signals)) as (fig, axes):
    for row, group in zip(axes, groups, strict=True):
      for ax, (signal, name) in zip(row, signals.items(), strict=True):
        for i, (label, result) in enumerate(results.items()):
          data = result.metrics["spectra"]
          density = np.array(data["groups"][group][signal])[1:]
          if density.any():
            ax.semilogy(data["frequency_hz"][1:], density, label=label, **style(i))
        if not ax.lines:
          text = "no stretch of 2.56 s\nwithout a reset"
          ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center")
        ax.axvline(JITTER_HZ, color="#555555", ls="--", lw=1)
        ax.set_title(f"{group} body", loc="left")
        ax.set_ylabel(name)
    for ax in axes[-1]:
      ax.set_xlabel("frequency (Hz); dashed: above is jitter")
    return fig


def training_curves(runs: Mapping[str, Path]) -> Figure:
  """Scalars of TensorBoard event files over iterations, one panel per tag."""
  curves = {label: read_scalars(run) for label, run in runs.items()}
  logged = {tag for scalars in curves.values() for tag in scalars}
  violations = [tag for scalars in curves.values() for tag in scalars]
  violations = [tag for tag in violations if re.fullmatch(VIOLATION, tag)]
  tags = [tag for tag in dict.fromkeys((*TAGS, *violations)) if tag in logged]
  if not tags:
    raise UserError(
      f"There are no training curves in {', '.join(map(str, runs.values()))}."
    )
  columns = min(len(tags), 2)
  rows = -(-len(tags) // columns)
  with panels(4.2 * columns, 2.2 * rows, rows, columns) as (fig, axes):
    for ax, tag in zip_longest(axes.flat, tags):
      if tag is None:
        ax.set_visible(False)
        continue
      for i, (label, scalars) in enumerate(curves.items()):
        if tag in scalars:
          dot = "o" if len(scalars[tag][0]) == 1 else None  # One point is no line.
          ax.plot(*scalars[tag], marker=dot, label=label, **style(i))
      ax.set_title(tag, loc="left")
      ax.set_xlabel("iteration")
    return fig


TAGS = ("Train/episode_length", "Train/reward", "Constraint/delta")
VIOLATION = r"Constraint/.+/violation"
"""What `training_curves` shows of the tags that exist."""


def read_scalars(run: Path | str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
  """Tag -> (iterations, values) of all event files in a run folder."""
  from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

  accumulator = EventAccumulator(str(run), size_guidance={"scalars": 0})
  accumulator.Reload()
  scalars = {}
  for tag in accumulator.Tags()["scalars"]:
    events = accumulator.Scalars(tag)
    steps = np.array([event.step for event in events])
    scalars[tag] = (steps, np.array([event.value for event in events]))
  return scalars


def _tracking_line(
  ax: Axes, trajectory: Trajectory, axis: int, index: int, label: str
) -> None:
  velocity = trajectory.base_velocity[:, :, axis]
  looks = style(index)
  if trajectory.protocol.get("commands") == "random":
    ax.plot(trajectory.time_s, velocity[:, 0], label=label, **looks)
    return
  low, middle, high = np.quantile(velocity, [0.1, 0.5, 0.9], axis=1)
  ax.plot(trajectory.time_s, middle, label=label, **looks)
  ax.fill_between(trajectory.time_s, low, high, color=looks["color"], alpha=0.18, lw=0)


def _mark_pushes(ax: Axes, trajectory: Trajectory) -> None:
  if not trajectory.protocol.get("disturbed"):
    return
  interval = trajectory.protocol["push_interval_s"]
  for k, time in enumerate(np.arange(interval, trajectory.time_s[-1], interval)):
    ax.axvline(time, color="#888888", ls=":", lw=0.9, label="push" if k == 0 else None)


def _histogram(ax: Axes, results: Results, group: str, quantity: str) -> None:
  """Shares of q/ε of all policies; an empty group is the whole robot's."""
  for i, (label, result) in enumerate(results.items()):
    data = result.metrics["histograms"]
    rows = data["counts"][group] if group else data["scalars"]
    counts = np.array(rows[quantity], dtype=float)
    share = counts / max(counts.sum(), 1.0)
    edges = np.linspace(0, data["largest"], len(counts) + 1)
    # What is beyond the last edge would be a spike there: it is no bin.
    ax.stairs(share[:-1], edges[:-1], label=label, lw=1.3, **style(i))
  ax.set_yscale("log")
  ax.set_ylim(1e-6, 1)
  ax.axvline(1.0, **LIMIT)
