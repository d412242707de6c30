"""``decap figure``: draw the figures of the documentation."""

from __future__ import annotations

import argparse
from pathlib import Path

from decap.errors import UserError
from decap.files import check_writable, replacing


def add_options(parser: argparse.ArgumentParser) -> None:
  """Which figure, and where it goes."""
  add = parser.add_argument
  add("name", choices=("barrier",), help="barrier: φ, the log barrier and δ")
  add("--output", metavar="FILE", help="png, pdf or svg (default: NAME.png)")


def run(options: argparse.Namespace) -> None:
  """Draw one figure."""
  path = Path(options.output or f"{options.name}.png")
  if path.suffix not in (".png", ".pdf", ".svg"):
    raise UserError(f"--output must end in .png, .pdf or .svg, not '{path.name}'.")
  check_writable(path.parent)
  from decap.evaluation.method_figures import barrier_figure

  with replacing(path) as partial:
    barrier_figure().savefig(partial, dpi=120)
  print(f"Wrote {path}")
