"""One form for all benchmarks: declared as data, run, shown and stored alike."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.machine import configure_torch, describe_machine, release_memory
from decap.cli.checks import is_out_of_memory
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
  """How a case is measured."""

  num_envs: int
  device: str = "cpu"
  seconds: float = 2.0
  """How long at least."""
  task: str = "g1-flat"
  iterations: int | None = None
  """Of a run; None is the task's number."""
  seed: int = 1

  def spec(self, method: str = "decap") -> RunSpec:
    """The run that is measured."""
    return RunSpec(self.task, method, self.seed, self.num_envs, self.iterations)


@dataclass(frozen=True)
class Benchmark:
  """What is measured, and what is said about it."""

  name: str
  measured: str
  cases: Mapping[str, str]
  """Case → its title."""
  measure: Callable[[str, Settings], Row]
  """Measures a case."""
  columns: tuple[tuple[str, str, str], ...]
  """After the number of environments and the case: key of a row, title and format."""
  defaults: Mapping[str, tuple[tuple[int, ...], tuple[str, ...]]]
  """Numbers of environments, and cases, on a "cpu" and with "cuda", where there are."""
  ratios: Mapping[str, tuple[str, str]] = field(default_factory=dict)
  """Further numbers of a row: the case over which one is taken, and which one."""
  complete: Callable[[Sequence[Row]], list[Row]] = list
  """Rows with what else follows from them."""
  notes: Mapping[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
  """What is said of the first of these cases that was measured, if it has the numbers."""
  panels: tuple[tuple[str, str, str], ...] = ()
  """Of the figure: what is drawn, and the keys of a row for the two axes."""
  key: str = "case"
  """Where a row has its case, and the title of that column."""
  settings: Mapping[str, Any] = field(default_factory=dict)
  """Settings, unless others are asked for."""
  seeds: tuple[int, ...] = (1,)


@dataclass
class Report:
  """What a benchmark has measured so far."""

  benchmark: Benchmark
  settings: Mapping[str, Any]
  rows: list[Row] = field(default_factory=list)
  machine: dict[str, Any] = field(default_factory=describe_machine)

  def write(self, path: str | Path) -> None:
    """The one form of a file: what, how, on what, and the results."""
    what = {"benchmark": self.benchmark.name, "measured": self.benchmark.measured}
    report = {**what, **self.settings, "machine": self.machine, "results": self.rows}
    write_text(path, json.dumps(report, indent=2) + "\n")

  def complete(self) -> list[Row]:
    """The rows and what follows from them."""
    found = self.benchmark
    known = {(str(row[found.key]), row["num_envs"]): row for row in self.rows}
    rows = [dict(row) for row in found.complete(self.rows)]
    for row in rows:
      for name, (case, number) in found.ratios.items():
        base = known.get((case, row["num_envs"]), {})
        if row.get(number) and base.get(number):
          row[name] = row[number] / base[number]
    return rows

  def cells(self) -> list[list[str]]:
    """The table, as text; what went wrong stands in the first column of numbers."""
    found = self.benchmark
    lines = [["environments", found.key, *(title for _, title, _ in found.columns)]]
    for row in self.complete():
      values = [(form, row.get(key)) for key, _, form in found.columns]
      texts = ["" if value is None else form.format(value) for form, value in values]
      texts[0] = row.get("error") or texts[0]
      case = str(row[found.key])
      lines.append([str(row["num_envs"]), found.cases.get(case, case), *texts])
    return lines

  def table(self) -> Table:
    """For a terminal."""
    titles, *lines = self.cells()
    view = Table(title=self.benchmark.measured)
    for index, title in enumerate(titles):
      view.add_column(title, justify="left" if index == 1 else "right")
    for cells in lines:
      view.add_row(*cells)
    return view

  def markdown(self) -> str:
    """For a document."""
    titles, *lines = self.cells()
    rules = ["---" if index == 1 else "---:" for index in range(len(titles))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (titles, rules, *lines))

  def notes(self) -> list[str]:
    """What the numbers are about, in words."""
    rows = {(row[self.benchmark.key], row["num_envs"]): row for row in self.complete()}
    lines = []
    for count in dict.fromkeys(count for _, count in rows):
      for cases, texts in self.benchmark.notes.items():
        row = next((rows[case, count] for case in cases if (case, count) in rows), {})
        said = []
        for text in texts:
          with contextlib.suppress(KeyError, TypeError):  # Not measured, or None.
            said.append(text.format(**row))
        lines += [f"{count} environments: {', '.join(said)}"] if said else []
    return lines

  def broken(self) -> bool:
    """Whether a case could not be measured, other than for its size."""
    return any(row.get("error") not in (None, OUT_OF_MEMORY) for row in self.rows)


def run(
  benchmark: Benchmark,
  device: str = "cpu",
  num_envs: Sequence[int] | None = None,
  cases: Sequence[str] | None = None,
  json_path: str | Path | None = None,
  **settings: Any,
) -> Report:
  """Measure cases at each number of environments; None are the benchmark's own.

  The file is rewritten after every row, so that what was measured is never lost.
  """
  configure_torch(device)
  counts, own_cases = benchmark.defaults[device.split(":")[0]]
  settings = {"task": "g1-flat", "seconds": 2.0, **benchmark.settings, **settings}
  report = Report(benchmark, settings)
  every = itertools.product(num_envs or counts, benchmark.seeds, cases or own_cases)
  with make_console().status(benchmark.measured) as status:
    for count, seed, case in every:
      now = Settings(count, device, **settings, seed=seed)
      report.rows.append(measure(benchmark, case, now))
      status.console.print("  ".join(report.cells()[-1]), highlight=False)
      if json_path is not None:
        report.write(json_path)
  return report


def measure(benchmark: Benchmark, case: str, settings: Settings) -> Row:
  """One row; a case that is broken stops no other."""
  release_memory(settings.device)
  row: Row = {benchmark.key: case, "num_envs": settings.num_envs, "error": None}
  start = time.perf_counter()
  try:
    row |= benchmark.measure(case, settings)
  except Exception as problem:
    # Only its text: the traceback would keep the environment alive.
    first_line = traceback.format_exception_only(problem)[0].splitlines()[0]
    row["error"] = OUT_OF_MEMORY if is_out_of_memory(problem) else first_line
  return {**row, "seconds": time.perf_counter() - start}


def read_report(path: Path, known: Iterable[Benchmark]) -> Report:
  """What ``Report.write`` wrote, sorted by the number of environments."""
  try:
    data = json.loads(path.read_text())
    benchmark = {b.name: b for b in known}[data["benchmark"]]
    # Some files have the number once, for all rows.
    rows = [{"num_envs": data.get("num_envs"), **row} for row in data["results"]]
    rows.sort(key=lambda row: row["num_envs"])
    settings = {key: data[key] for key in ("task", "seconds") if key in data}
    report = Report(benchmark, settings, rows, dict(data["machine"]))
    report.cells()
    return report
  except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
    raise UserError(f"{path} is no file of 'python -m benchmarks': {error}.") from error
