"""One look for all our figures.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart; line
styles repeat the distinction for print.
"""

from __future__ import annotations

COLOURS = (
  "#0072B2",
  "#D55E00",
  "#009E73",
  "#CC79A7",
  "#56B4E9",
  "#E69F00",
  "#000000",
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
