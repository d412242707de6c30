"""One form for all benchmarks: declared as data, run, shown and stored alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from decap.bench.machine import describe_machine
from decap.errors import UserError
from decap.files import write_text
from decap.rl.display import make_console
from decap.runs import RunSpec

Row = dict[str, Any]
"""One measurement: a case, a number of environments, and what was measured of them."""

OUT_OF_MEMORY = "out of memory"
"""Error of a case that does not fit; no other case is worse for it."""


@dataclass(frozen=True)
class Settings:
  """What a benchmark measures at a time."""

  task: str
  num_envs: int
  device: str
  seconds: float
  """How long each case is measured at least."""
  cases: tuple[str, ...] = ()

  @property
  def spec(self) -> RunSpec:
    """The run that is timed."""
    return RunSpec(self.task, "decap", num_envs=self.num_envs)


@dataclass(frozen=True)
class Benchmark:
  """What is measured, and what is said about it."""

  name: str
  measured: str
  cases: Mapping[str, str]
  """Case → its title."""
  columns: tuple[tuple[str, str, str], ...]
  """After the number of environments and the case: key of a row, title and format."""
  measure: Callable[[Settings], Iterator[Row]]
  num_envs: Mapping[str, tuple[int, ...]]
  """Numbers of environments on a "cpu" and with "cuda", unless others are asked for."""
  default_cases: Callable[[str, int], tuple[str, ...]]
  """Cases by device and number of environments, unless others are asked for."""
  summary: Callable[[Sequence[Row]], dict[str, Any]]
  """What follows from the rows, for the file."""
  notes: Callable[[Sequence[Row]], list[str]]
  """The same as lines."""
  complete: Callable[[Sequence[Row]], list[Row]] = list
  """Rows with what tables show beside the measured, such as ratios between them."""


@dataclass
class Report:
  """What a benchmark has measured so far."""

  benchmark: Benchmark
  settings: dict[str, Any]
  rows: list[Row] = field(default_factory=list)
  machine: dict[str, Any] = field(default_factory=describe_machine)

  def write(self, path: Path) -> None:
    """All that was measured, and on what."""
    summary = self.benchmark.summary(self.rows)
    write_report(path, self.benchmark, self.settings, self.rows, summary, self.machine)

  def cells(self) -> list[tuple[str, ...]]:
    """The table, as text; what went wrong stands in the first column of numbers."""
    return [self._cells(row) for row in self.benchmark.complete(self.rows)]

  def table(self) -> Table:
    """For a terminal."""
    view = Table(title=self.benchmark.measured)
    for index, title in enumerate(self._titles()):
      view.add_column(title, justify="left" if index == 1 else "right")
    for cells in self.cells():
      view.add_row(*cells)
    return view

  def markdown(self) -> str:
    """For a document."""
    titles = self._titles()
    rules = ["---" if index == 1 else "---:" for index in range(len(titles))]
    lines = [titles, rules, *self.cells()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"

  def broken(self) -> bool:
    """Whether a case could not be measured, other than for its size."""
    return any(row.get("error") not in (None, OUT_OF_MEMORY) for row in self.rows)

  def _titles(self) -> list[str]:
    return ["environments", "case", *(title for _, title, _ in self.benchmark.columns)]

  def _cells(self, row: Row) -> tuple[str, ...]:
    texts = [
      "" if row.get(key) is None else form.format(row[key])
      for key, _, form in self.benchmark.columns
    ]
    if row.get("error"):
      texts[0] = row["error"]
    case = self.benchmark.cases.get(row["case"], row["case"])
    return (str(row["num_envs"]), case, *texts)


def run_benchmark(
  benchmark: Benchmark,
  device: str,
  *,
  task: str = "g1-flat",
  num_envs: Sequence[int] | None = None,
  cases: Sequence[str] | None = None,
  seconds: float = 2.0,
  json_path: Path | None = None,
) -> Report:
  """Measure all cases at each number of environments.

  The file is rewritten after every row, so that what was measured is never lost.
  """
  console = make_console()
  report = Report(benchmark, {"task": task, "seconds": seconds})
  for count in num_envs or benchmark.num_envs[device.split(":")[0]]:
    chosen = tuple(cases or benchmark.default_cases(device, count))
    settings = Settings(task, count, device, seconds, chosen)
    with console.status(f"{benchmark.name}, {count} environments") as status:
      for row in benchmark.measure(settings):
        report.rows.append(row)
        status.console.print("  ".join(report.cells()[-1]), highlight=False)
        if json_path is not None:
          report.write(json_path)
  return report


def write_report(
  path: Path,
  benchmark: Any,
  settings: Mapping[str, Any],
  rows: Sequence[Row],
  summary: Mapping[str, Any] | None = None,
  machine: Mapping[str, Any] | None = None,
) -> None:
  """The one form of a file: what, how, on what, and the results."""
  report = {
    "benchmark": benchmark.name,
    "measured": benchmark.measured,
    **settings,
    "machine": dict(machine or describe_machine()),
    "results": list(rows),
  }
  if summary is not None:
    report["summary"] = dict(summary)
  write_text(path, json.dumps(report, indent=2) + "\n")


def read_report(path: Path, known: Mapping[str, Benchmark]) -> Report:
  """What ``Report.write`` wrote, sorted by the number of environments."""
  try:
    data = json.loads(path.read_text())
    benchmark = known[data["benchmark"]]
    rows = sorted(data["results"], key=lambda row: row["num_envs"])
    settings = {key: data[key] for key in ("task", "seconds") if key in data}
    report = Report(benchmark, settings, rows, dict(data["machine"]))
    report.cells()
    return report
  except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
    raise UserError(f"{path} is no file of 'decap bench --json': {error}") from error
