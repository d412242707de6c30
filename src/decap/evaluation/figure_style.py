"""One look for all our figures.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart; line
styles repeat the distinction for print.
"""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = (
  *("#0072B2", "#D55E00", "#009E73", "#CC79A7"),
  *("#56B4E9", "#E69F00", "#000000"),
)
STYLES = ("-", "--", "-.", ":")

RC = {
  "font.size": 9,
  "axes.titlesize": 10,
  "axes.labelsize": 9,
  "axes.spines.top": False,
  "axes.spines.right": False,
  "axes.grid": True,
  "axes.axisbelow": True,
  "grid.color": "#dddddd",
  "grid.linewidth": 0.6,
  "legend.frameon": False,
  "legend.fontsize": 8,
  "lines.linewidth": 1.4,
  "svg.fonttype": "none",
  "figure.constrained_layout.use": True,
}
"""Style of all our figures, for matplotlib's `rc_context`."""


def style(index: int) -> dict[str, Any]:
  """How the line of a policy looks, by its place among others."""
  colour = COLOURS[index % len(COLOURS)]
  return {"color": colour, "ls": STYLES[index % len(STYLES)]}


def grid(fig: Figure, rows: int, columns: int, **options: Any) -> list[list[Axes]]:
  """Axes by row and column that share their x axis."""
  shared: dict[str, Any] = {"sharex": True, **options}
  return fig.subplots(rows, columns, squeeze=False, **shared).tolist()
