"""Figures of several methods and their seeds: the trade-off, and how they learn."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, ScalarFormatter

from decap.evaluation.figure_style import RC
from decap.evaluation.layout import title
from decap.evaluation.tables import METHOD_TITLES, MethodResults

Curve = Mapping[str, np.ndarray]
"""Column of a learning curve -> its values by row."""
Line = tuple[np.ndarray, np.ndarray]
"""x and y."""

PALETTE = ("#0072B2", "#000000", "#CC79A7", "#009E73", "#56B4E9", "#E69F00", "#7B2D8B")
PALETTE += ("#D55E00", "#8C510A", "#999999", "#BBBBBB", "#666666", "#8FBC3B", "#882255")
PALETTE += ("#332288", "#44AA99", "#DDCC77", "#661100", "#6699CC", "#AA4499")
MARKERS = "os^vPXD*h<>dp8H1234+"
LINES = ("--", "-.", ":", "--", "-.", ":", "--", "-", "-.", ":", ":")
LINES += ("-.", "-.", "--", ":", "--", "-.", ":", "--", "-.")
"""Looks of methods in the order of METHOD_TITLES, the same in every figure; the last nine
are for rows beyond it, and for methods to come."""
ENOUGH = 80.0
"""Share of the commands, in %, below which smoothness is no merit."""
LEAST_SPAN = 12.0
"""The top of an axis over its bottom, at least."""
PAGE = {"figure.facecolor": "white", "axes.facecolor": "white"}
"""White also where the page is dark: the axes are black."""


def trade_off(methods: Sequence[MethodResults], quantity: str = "joint_acc") -> Figure:
  """What a method follows against how roughly it moves: one panel per body group.

  Large points are means over seeds, small ones seeds; hollow ones fall, stand or hop.
  """
  layout = methods[0].results[0].layout
  names = [str(method.results[0].policy.get("method")) for method in methods]
  looks = _looks(names, list(METHOD_TITLES))
  with rc_context({**RC, **PAGE}):
    fig = Figure(figsize=(7, 3.9))
    axes = fig.subplots(1, len(layout.groups), squeeze=False)[0].tolist()
    for ax, group in zip(axes, layout.groups, strict=True):
      for method, look in zip(methods, looks, strict=True):
        _points(ax, method, look, ("smoothness", group, quantity))
      ax.axvline(ENOUGH, color="#888888", ls=":", lw=0.9)
      ax.set(yscale="log", xlabel="followed (% of the commanded velocity)")
      ax.set_ylabel(f"{title(quantity).lower()} ({layout.unit(quantity)})")
      ax.set_title(f"{group} body", loc="left")
      ax.text(0.98, 0.03, "better ↘", transform=ax.transAxes, ha="right", fontsize=8)
      ax.margins(0.1, 0.15)
      _decades(ax)
    _legend(fig, axes[0])
    return fig


def _looks(names: Sequence[str], order: Sequence[str]) -> list[int]:
  """Where names stand in an order; unknown ones, and a name again, come after it."""
  looks: list[int] = []
  for name in names:
    known = order.index(name) if name in order else len(order)
    after = max([len(order) - 1, *looks]) + 1
    looks.append(after if known in looks or known == len(order) else known)
  return looks


def _points(
  ax: Axes, method: MethodResults, index: int, path: tuple[str, str, str]
) -> None:
  seeds = []
  for result in method.results:
    followed = result.metrics["tracking"].get("followed", {}).get("mean")
    rough = result.metrics[path[0]][path[1]][path[2]]["mean"]
    if followed is not None and rough is not None:
      seeds.append((100.0 * followed, rough))
  if not seeds:
    return
  colour = PALETTE[index % len(PALETTE)]
  marker = MARKERS[index % len(MARKERS)]
  size = 1.5 if marker == "*" else 1.0
  inside = "white" if method.marks else colour
  style: dict[str, Any] = {
    "marker": marker,
    "color": colour,
    "mfc": inside,
    "ls": "none",
  }
  x, y = zip(*seeds, strict=True)
  if len(seeds) > 1:
    edge = colour if method.marks else "white"
    ax.plot(x, y, **style, mec=edge, ms=5 * size, mew=0.7, zorder=3)
  label = (
    f"{method.label} [{', '.join(method.marks)}]" if method.marks else method.label
  )
  ax.plot(statistics.fmean(x), statistics.fmean(y), **style, ms=10 * size, label=label)


def _decades(ax: Axes) -> None:
  """Ticks at 1, 2 and 5; an axis so long that there are some, and ratios can be read."""
  low, high = ax.get_ylim()
  stretch = max(1.0, (LEAST_SPAN * low / high) ** 0.5)
  ax.set_ylim(low / stretch, high * stretch)
  ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
  ax.yaxis.set_major_formatter(ScalarFormatter())
  ax.minorticks_off()


AXES = {"samples (millions)": ("samples", 1e-6), "minutes": ("seconds", 1 / 60)}
"""Of learning curves: name -> column and factor."""


def learning_curves(
  curves: Mapping[str, Sequence[Curve]], quantity: str = "joint_acc"
) -> Figure:
  """Following, violations of the upper body, and what of δ̄ was applied, over samples
  and wall-clock time.

  Thick lines are means over seeds, as far as all seeds go; thin ones are seeds.
  """
  with rc_context({**RC, **PAGE}):
    fig = Figure(figsize=(7, 6.4))
    axes = fig.subplots(3, 2, sharex="col", sharey="row").tolist()
    looks = _looks(list(curves), list(METHOD_TITLES.values()))
    for (label, seeds), i in zip(curves.items(), looks, strict=True):
      style = {"color": PALETTE[i % len(PALETTE)], "ls": LINES[i % len(LINES)]}
      shown = (
        [(c, followed(c)) for c in seeds],
        [(c, c.get(f"violation_{quantity}_upper")) for c in seeds],
        [(c, applied(c)) for c in seeds],
      )
      for row, values in zip(axes, shown, strict=True):
        for ax, (x, factor) in zip(row, AXES.values(), strict=True):
          lines = [(c[x] * factor, y * 100.0) for c, y in values if y is not None]
          _lines(ax, lines, label, style)
    for ax, name in zip(axes[2], AXES, strict=True):
      ax.set_xlabel(name)
      ax.set_yscale("log")
    axes[0][0].set_ylabel("followed (%)")
    axes[1][0].set_ylabel(
      f"steps above the limit, %:\n{title(quantity).lower()}, upper body"
    )
    axes[2][0].set_ylabel("δ̄ applied (%)")
    _legend(fig, axes[0][0])
    return fig


def _lines(ax: Axes, lines: Sequence[Line], label: str, style: dict[str, Any]) -> None:
  for x, y in lines if len(lines) > 1 else ():
    ax.plot(x, y, color=style["color"], lw=0.5, alpha=0.5)
  if lines:
    ax.plot(*mean_line(lines), **style, lw=1.8, label=label)


def _legend(fig: Figure, ax: Axes) -> None:
  handles, labels = ax.get_legend_handles_labels()
  columns = 3 if max(map(len, labels), default=0) <= 36 else 2  # As the figure is wide.
  fig.legend(handles, labels, loc="outside upper center", ncols=columns)


def followed(curve: Curve) -> np.ndarray | None:
  """Mean over the directions that training logs, row by row."""
  columns = [v for name, v in curve.items() if name.startswith("followed_")]
  return np.mean(columns, axis=0) if columns else None


def applied(curve: Curve) -> np.ndarray | None:
  """The share of δ̄ that was applied, row by row; None without δ̄."""
  if "delta_applied" not in curve:
    return None
  return curve["delta_applied"] / curve["delta"]


def mean_line(lines: Sequence[Line]) -> Line:
  """Mean of lines over the x that all of them reach, at the first one's x."""
  start, end = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
  first = lines[0][0]
  grid = first[(first >= start) & (first <= end)]
  return grid, np.mean([np.interp(grid, x, y) for x, y in lines], axis=0)
