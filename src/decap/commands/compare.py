"""``decap compare``: tables, figures and a report from evaluated policies."""

from __future__ import annotations

import argparse

from decap.evaluation.commands import CompareArgs, compare_main


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
    choices=("tracking", "traces", "distributions", "joints", "spectra", "training"),
    help="write a figure; may be repeated",
  )
  add(
    "--quantity",
    default="joint_vel",
    choices=("action_rate", "joint_acc", "joint_torque", "joint_vel"),
    help="quantity of the figures 'traces' and 'joints' (default: joint_vel)",
  )
  add("--plot-folder", metavar="DIR", default=".", help="folder for the figures")
  add(
    "--plot-format",
    choices=("pdf", "png", "svg"),
    default="pdf",
    help="format of the figures (default: pdf)",
  )


def run(options: argparse.Namespace) -> None:
  """Compare."""
  compare_main(
    CompareArgs(
      sources=options.sources,
      label=options.label,
      baseline=options.baseline,
      format=options.format,
      output=options.output,
      html=options.html,
      plots=tuple(options.plot),
      quantity=options.quantity,
      plot_folder=options.plot_folder,
      plot_format=options.plot_format,
    )
  )
