"""The paper's simulation tables from metrics files; see table_formats.py to write them."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from decap.errors import UserError
from decap.evaluation import columns as cols
from decap.evaluation.columns import CONDITIONS, Column
from decap.evaluation.results import Result, check_comparable
from decap.evaluation.verdict import verdict

METHOD_TITLES = {
  "whole-body-rl": "Whole-body RL",
  "smoothness-rewards": "Smoothness rewards",
  "lcp": "LCP",
  "cat": "CaT",
  "n-ipo": "N-IPO",
  "ppo-lagrangian": "PPO-Lagrangian",
  "decap-no-barrier": "DeCap w/o barrier",
  "decap": "DeCap",
  "decap-calm-torso": "DeCap, calm torso",
  "decap-exact": "DeCap (exact)",
  "stand": "Zero action",
}
"""Methods in the order of the tables, and what the tables call them."""

TASK = "Steps with a violation by at least one joint, and task performance"
STANDING = "Standing still"
"""A robot that ignores every command: computed from the commands alone, a row of `TASK`."""

Columns = tuple[Column, ...]
Sections = Mapping[str, Columns]

LOSSES = {"lower": float, "higher": lambda v: -v, "whole": lambda v: abs(v - 100.0)}
"""What the best of a column has least of: who does more than told is no better."""

INTERVAL = "[±] 95 % interval of their mean (Student's t)"


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

  @property
  def marks(self) -> tuple[str, ...]:
    """What disqualifies any of its seeds."""
    found = {mark for result in self.results for mark in verdict(result.metrics)}
    return tuple(sorted(found))


def group_results(
  results: Sequence[Result], labels: Sequence[str | None]
) -> list[MethodResults]:
  """Group results by label or method, in the order of the paper's tables.

  Runs of one method with different options are different rows, and so are several runs
  of one seed; a label that the user gave is taken as it is.
  """
  pairs = list(zip(results, labels, strict=True))
  seeds = Counter((_label(r), r.policy.get("seed")) for r, label in pairs if not label)
  methods: dict[str, MethodResults] = {}
  for result, label in pairs:
    own = _label(result)
    if seeds[own, result.policy.get("seed")] > 1:
      own = f"{own}, {result.policy.get('name')}"
    name = label or own
    methods.setdefault(name, MethodResults(name, [])).results.append(result)
  order = list(METHOD_TITLES)

  def rank(method: MethodResults) -> int:
    name = method.results[0].policy.get("method")
    return order.index(name) if name in order else len(order)

  return sorted(methods.values(), key=rank)


def make_tables(
  methods: Sequence[MethodResults], baseline: str | None = None
) -> list[Table]:
  """The paper's two tables first, then how they walk, then violations and δ̄."""
  results = [result for method in methods for result in method.results]
  if not results:
    raise UserError("There is nothing to compare.")
  check_comparable(results)
  base = _find_baseline(methods, baseline)
  note = _note(methods, base)
  tables = []
  for title, sections, group in _contents(results):
    rows = [
      row
      for section, columns in sections.items()
      for row in _table_rows(methods, columns, base, section)
    ]
    columns = next(iter(sections.values()), ())
    if title == TASK:
      rows.append(_standing_row(methods, columns))
    tables.append(Table(title, columns, tuple(rows), note, group=group))
  return [
    table
    for table in tables
    if any(cell.mean is not None for row in table.rows for cell in row.cells)
  ]


def _contents(results: Sequence[Result]) -> list[tuple[str, Sections, str]]:
  """Titles of all tables, columns by section, and what the sections are."""
  layout, segments = results[0].layout, _segments(results)
  groups, walks = list(layout.groups), CONDITIONS.items()

  def by_group(columns: Callable[..., Columns], *more: str) -> Sections:
    return {group: columns(layout, group, *more) for group in groups}

  postures = {walk: cols.posture(segments, under) for walk, under in walks}
  forward = {
    f"{group}, {walk}": cols.smoothness(layout, group, under)
    for group in groups
    for walk, under in list(walks)[:2]
  }
  axes = {
    f"{name}, {walk}": cols.axes(segment, under)
    for segment, name in segments.items()
    for walk, under in walks
  }
  any_joint = by_group(cols.violations, "any_joint")
  joint_steps = by_group(cols.violations, "joint_steps")
  sideways = "Followed sideways, turning and mixed; standing"
  power = "Action power above 5 Hz, and DeCap's termination probability"
  share = "Share of δ̄ by the constraint that decides it (%)"
  return [
    ("Smoothness", by_group(cols.smoothness), "Group"),
    (TASK, {"": (*cols.paper_violations(layout), *cols.task())}, ""),
    ("Followed forward and backward", {"": cols.following_straight()}, ""),
    (sideways, {"": cols.following_others()}, ""),
    ("Gait", {walk: cols.gait(under) for walk, under in walks}, "Commands"),
    ("Angular velocity (root mean square)", postures, "Commands"),
    ("Smoothness while walking forward", forward, "Group"),
    ("Steps with a violation by at least one joint (%)", any_joint, "Group"),
    ("Joint-steps with a violation (%)", joint_steps, "Group"),
    ("Angular velocity by axis (root mean square)", axes, "Body"),
    (power, {"": cols.jitter(groups)}, ""),
    (share, by_group(cols.delta_share), "Group"),
    ("Quantities of the whole robot", {"": cols.scalars(layout)}, ""),
    ("What a run cost", {"": cols.cost()}, ""),
  ]


def command_tables(result: Result) -> list[Table]:
  """One policy, a line per command: what it follows, and how still its body is."""
  places: dict[str, cols.Path] = {
    name: ("commands", name) for name in result.metrics.get("commands", {})
  }
  places[result.protocol["commands"]] = ()
  method, segments = MethodResults("", [result]), _segments([result])

  def table(title: str, columns: Callable[[cols.Path], Columns]) -> Table:
    rows = [
      Row(name, tuple(_cell(method, column) for column in columns(under)))
      for name, under in places.items()
    ]
    note = _note([method], None)
    return Table(title, columns(()), tuple(rows), note, lead="Command")

  return [
    table("What it follows, and its gait", cols.walk),
    table("Angular velocity (root mean square)", partial(cols.posture, segments)),
  ]


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


def _table_rows(
  methods: Sequence[MethodResults],
  columns: Sequence[Column],
  baseline: MethodResults | None,
  section: str = "",
) -> tuple[Row, ...]:
  rows = []
  base = [_cell(baseline, c) for c in columns] if baseline else None
  for method in methods:
    cells = [_cell(method, column) for column in columns]
    if base is not None and method is not baseline:
      cells = [
        replace(cell, ratio=_ratio(cell, b)) if column.better else cell
        for cell, b, column in zip(cells, base, columns, strict=True)
      ]
    rows.append(Row(method.label, tuple(cells), section, method.marks))
  return _mark_best(rows, columns, methods)


def _cell(method: MethodResults, column: Column) -> Cell:
  """Mean over seeds; deviation over seeds, or over rollouts where there is one seed.

  One seed has no interval: rollouts say nothing about other seeds.
  """
  pairs = [column.read(result.metrics) for result in method.results]
  means = [mean for mean, _ in pairs if mean is not None]
  if len(means) < len(pairs):
    return Cell(None)
  std = statistics.stdev(means) if len(means) > 1 else pairs[0][1]
  mean = statistics.fmean(means) * column.factor
  std = None if std is None else std * column.factor
  return Cell(mean, std, interval=_interval(std, len(means)))


def _interval(std: float | None, seeds: int) -> float | None:
  """Half of the 95 % interval of a mean by Student's t: s · t(0.975, n − 1) / √n."""
  if std is None or seeds < 2:
    return None
  from scipy.special import stdtrit

  return std * float(stdtrit(seeds - 1, 0.975)) / math.sqrt(seeds)


def _ratio(cell: Cell, base: Cell) -> float | None:
  if cell.mean is None or not base.mean:
    return None
  return cell.mean / base.mean


def _mark_best(
  rows: Sequence[Row], columns: Sequence[Column], methods: Sequence[MethodResults]
) -> tuple[Row, ...]:
  """Mark the best of each column; who falls, stands or hops does not compete."""
  contests = [
    not m.marks and m.results[0].policy.get("method") != "stand" for m in methods
  ]
  if sum(contests) < 2:
    return tuple(rows)
  cells = [list(row.cells) for row in rows]
  for c, column in enumerate(columns):
    if column.better is None:
      continue
    loss = LOSSES[column.better]
    shown = [
      loss(round(row[c].mean, column.decimals))
      if ok and row[c].mean is not None
      else math.inf
      for row, ok in zip(cells, contests, strict=True)
    ]
    for row, value in zip(cells, shown, strict=True):
      row[c] = replace(row[c], best=value == min(shown) and math.isfinite(value))
  return tuple(replace(row, cells=tuple(c)) for row, c in zip(rows, cells, strict=True))


def _standing_row(methods: Sequence[MethodResults], columns: Sequence[Column]) -> Row:
  metrics = methods[0].results[0].metrics
  standing = {**metrics, "tracking": metrics["standing_still"]}
  cells = tuple(
    Cell(mean * column.factor)
    if column.path[0] == "tracking" and (mean := column.read(standing)[0]) is not None
    else Cell(None)
    for column in columns
  )
  return Row(STANDING, cells)


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


def _note(methods: Sequence[MethodResults], baseline: MethodResults | None) -> str:
  protocol = methods[0].results[0].protocol
  counts = sorted({len(method.results) for method in methods})
  seeds = " or ".join(str(count) for count in counts)
  over = f"± over seeds, {INTERVAL}" if counts[-1] > 1 else "± over rollouts"
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
