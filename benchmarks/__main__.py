"""``python -m benchmarks NAME``: how fast training is here, and where the time goes.

From the repository's root; ``--help`` lists names and options.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from decap.cli import checks
from decap.errors import UserError, check_known
from decap.files import write_text
from decap.options import machine
from decap.options.args import FINITE, above, validate
from decap.options.reading import read
from decap.options.types import Computing, Count, Counts, OutputFile, TaskName, shown

Name = Literal["training", "engines", "scaling", "cores", "methods", "learning"]
FAILED = 1
"""Exit code when a case could not be measured."""


@dataclass(kw_only=True)
class Options(Computing):
  """Shows a table; can store numbers, and show those that were stored."""

  name: Positional[Name] = "training"
  """Training loops, physics engines of a CPU, several processes, some of the cores, all
  methods, or learning curves."""
  num_envs: Counts = None
  """Numbers of environments."""
  task: TaskName = None
  """Task to train (default: g1-flat)."""
  cases: Annotated[tuple[str, ...] | None, shown("CASE [CASE ...]")] = None
  """A choice of cases (default: all that suit the device)."""
  seconds: Annotated[float | None, shown("S"), FINITE, above(0)] = None
  """How long a case is measured (default: 2; engines 4, methods 12, scaling 20)."""
  iterations: Count = None
  """Length of a run of learning (default: 150)."""
  json: OutputFile = None
  """Write all numbers and the machine's description."""
  source: Annotated[
    str | None, arg(name="from", metavar="FILE", help_behavior_hint="")
  ] = None
  """Show stored numbers instead."""
  table: OutputFile = None
  """Write the table as Markdown."""
  plot: OutputFile = None
  """Draw the numbers of training, or of learning."""

  def check(self) -> None:
    for option in ("num_envs", "task", "cases", "seconds", "iterations", "json"):
      if self.source and getattr(self, option) is not None:
        option = option.replace("_", "-")
        raise UserError(f"--from measures nothing and takes no --{option}.")
    if self.plot and not self.source and self.name not in ("training", "learning"):
      raise UserError(f"There is no figure of {self.name}.")

  def run(self) -> int:
    """Measure, or read what was measured, and show it."""
    for count in self.num_envs or ():
      machine.check_num_envs(count, self.device)
    checks.announce_imports(self.device, "warp")
    checks.check_torch_device(self.device)
    from benchmarks.cases import BENCHMARKS
    from benchmarks.figures import draw
    from benchmarks.report import read_report, run
    from decap.rl.display import make_console

    if self.source:
      report = read_report(Path(self.source), BENCHMARKS.values())
    else:
      found = BENCHMARKS[self.name]
      # Some are of a CPU, whatever else is here.
      device = self.device if self.device.split(":")[0] in found.defaults else "cpu"
      for case in self.cases or ():
        check_known(f"case of {self.name}", case, found.cases)
        if case == "captured" and device == "cpu":
          raise UserError("The case 'captured' needs a GPU.")
      names = ("task", "seconds", "iterations")
      settings = {n: v for n in names if (v := getattr(self, n)) is not None}
      report = run(found, device, self.num_envs, self.cases, self.json, **settings)
    make_console().print(report.table())
    for line in report.notes():
      print(line)
    if self.table:
      write_text(self.table, report.markdown())
    if self.plot:
      draw(report, self.plot)
    return FAILED if report.broken() else 0


def main(argv: Sequence[str]) -> int:
  """Run one benchmark; returns the exit code, 2 for a user's error."""
  try:
    about = "measure the speed of training on this machine"
    options = read(Options, argv, "", about, "python -m benchmarks")
    validate(options)
    return options.run()
  except UserError as error:
    print(f"benchmarks: {error}", file=sys.stderr)
    return error.exit_code


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
