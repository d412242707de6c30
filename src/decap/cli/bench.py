"""``decap bench``: how fast training is here, and where the time goes."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from tyro.conf import Positional, arg

from decap.cli import checks
from decap.errors import UserError
from decap.files import write_text
from decap.options import machine
from decap.options.args import FINITE, above
from decap.options.types import Computing, Counts, OutputFile, TaskName, shown

if TYPE_CHECKING:
  from decap.bench.report import Benchmark, Report

What = Literal["training", "engines", "scaling"]
CASES = {
  "training": ("stock", "eager", "captured", "unconstrained", "physics", "mjlab-task"),
  "engines": ("decap", "native", "warp"),
  "scaling": ("one", "two"),
}
"""What can be asked for before anything heavy is imported."""
SECONDS = {"training": 2.0, "engines": 4.0, "scaling": 20.0}
FAILED = 1
"""Exit code when a case could not be measured."""


@dataclass(kw_only=True)
class BenchArgs(Computing):
  """What is measured, and where the numbers go."""

  what: Positional[What] = "training"
  """Speed of training loops, of the two CPU physics engines, or of several processes."""
  num_envs: Counts = None
  """Numbers of environments."""
  task: TaskName = None
  """Task to train (default: g1-flat)."""
  cases: Annotated[tuple[str, ...] | None, shown("CASE [CASE ...]")] = None
  """A choice of cases (default: all)."""
  seconds: Annotated[float | None, shown("S"), FINITE, above(0)] = None
  """How long a case is measured (default: 2; engines 4, scaling 20)."""
  json: OutputFile = None
  """Write all numbers and the machine's description."""
  source: Annotated[
    str | None, arg(name="from", metavar="FILE", help_behavior_hint="")
  ] = None
  """Show stored numbers instead."""
  table: OutputFile = None
  """Write the table as Markdown."""

  def run(self) -> int:
    """Measure, or read what was measured, and show it."""
    report = _stored(self) if self.source else _measured(self)
    from decap.rl.display import make_console

    make_console().print(report.table())
    print("\n".join(report.benchmark.notes(report.rows)))
    if self.table:
      write_text(self.table, report.markdown())
    return FAILED if report.broken() else 0


def benchmark(what: str) -> Benchmark:
  """The declaration of a benchmark; imports what it measures."""
  return importlib.import_module(f"decap.bench.{what}").BENCHMARK


def _measured(options: BenchArgs) -> Report:
  for case in options.cases or ():
    known = CASES[options.what]
    if case not in known:
      raise UserError(
        f"'decap bench {options.what}' has no case '{case}' "
        f"(there are {', '.join(known)})."
      )
  # The engines are those of a CPU, whatever else is here.
  device = "cpu" if options.what == "engines" else options.device
  if device == "cpu" and "captured" in (options.cases or ()):
    raise UserError("The case 'captured' needs a GPU.")
  for count in options.num_envs or ():
    machine.check_num_envs(count, device)
  checks.announce_imports(device, "warp")
  checks.check_torch_device(device)
  from decap.bench.report import run_benchmark

  return run_benchmark(
    benchmark(options.what),
    device,
    task=options.task or "g1-flat",
    num_envs=options.num_envs,
    cases=options.cases,
    seconds=options.seconds or SECONDS[options.what],
    json_path=Path(options.json) if options.json else None,
  )


def _stored(options: BenchArgs) -> Report:
  for name in ("num_envs", "task", "cases", "seconds", "json"):
    if getattr(options, name) is not None:
      option = name.replace("_", "-")
      raise UserError(f"--from measures nothing and takes no --{option}.")
  if not Path(options.source or "").is_file():
    raise UserError(f"There is no file {options.source}.")
  from decap.bench.report import read_report

  found = [benchmark(what) for what in get_args(What)]
  return read_report(Path(options.source or ""), {b.name: b for b in found})
