"""``decap compare``: tables, figures and a report from evaluated policies."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from decap.commands.options import split_label
from decap.commands.terminal import print_tables
from decap.errors import UserError
from decap.files import check_writable, replacing, write_text

if TYPE_CHECKING:
  from decap.evaluation.results import Result
  from decap.evaluation.tables import MethodResults, Table


def add_options(parser: argparse.ArgumentParser) -> None:
  """Evaluated policies, and what to make of them."""
  add = parser.add_argument
  add(
    "sources",
    nargs="+",
    metavar="RUN",
    help="evaluated run folder or metrics file; LABEL=RUN names its row",
  )
  add(
    "--label",
    default="",
    help="which evaluation of a folder, e.g. 'disturbed' for metrics-disturbed.json",
  )
  add("--baseline", metavar="METHOD", help="show ratios against this method or label")
  add(
    "--format",
    choices=("terminal", "markdown", "latex", "csv"),
    default="terminal",
    help="format of the tables (default: terminal)",
  )
  add("--output", metavar="FILE", help="write the tables to a file")
  add("--html", metavar="FILE", help="write a report that opens offline")
  add(
    "--plot",
    action="append",
    default=[],
    choices=("response", "tracking", "traces", "distributions", "joints", "spectra")
    + ("training",),
    help="write a figure; may be repeated",
  )
  add(
    "--quantity",
    default="joint_vel",
    metavar="NAME",
    help="quantity of the figures 'traces' and 'joints' (default: joint_vel)",
  )
  add("--plot-folder", metavar="DIR", default=".", help="folder for the figures")
  add(
    "--plot-format",
    choices=("pdf", "png", "svg"),
    default="pdf",
    help="format of the figures (default: pdf)",
  )


def run(args: argparse.Namespace) -> None:
  """Print or write the tables, the figures and the report that were asked for."""
  from decap.evaluation.tables import group_results, make_tables

  for path in (args.output, args.html):
    if path:
      check_writable(Path(path).parent)
  if args.plot:
    check_writable(args.plot_folder)
  labels, results = _read_results(args)
  methods = group_results(results, labels)
  tables = make_tables(methods, args.baseline)
  _write_tables(args, tables)
  training = _training_folders(methods)
  first = {method.label: method.results[0] for method in methods}
  if args.plot:
    _write_plots(args, first, training)
  if args.html:
    from decap.evaluation.report import ReportInput, write_report

    command = shlex.join(["decap", *sys.argv[1:]])
    write_report(ReportInput(methods, tables, command, training), Path(args.html))
    print(f"Wrote {args.html}")


def _read_results(args: argparse.Namespace) -> tuple[list[str | None], list[Result]]:
  """Labels and results of all sources; runs that wait for theirs are left out."""
  from decap.evaluation.results import find_result
  from decap.runs import RUN_FILE

  sources = [split_label(source) for source in args.sources]
  runs = [path for _, path in sources if (Path(path) / RUN_FILE).is_file()]
  waiting = [path for path in runs if not list(Path(path).glob("metrics*.json"))]
  if waiting and len(waiting) < len(sources):
    print(
      f"Left out, not evaluated yet: {', '.join(waiting)} (see 'decap evaluate').",
      file=sys.stderr,
    )
    sources = [(label, path) for label, path in sources if path not in waiting]
  labels = [label for label, _ in sources]
  return labels, [find_result(path, args.label) for _, path in sources]


def _write_tables(args: argparse.Namespace, tables: Sequence[Table]) -> None:
  from decap.evaluation import table_formats as formats

  if args.format == "terminal" and args.output is None:
    print_tables(tables)
    return
  writers: dict[str, Callable[[], str]] = {
    "markdown": lambda: "\n".join(map(formats.to_markdown, tables)),
    "latex": lambda: "\n".join(map(formats.to_latex, tables)),
    "csv": lambda: formats.to_csv(tables),
  }
  if args.format == "terminal":
    raise UserError("Tables for a file need --format markdown, latex or csv.")
  text = writers[args.format]()
  if args.output is None:
    print(text)
    return
  write_text(args.output, text)
  print(f"Wrote {args.output}")


def _training_folders(methods: Sequence[MethodResults]) -> dict[str, Path]:
  """Run folders with TensorBoard events, by the label of their method and seed."""
  folders = {}
  for method in methods:
    for result in method.results:
      assert result.path is not None
      folder = result.path.parent
      if any(folder.glob("events.out.tfevents.*")):
        seed = f" s{result.policy.get('seed')}" if len(method.results) > 1 else ""
        folders[f"{method.label}{seed}"] = folder
  return folders


def _write_plots(
  args: argparse.Namespace, results: dict[str, Result], training: dict[str, Path]
) -> None:
  from decap.evaluation import plots
  from decap.evaluation.report import find_trajectories

  recorded = find_trajectories(results)
  draw: dict[str, Callable] = {
    "response": lambda: plots.response(results),
    "tracking": lambda: plots.velocity_tracking(recorded),
    "traces": lambda: plots.traces(recorded, args.quantity),
    "distributions": lambda: plots.distributions(results),
    "joints": lambda: plots.joint_violations(results, args.quantity),
    "spectra": lambda: plots.spectra(results),
    "training": lambda: plots.training_curves(training),
  }
  folder = Path(args.plot_folder)
  for name in args.plot:
    if name in ("tracking", "traces") and not recorded:
      raise UserError(
        f"The figure '{name}' needs trajectories: evaluate with --trajectory."
      )
    if name == "training" and not training:
      raise UserError("The figure 'training' needs run folders with event files.")
    path = folder / f"{name}.{args.plot_format}"
    with replacing(path) as partial:
      draw[name]().savefig(partial, dpi=200)
    print(f"Wrote {path}")
