"""A figure of speeds that `decap bench --json` has stored.

``python benchmarks/figures.py results/bench/throughput.json throughput.png``
"""

from __future__ import annotations

import sys
from pathlib import Path

from decap.bench.report import Report, read_report
from decap.bench.training import BENCHMARK
from decap.files import replacing

_STYLES = {
  "stock": ("tab:gray", "o-"),
  "eager": ("tab:orange", "s-"),
  "captured": ("tab:blue", "o-"),
  "unconstrained": ("tab:cyan", "x--"),
  "physics": ("black", "^:"),
  "mjlab-task": ("tab:red", "D"),
}


def plot_speeds(report: Report, path: Path) -> None:
  """Rollout on the left, training on the right, over the number of environments."""
  import matplotlib

  matplotlib.use("Agg")
  import matplotlib.pyplot as plt

  figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
  panels = (("rollout_steps_per_s", "rollout"), ("train_steps_per_s", "training"))
  for axis, (field, name) in zip(axes, panels, strict=True):
    for case, (color, style) in _STYLES.items():
      points = [
        (row["num_envs"], row[field] / 1e3)
        for row in report.rows
        if row["case"] == case and row.get(field) is not None
      ]
      if points:
        axis.plot(
          *zip(*points, strict=True), style, color=color, label=BENCHMARK.cases[case]
        )
    counts = sorted({row["num_envs"] for row in report.rows})
    axis.set_xscale("log", base=2)
    axis.set_xticks(counts, [str(count) for count in counts])
    axis.set(xlabel="environments", title=name, ylabel="thousand env-steps / s")
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
  axes[0].legend(fontsize=8)
  machine = report.machine.get("gpu") or report.machine["cpu"]
  figure.suptitle(f"{report.settings['task']} on {machine}")
  with replacing(path) as partial:
    figure.savefig(partial, dpi=130)
  plt.close(figure)


if __name__ == "__main__":
  stored = read_report(Path(sys.argv[1]), {BENCHMARK.name: BENCHMARK})
  plot_speeds(stored, Path(sys.argv[2]))
