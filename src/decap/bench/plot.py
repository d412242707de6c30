"""A figure of measured speeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from decap.bench.cases import CASES
from decap.bench.throughput import Speed
from decap.files import replacing

_STYLES = {
  "stock": ("tab:gray", "o-"),
  "eager": ("tab:orange", "s-"),
  "captured": ("tab:blue", "o-"),
  "unconstrained": ("tab:cyan", "x--"),
  "physics": ("black", "^:"),
  "mjlab-task": ("tab:red", "D"),
}


def plot_speeds(speeds: Sequence[Speed], path: Path, title: str) -> None:
  """Rollout on the left, training on the right, over the number of environments."""
  import matplotlib

  matplotlib.use("Agg")
  import matplotlib.pyplot as plt

  figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
  panels = (("rollout_steps_per_s", "rollout"), ("train_steps_per_s", "training"))
  for axis, (field, name) in zip(axes, panels, strict=True):
    for case, (color, style) in _STYLES.items():
      points = [
        (s.num_envs, getattr(s, field) / 1e3)
        for s in speeds
        if s.case == case and getattr(s, field) is not None
      ]
      if points:
        axis.plot(*zip(*points, strict=True), style, color=color, label=CASES[case][0])
    counts = sorted({s.num_envs for s in speeds})
    axis.set_xscale("log", base=2)
    axis.set_xticks(counts, [str(count) for count in counts])
    axis.set(xlabel="environments", title=name, ylabel="thousand env-steps / s")
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
  axes[0].legend(fontsize=8)
  figure.suptitle(title)
  with replacing(path) as partial:
    figure.savefig(partial, dpi=130)
  plt.close(figure)
