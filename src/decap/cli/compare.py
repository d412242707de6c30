"""``decap compare``: tables, figures and a report from evaluated policies."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, UseAppendAction, arg

from decap.cli.terminal import print_tables
from decap.errors import UserError
from decap.files import replacing, write_text
from decap.options.args import Args, output_folder, refuse_idle, require_some
from decap.options.types import OutputFile, shown, split_label
from decap.runs import RUN_FILE

if TYPE_CHECKING:
  from matplotlib.figure import Figure

  from decap.evaluation.results import Result
  from decap.evaluation.tables import MethodResults, Table


Plot = Literal[
  "response", "tracking", "traces", "distributions", "joints", "spectra", "training"
]


@dataclass(kw_only=True)
class CompareArgs(Args):
  """Evaluated policies, and what to make of them."""

  sources: Positional[Annotated[tuple[str, ...], shown("RUN [RUN ...]")]]
  """Evaluated run folders or metrics files; LABEL=RUN names a row."""
  label: Annotated[str, shown("NAME")] = ""
  """Which evaluation of a folder, e.g. 'disturbed' for metrics-disturbed.json."""
  baseline: Annotated[str | None, shown("METHOD")] = None
  """Show ratios against this method or label."""
  format: Literal["terminal", "markdown", "latex", "csv"] = "terminal"
  """Format of the tables."""
  output: OutputFile = None
  """Write the tables to a file."""
  html: OutputFile = None
  """Write a report that opens offline."""
  plot: UseAppendAction[tuple[Plot, ...]] = ()
  """Write a figure; may be repeated."""
  quantity: Annotated[str, arg(metavar="NAME")] = "joint_vel"
  """Quantity of the figures 'traces' and 'joints'."""
  plot_folder: Annotated[str, arg(metavar="DIR"), output_folder] = "."
  """Folder for the figures."""
  plot_format: Literal["pdf", "png", "svg"] = "pdf"
  """Format of the figures."""

  def check(self) -> None:
    require_some("RUN", self.sources)
    if self.format == "terminal" and self.output:
      raise UserError("Tables for a file need --format markdown, latex or csv.")
    if not self.plot:
      refuse_idle(self, ("plot_folder", "plot_format"), "--plot")
    if not {"traces", "joints"} & {*self.plot}:
      refuse_idle(self, ("quantity",), "--plot traces or joints")

  def run(self) -> None:
    """Print or write the tables, the figures and the report that were asked for."""
    from decap.evaluation.tables import group_results, make_tables

    labels, results = _read_results(self)
    methods = group_results(results, labels)
    tables = make_tables(methods, self.baseline)
    figures = _draw(self, methods)  # Or refuse, with nothing written.
    _write_tables(self, tables)
    # Tables that are piped somewhere end with their last row.
    screen = sys.stdout if self.output else sys.stderr
    for path, figure in figures.items():
      with replacing(path) as partial:
        figure.savefig(partial, dpi=200)
      print(f"Wrote {path}", file=screen)
    if self.html:
      from decap.evaluation.report import make_report

      command = shlex.join(["decap", *(self.argv or sys.argv[1:])])
      write_text(self.html, make_report(methods, tables, command))
      print(f"Wrote {self.html}", file=screen)


def _read_results(args: CompareArgs) -> tuple[list[str | None], list[Result]]:
  """Labels and results of all sources; runs that wait for theirs are left out."""
  from decap.evaluation.results import find_result

  sources = [split_label(source) for source in args.sources]
  runs = [path for _, path in sources if (Path(path) / RUN_FILE).is_file()]
  waiting = [path for path in runs if not list(Path(path).glob("metrics*.json"))]
  if waiting and len(waiting) < len(sources):
    print(
      f"Left out, not evaluated yet: {', '.join(waiting)} (see 'decap evaluate').",
      file=sys.stderr,
    )
    sources = [(label, path) for label, path in sources if path not in waiting]
  results = [find_result(path, args.label) for _, path in sources]
  paths = [result.path.resolve() for result in results if result.path]
  for result, path in zip(results, paths, strict=True):
    if paths.count(path) > 1:
      raise UserError(f"{result.path} is there twice; compare different evaluations.")
  return [label for label, _ in sources], results


def _write_tables(args: CompareArgs, tables: Sequence[Table]) -> None:
  from decap.evaluation import table_formats as formats

  if args.format == "terminal":
    print_tables(tables)
    return
  if args.format == "csv":
    text = formats.to_csv(tables)
  else:
    write = formats.to_latex if args.format == "latex" else formats.to_markdown
    text = "\n".join(map(write, tables))
  if args.output is None:
    print(text)
    return
  write_text(args.output, text)
  print(f"Wrote {args.output}")


def _draw(args: CompareArgs, methods: Sequence[MethodResults]) -> dict[Path, Figure]:
  """The figures that were asked for, by the file that each is for."""
  from decap.evaluation import plots
  from decap.evaluation.report import find_training, find_trajectories

  if not args.plot:
    return {}
  results = {method.label: method.results[0] for method in methods}
  recorded, training = find_trajectories(results), find_training(methods)
  draw: dict[str, Callable[[], Figure]] = {
    "response": lambda: plots.response(results),
    "tracking": lambda: plots.velocity_tracking(recorded),
    "traces": lambda: plots.traces(recorded, args.quantity),
    "distributions": lambda: plots.distributions(results),
    "joints": lambda: plots.joint_violations(results, args.quantity),
    "spectra": lambda: plots.spectra(results),
    "training": lambda: plots.training_curves(training),
  }
  figures = {}
  for name in args.plot:
    if name in ("tracking", "traces") and not recorded:
      raise UserError(
        f"The figure '{name}' needs trajectories: evaluate with --trajectory."
      )
    if name == "training" and not training:
      raise UserError("The figure 'training' needs run folders with event files.")
    path = Path(args.plot_folder) / f"{name}.{args.plot_format}"
    figures[path] = draw[name]()
  return figures
