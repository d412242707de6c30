"""The figure of docs/methods.md, drawn by the functions that training uses."""

from __future__ import annotations

from pathlib import Path

import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from decap.constraints import barrier, cat_probability, decap_probability
from decap.evaluation.figure_style import COLOURS, RC, STYLES

FILE = Path(__file__).parents[1] / "figures" / "barrier.png"
KAPPAS = (2.0, 3.0, 6.0)
"""Tightness of the barriers that are drawn: the paper's ablation."""
RHO = 0.7
P_MAX = {"upper": 0.5, "lower": 0.25}
SCALE = 0.2
"""Running violation scale c̄ of the right panel, as a share of the limit."""


def barrier_figure() -> Figure:
  """Soft barrier φ against the log barrier, and δ of Eq. 4 beside CaT's rule."""
  with rc_context(RC):
    fig = Figure(figsize=(8, 3.1))
    left, right = fig.subplots(1, 2)
    _draw_barriers(left)
    _draw_probabilities(right)
    for ax in (left, right):
      ax.axvspan(RHO, 1.0, color="#eeeeee", lw=0, zorder=0)
      ax.axvline(1.0, color="#555555", lw=1.0)
      edge = ax.get_xaxis_transform()
      ax.text(1.01, 0.02, "limit", transform=edge, fontsize=8)
      ax.set_xlabel("ĉ = quantity / limit")
      ax.legend(loc="upper left")
    return fig


def _draw_barriers(ax: Axes) -> None:
  c_hat = torch.linspace(0.55, 1.1, 1101)
  for kappa, colour, style in zip(KAPPAS, COLOURS, STYLES, strict=False):
    phi = barrier(c_hat, RHO, kappa)
    ax.plot(c_hat, phi, style, color=colour, label=f"soft barrier φ, κ = {kappa:g}")
  inside = c_hat[c_hat < 1.0]
  u = ((inside - RHO) / (1.0 - RHO)).clamp_min(0.0)
  log_barrier = -torch.log1p(-u)
  ax.plot(inside, log_barrier, ":", color="black", label="log barrier −log(1 − u)")
  ax.set(xlim=(0.55, 1.1), ylim=(-0.1, 2.0), ylabel="penalty")
  ax.set_title(f"Barrier, ρ = {RHO:g}", loc="left")


def _draw_probabilities(ax: Axes) -> None:
  c_hat = torch.linspace(0.4, 1.35, 1901)
  for (group, p_max), colour in zip(P_MAX.items(), COLOURS, strict=False):
    delta = decap_probability(c_hat, 1.0, p_max, SCALE, rho=RHO, kappa=2.0)
    label = f"DeCap, {group}: p_max = {p_max:g}"
    ax.plot(c_hat, delta, "-", color=colour, label=label)
  p_max = P_MAX["lower"]
  delta = decap_probability(c_hat, 1.0, p_max, SCALE, rho=RHO, kappa=2.0, barrier=False)
  ax.plot(c_hat, delta, "--", color=COLOURS[2], label="lower, without barrier")
  delta = cat_probability(c_hat, 1.0, p_max, SCALE)
  ax.plot(c_hat, delta, "-.", color="black", label=f"CaT, p_max = {p_max:g}")
  ax.set(xlim=(0.4, 1.35), ylim=(-0.1, 1.08), ylabel="termination probability δ")
  ax.set_title(f"Eq. 4, κ = 2, c̄ = {SCALE:g} of the limit", loc="left")


if __name__ == "__main__":
  barrier_figure().savefig(FILE, dpi=120)
