"""``decap figure``: draw the figures of the documentation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from decap.errors import UserError
from decap.files import replacing
from decap.options.args import Args
from decap.options.types import OutputFile

SUFFIXES = (".png", ".pdf", ".svg")


@dataclass(kw_only=True)
class FigureArgs(Args):
  """Which figure, and where it goes."""

  name: Positional[Literal["barrier"]]
  """barrier: φ, the log barrier and δ."""
  output: OutputFile = None
  """png, pdf or svg (default: NAME.png)."""

  def check(self) -> None:
    path = Path(self.output or f"{self.name}.png")
    if path.suffix not in SUFFIXES:
      raise UserError(f"--output must end in .png, .pdf or .svg, not '{path.name}'.")

  def run(self) -> None:
    """Draw one figure."""
    from decap.evaluation.method_figures import barrier_figure

    path = Path(self.output or f"{self.name}.png")
    with replacing(path) as partial:
      barrier_figure().savefig(partial, dpi=120)
    print(f"Wrote {path}")
