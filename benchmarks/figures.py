"""The figure of what a benchmark has measured."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.report import Report
from decap.errors import UserError
from decap.files import replacing


def draw(report: Report, path: str | Path) -> None:
  """One panel beside the other, a line to each case; where rows are curves, to each."""
  found = report.benchmark
  if not found.panels:
    raise UserError(f"There is no figure of {found.name}.")
  figure = Figure(figsize=(1 + 5 * len(found.panels), 4.2), layout="constrained")
  axes = figure.subplots(1, len(found.panels), squeeze=False)[0]
  for axis, (title, x, y) in zip(axes, found.panels, strict=True):
    for index, (case, label) in enumerate(found.cases.items()):
      rows = [r for r in report.rows if r[found.key] == case and r.get(y) is not None]
      lines = [(row[x], row[y]) for row in rows]
      if x == "num_envs":
        lines = [tuple(zip(*lines, strict=True))] if lines else []
        counts = sorted({row[x] for row in report.rows})
        axis.set_xscale("log", base=2)
        axis.set_xticks(counts, [str(count) for count in counts])
      for number, line in enumerate(lines):
        style = {"color": f"C{index}", "label": label if number == 0 else None}
        axis.plot(*line, "o-" if x == "num_envs" else "-", **style)
    axis.set(xlabel="environments" if x == "num_envs" else x, ylabel=title)
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
  figure.axes[0].legend(fontsize=8)
  machine = report.machine.get("gpu") or report.machine["cpu"]
  figure.suptitle(f"{report.settings['task']} on {machine}")
  with replacing(path) as partial:
    figure.savefig(partial, dpi=130)
