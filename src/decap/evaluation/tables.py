"""The paper's simulation tables from metrics files; see table_formats.py to write them."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from decap.errors import UserError
from decap.evaluation import columns as cols
from decap.evaluation.columns import TASK, Column, Columns, Contents
from decap.evaluation.results import Result, check_comparable, where
from decap.evaluation.verdict import verdict
from decap.methods import METHODS

METHOD_TITLES = {name: method.title for name, method in METHODS.items()}
METHOD_TITLES["stand"] = "Zero action"
"""Methods in the order of the tables, and what the tables call them."""

STANDING = "Standing still"
"""A robot that ignores every command: computed from the commands alone, a row of `TASK`."""

LOSSES = {"lower": float, "higher": lambda v: -v, "whole": lambda v: abs(v - 100.0)}
"""What the best of a column has least of: who does more than told is no better."""


@dataclass(frozen=True)
class Cell:
  """A mean, its standard deviation, and what the table says of them."""

  mean: float | None
  std: float | None = None
  best: bool = False
  ratio: float | None = None
  """Mean over the baseline's."""
  interval: float | None = None
  """Half of the mean's 95 % interval over seeds."""


@dataclass(frozen=True)
class Row:
  label: str
  cells: tuple[Cell, ...]
  section: str = ""
  marks: tuple[str, ...] = ()
  """What disqualifies it, of `verdict`."""

  @property
  def name(self) -> str:
    """The label with its marks."""
    return f"{self.label} [{', '.join(self.marks)}]" if self.marks else self.label


@dataclass(frozen=True)
class Table:
  """A table ready to be written in any format."""

  title: str
  columns: tuple[Column, ...]
  rows: tuple[Row, ...]
  note: str = ""
  lead: str = "Method"
  """What the rows are."""
  group: str = "Group"
  """What the sections are."""


@dataclass
class MethodResults:
  """Results of one method, one per training seed."""

  label: str
  results: list[Result]

  @cached_property
  def marks(self) -> tuple[str, ...]:
    """What disqualifies any of its seeds."""
    found = {mark for result in self.results for mark in verdict(result.metrics)}
    return tuple(sorted(found))

  @property
  def competes(self) -> bool:
    """Whether it may be best: who falls, stands or hops may not."""
    return not self.marks and self.results[0].policy.get("method") != "stand"


def group_results(
  results: Sequence[Result], labels: Sequence[str | None]
) -> list[MethodResults]:
  """Group results by label or method, in the order of the paper's tables.

  Runs of one method with different options are different rows, and so are those of
  other lengths and several runs of one seed; a label that the user gave is taken as it
  is. Without one, rows have one result of each seed: two policies may be called alike.
  """
  check_comparable(results)
  pairs = list(zip(results, labels, strict=True))
  owns = iter(_own_labels([result for result, label in pairs if not label]))
  rows: dict[str, dict[int, Result]] = {}
  for i, (result, label) in enumerate(pairs):
    row = rows.setdefault(name := label or next(owns), {})
    for j, other in row.items():
      odd = _no_seeds(other.policy, result.policy)
      if odd and not (label and labels[j]):
        raise UserError(
          f"The row '{name}' has a result of {odd} besides {where(result)}: "
          "LABEL=RUN gives each its own."
        )
    row[i] = result
  rank = {name: place for place, name in enumerate(METHOD_TITLES)}
  return sorted(
    (MethodResults(name, list(row.values())) for name, row in rows.items()),
    key=lambda method: rank.get(method.results[0].policy.get("method"), len(rank)),
  )


def _no_seeds(a: dict[str, Any], b: dict[str, Any]) -> str:
  """What keeps two policies from being seeds of one row, if anything does."""
  if a.get("seed") == b.get("seed"):
    return f"seed {b.get('seed')}"
  known = "changes" in a and "changes" in b  # Older files do not tell.
  return "other limits or overrides" if known and a["changes"] != b["changes"] else ""


def make_tables(
  methods: Sequence[MethodResults],
  baseline: str | None = None,
  more: Iterable[Contents] = (),
) -> list[Table]:
  """All tables that there are numbers for, `more` after those of `contents`."""
  results = [result for method in methods for result in method.results]
  if not results:
    raise UserError("There is nothing to compare.")
  base = _find_baseline(methods, baseline)
  note = _note(methods, base)
  tables = []
  # Older files know of no grounds.
  layout = max((r.layout for r in results), key=lambda layout: len(layout.grounds))
  shown = cols.contents(layout, _segments(results), results[0].protocol["commands"])
  for title, group, sections in (*shown, *more):
    rows = [
      row
      for section, columns in sections.items()
      for row in _rows(methods, columns, base, section)
    ]
    columns = next(iter(sections.values()), ())
    if title == TASK:
      rows.append(_standing_row(results[0], columns))
    if any(cell.mean is not None for row in rows for cell in row.cells):
      tables.append(Table(title, columns, tuple(rows), note, group=group))
  return tables


def command_tables(result: Result) -> list[Table]:
  """One policy, a line per command: what it follows, how still its body is; by ground."""
  method = MethodResults("", [result])

  def table(title: str, lead: str, columns: Columns) -> Table:
    parts = f"{lead.lower()}s"
    places = {name: (parts, name) for name in result.metrics.get(parts, {})}
    rows = [
      Row(name, tuple(_cell(method, column) for column in cols.at(under, columns)))
      for name, under in {**places, result.protocol["commands"]: ()}.items()
    ]
    return Table(title, columns, tuple(rows), _note([method], None), lead=lead)

  posture = cols.posture(_segments([result]))
  tables = [
    table("What it follows, and its gait", "Command", cols.WALK),
    table("Angular velocity (root mean square)", "Command", posture),
  ]
  if result.metrics.get("grounds"):
    tables.append(table(cols.GROUNDS, "Ground", cols.ground(result.layout)))
  return tables


def _segments(results: Sequence[Result]) -> dict[str, str]:
  """Segment -> title; those that always turn alike, as on one body, share a column."""
  titles: dict[str, str] = {}
  key = "angular_velocity"
  measured = [r.metrics[key] for r in results if key in r.metrics]

  def alike(a: str, b: str) -> bool:
    return all(m.get(a) is not None and m.get(a) == m.get(b) for m in measured)

  for name in dict.fromkeys(n for r in results for n in r.layout.segments):
    title = name.replace("_", " ")
    if twin := next((other for other in titles if alike(other, name)), None):
      titles[twin] += f", {title}"
    else:
      titles[name] = title.capitalize()
  return titles


# Rows.


def _rows(
  methods: Sequence[MethodResults],
  columns: Columns,
  base: MethodResults | None,
  section: str,
) -> list[Row]:
  cells = [_column_cells(methods, column, base) for column in columns]
  return [
    Row(method.label, tuple(column[i] for column in cells), section, method.marks)
    for i, method in enumerate(methods)
  ]


def _column_cells(
  methods: Sequence[MethodResults], column: Column, base: MethodResults | None
) -> list[Cell]:
  """Cells with ratios to the baseline's, and the best of those that compete marked."""
  cells = [_cell(method, column) for method in methods]
  if column.better is None:
    return cells
  loss = LOSSES[column.better]
  losses = [
    loss(round(cell.mean, column.decimals))
    if method.competes and cell.mean is not None
    else math.inf
    for method, cell in zip(methods, cells, strict=True)
  ]
  least = min(losses) if sum(m.competes for m in methods) > 1 else math.nan
  against = _cell(base, column).mean if base else None
  found = []
  for method, cell, value in zip(methods, cells, losses, strict=True):
    compared = method is not base and against and cell.mean is not None
    ratio = cell.mean / against if compared else -1.0
    ratio = None if ratio < 0.0 else ratio  # Of different signs it says nothing.
    found.append(replace(cell, best=value == least < math.inf, ratio=ratio))
  return found


def _cell(method: MethodResults, column: Column) -> Cell:
  """Mean over seeds; deviation over seeds, or over rollouts where there is one seed.

  One seed has no interval: rollouts say nothing about other seeds.
  """
  pairs = [cols.read(result.metrics, column.path) for result in method.results]
  means = [mean for mean, _ in pairs if mean is not None]
  if len(means) < len(pairs):
    return Cell(None)
  mean, seeds = statistics.fmean(means) * column.factor, len(means)
  std = statistics.stdev(means) if seeds > 1 else pairs[0][1]
  if std is None:
    return Cell(mean)
  std *= column.factor
  if seeds == 1:
    return Cell(mean, std)
  from scipy.special import stdtrit

  # By Student's t: s · t(0.975, n − 1) / √n.
  half = std * float(stdtrit(seeds - 1, 0.975)) / math.sqrt(seeds)
  return Cell(mean, std, interval=half)


def _standing_row(result: Result, columns: Columns) -> Row:
  still = replace(result, metrics={"tracking": result.metrics["standing_still"]})
  cells = [_cell(MethodResults(STANDING, [still]), column) for column in columns]
  return Row(STANDING, tuple(Cell(cell.mean) for cell in cells))


def _find_baseline(
  methods: Sequence[MethodResults], name: str | None
) -> MethodResults | None:
  if name is None:
    return None
  for method in methods:
    if name in (method.label, method.results[0].policy.get("method")):
      return method
  known = ", ".join(method.label for method in methods)
  raise UserError(f"There is no baseline '{name}' among the methods ({known}).")


def _label(result: Result) -> str:
  method = result.policy.get("method") or result.policy.get("name") or "policy"
  label = METHOD_TITLES.get(method, method)
  options = result.policy.get("options") or {}
  if options:
    label += f" ({', '.join(f'{key} {value}' for key, value in options.items())})"
  return label


def _own_labels(results: Sequence[Result]) -> list[str]:
  """Method and options of each; name or samples where others of these are not alike."""
  found = []
  for result in results:
    label, own = _label(result), result.policy.get("samples", 0)
    alike = [other.policy for other in results if _label(other) == label]
    changes = [policy["changes"] for policy in alike if "changes" in policy]
    if any(other != changes[0] for other in changes):
      label += f", {result.policy.get('name')}"
    samples = [policy.get("samples", 0) for policy in alike]
    if max(samples) > 1.01 * min(samples) and own:
      near = next(n for n in samples if abs(n - own) <= 0.01 * own)
      label += f", {near / 1e6:.3g} M samples"
    found.append((label, result.policy.get("seed"), result.policy.get("name")))
  seeds = Counter((label, seed) for label, seed, _ in found)
  return [
    f"{label}, {name}" if seeds[label, seed] > 1 else label
    for label, seed, name in found
  ]


def _note(methods: Sequence[MethodResults], baseline: MethodResults | None) -> str:
  protocol = methods[0].results[0].protocol
  counts = sorted({len(method.results) for method in methods})
  seeds = " or ".join(str(count) for count in counts)
  interval = "[±] 95 % interval of their mean (Student's t)"
  over = f"± over seeds, {interval}" if counts[-1] > 1 else "± over rollouts"
  if counts[0] == 1 < counts[-1]:
    over += "; over rollouts where there is one seed"
  commands = protocol["command"] or protocol["commands"]
  parts = [
    f"{protocol['task']}: {protocol['rollouts']} × {protocol['envs']} environments × "
    f"{protocol['steps']} steps, commands {commands}"
    + (", noise and pushes" if protocol["disturbed"] else ""),
    f"{seeds} training seed{'s' if counts != [1] else ''}, {over}",
  ]
  if baseline:
    parts.append(f"× against {baseline.label}")
  if any(method.marks for method in methods):
    parts.append("Rows that fall, stand or hop are marked and never best")
  return ". ".join(parts) + "."
