"""One look for all our figures.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart; line
styles repeat the distinction for print.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from matplotlib import rc_context
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


@contextmanager
def panels(
  width: float, height: float, rows: int, columns: int = 1, **options: Any
) -> Iterator[tuple[Figure, np.ndarray]]:
  """A figure in inches, and its axes [rows, columns], which share their x axis.

  All that is drawn within has our style. One legend for all is above them.
  """
  options.setdefault("sharex", True)
  with rc_context(RC):
    fig = Figure(figsize=(width, height))
    yield fig, fig.subplots(rows, columns, squeeze=False, **options)
    handles, labels = fig.axes[0].get_legend_handles_labels()
    if handles and not any(ax.get_legend() for ax in fig.axes):
      fig.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 4))
