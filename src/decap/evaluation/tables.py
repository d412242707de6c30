"""The paper's simulation tables from metrics files; see table_formats.py to write them."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from decap.errors import UserError
from decap.evaluation.layout import Layout, short_title, title
from decap.evaluation.results import Result, check_comparable

METHOD_TITLES = {
  "whole-body-rl": "Whole-body RL",
  "smoothness-rewards": "Smoothness rewards",
  "lcp": "LCP",
  "cat": "CaT",
  "n-ipo": "N-IPO",
  "ppo-lagrangian": "PPO-Lagrangian",
  "decap-no-barrier": "DeCap w/o barrier",
  "decap": "DeCap",
  "decap-exact": "DeCap (exact)",
  "stand": "Zero action",
}
"""Methods in the order of the tables, and what the tables call them."""

STANDING = "Standing still"
"""A robot that ignores every command: computed from the commands alone."""


@dataclass(frozen=True)
class Cell:
  """A mean, its standard deviation, and what the table says of them."""

  mean: float | None
  std: float | None = None
  best: bool = False
  ratio: float | None = None
  """Mean over the baseline's."""


@dataclass(frozen=True)
class Column:
  """A quantity of a table: where it comes from and which direction is better."""

  title: str
  read: Callable[[dict[str, Any]], dict[str, Any]]
  """From `metrics` to a summary with mean, std and rollouts."""
  decimals: int = 2
  factor: float = 1.0
  better: Literal["lower", "higher"] | None = "lower"
  """Which of two values is better; None where neither is."""
  unit: str = ""
  tracking: bool = False
  """Whether a robot that stands still has a value here."""


@dataclass(frozen=True)
class Row:
  label: str
  cells: tuple[Cell, ...]
  section: str = ""


@dataclass(frozen=True)
class Table:
  """A table ready to be written in any format."""

  title: str
  columns: tuple[Column, ...]
  rows: tuple[Row, ...]
  note: str = ""


@dataclass
class Method:
  """Results of one method, one per training seed."""

  label: str
  results: list[Result]


def group_results(
  results: Sequence[Result], labels: Sequence[str | None]
) -> list[Method]:
  """Group results by label or method, in the order of the paper's tables.

  Runs of one method with different options are different rows, and so are several runs
  of one seed; a label that the user gave is taken as it is.
  """
  pairs = list(zip(results, labels, strict=True))
  seeds = Counter((_label(r), r.policy.get("seed")) for r, label in pairs if not label)
  methods: dict[str, Method] = {}
  for result, label in pairs:
    own = _label(result)
    if seeds[own, result.policy.get("seed")] > 1:
      own = f"{own}, {result.policy.get('name')}"
    name = label or own
    methods.setdefault(name, Method(name, [])).results.append(result)
  order = list(METHOD_TITLES)

  def rank(method: Method) -> int:
    name = method.results[0].policy.get("method")
    return order.index(name) if name in order else len(order)

  return sorted(methods.values(), key=rank)


def make_tables(methods: Sequence[Method], baseline: str | None = None) -> list[Table]:
  """The paper's two tables first, then all violations in two counts, jitter and δ̄."""
  results = [result for method in methods for result in method.results]
  if not results:
    raise UserError("There is nothing to compare.")
  check_comparable(results)
  base = _find_baseline(methods, baseline)
  note = _note(methods, base)
  layout = results[0].layout
  groups = list(layout.groups)

  def by_group(title: str, columns: Callable[[str], tuple[Column, ...]]) -> Table:
    rows = [
      row
      for group in groups
      for row in _table_rows(methods, columns(group), base, section=group)
    ]
    return Table(title, columns(groups[0]), tuple(rows), note)

  task = (*_paper_violation_columns(layout), *_task_columns())
  jitter = _jitter_columns(groups)
  scalars = _scalar_columns(layout)
  tables = [
    by_group("Smoothness", lambda group: _smoothness_columns(layout, group)),
    Table(
      "Steps with a violation by at least one joint, and task performance",
      task,
      (*_table_rows(methods, task, base), _standing_row(methods, task)),
      note,
    ),
    by_group(
      "Steps with a violation by at least one joint (%)",
      lambda group: _violation_columns(layout, group, "any_joint"),
    ),
    by_group(
      "Joint-steps with a violation (%)",
      lambda group: _violation_columns(layout, group, "joint_steps"),
    ),
    Table(
      "Action power above 5 Hz, and DeCap's termination probability",
      jitter,
      _table_rows(methods, jitter, base),
      note,
    ),
    by_group(
      "Share of δ̄ by the constraint that decides it (%)",
      lambda group: _share_columns(layout, group),
    ),
  ]
  if scalars:
    rows = _table_rows(methods, scalars, base)
    tables.append(Table("Quantities of the whole robot", scalars, rows, note))
  return tables


# Columns.


def _smoothness_columns(layout: Layout, group: str) -> tuple[Column, ...]:
  paper = {
    "action_rate": "Action rate",
    "joint_acc": "DoF acc.",
    "joint_acc_20ms": "DoF acc. 20 ms",
    "joint_vel": "DoF velocity",
    "energy": "Energy",
  }

  def column(name: str) -> Column:
    return Column(
      paper.get(name, title(name)),
      lambda m: m["smoothness"][group][name],
      unit=layout.unit(name),
    )

  return tuple(column(name) for name in layout.smoothness)


def _paper_violation_columns(layout: Layout) -> tuple[Column, ...]:
  """The paper's two quantities; further ones of a task have a table of their own."""

  def column(name: str, group: str) -> Column:
    return Column(
      f"{short_title(name)} {group}",
      lambda m: m["violations"][group][name]["any_joint"],
      factor=100.0,
      unit="%",
    )

  names = [n for n in ("joint_acc", "action_rate") if n in layout.joint_quantities]
  return tuple(column(name, group) for name in names for group in layout.groups)


def _violation_columns(layout: Layout, group: str, kind: str) -> tuple[Column, ...]:
  def column(name: str) -> Column:
    return Column(
      short_title(name), lambda m: m["violations"][group][name][kind], factor=100.0
    )

  return tuple(column(name) for name in layout.joint_quantities)


def _scalar_columns(layout: Layout) -> tuple[Column, ...]:
  def columns(name: str) -> tuple[Column, ...]:
    return (
      Column(title(name), lambda m: m["scalars"][name]["mean"], unit=layout.unit(name)),
      Column(
        f"{title(name)} violations",
        lambda m: m["scalars"][name]["violations"],
        factor=100.0,
        unit="%",
      ),
      Column(
        f"{title(name)} share of δ̄",
        lambda m: {"mean": m["delta"]["share"][name], "std": None},
        decimals=0,
        factor=100.0,
        better=None,
        unit="%",
      ),
    )

  return tuple(column for name in layout.scalars for column in columns(name))


def _task_columns() -> tuple[Column, ...]:
  def tracking(m: dict[str, Any], name: str) -> dict[str, Any]:
    # Files of before "followed" was measured do not have it.
    return m["tracking"].get(name, {"mean": None, "std": None})

  return (
    Column("MAE xy", lambda m: tracking(m, "mae_xy"), unit="m/s", tracking=True),
    Column(
      "Return xy",
      lambda m: tracking(m, "return_xy"),
      better="higher",
      tracking=True,
    ),
    Column(
      "Followed",
      lambda m: tracking(m, "followed"),
      factor=100.0,
      decimals=0,
      unit="%",
      better="higher",
      tracking=True,
    ),
    Column("Falls", lambda m: m["falls_per_minute"], unit="1/min"),
  )


def _jitter_columns(groups: Sequence[str]) -> tuple[Column, ...]:
  def jitter(group: str) -> Column:
    return Column(
      f"Jitter {group}",
      lambda m: {"mean": m["jitter"][group], "std": None},
      factor=100.0,
      unit="%",
    )

  delta = Column("Mean δ̄", lambda m: m["delta"]["mean"], decimals=4)
  return (*(jitter(group) for group in groups), delta)


def _share_columns(layout: Layout, group: str) -> tuple[Column, ...]:
  def share(name: str) -> Column:
    return Column(
      short_title(name),
      lambda m: {"mean": m["delta"]["share"][f"{name}/{group}"], "std": None},
      decimals=0,
      factor=100.0,
      better=None,
    )

  return tuple(share(name) for name in layout.joint_quantities)


# Rows.


def _table_rows(
  methods: Sequence[Method],
  columns: Sequence[Column],
  baseline: Method | None,
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
    rows.append(Row(method.label, tuple(cells), section))
  return _mark_best(rows, columns, methods)


def _cell(method: Method, column: Column) -> Cell:
  """Mean over seeds; deviation over seeds, or over rollouts where there is one seed."""
  summaries = [column.read(result.metrics) for result in method.results]
  means = [s["mean"] for s in summaries]
  if any(mean is None for mean in means):
    return Cell(None)
  std = statistics.stdev(means) if len(means) > 1 else summaries[0]["std"]
  mean = statistics.fmean(means) * column.factor
  return Cell(mean, None if std is None else std * column.factor)


def _ratio(cell: Cell, base: Cell) -> float | None:
  if cell.mean is None or not base.mean:
    return None
  return cell.mean / base.mean


def _mark_best(
  rows: Sequence[Row], columns: Sequence[Column], methods: Sequence[Method]
) -> tuple[Row, ...]:
  """Mark the best of each column; the zero action does not compete."""
  contests = [m.results[0].policy.get("method") != "stand" for m in methods]
  if sum(contests) < 2:
    return tuple(rows)
  cells = [list(row.cells) for row in rows]
  for c, column in enumerate(columns):
    if column.better is None:
      continue
    sign = -1.0 if column.better == "higher" else 1.0
    shown = [
      sign * round(row[c].mean, column.decimals)
      if ok and row[c].mean is not None
      else math.inf
      for row, ok in zip(cells, contests, strict=True)
    ]
    for row, value in zip(cells, shown, strict=True):
      row[c] = replace(row[c], best=value == min(shown) and math.isfinite(value))
  return tuple(replace(row, cells=tuple(c)) for row, c in zip(rows, cells, strict=True))


def _standing_row(methods: Sequence[Method], columns: Sequence[Column]) -> Row:
  metrics = methods[0].results[0].metrics
  standing = {**metrics, "tracking": metrics["standing_still"]}
  cells = tuple(
    Cell(column.read(standing)["mean"]) if column.tracking else Cell(None)
    for column in columns
  )
  return Row(STANDING, cells)


def _find_baseline(methods: Sequence[Method], name: str | None) -> Method | None:
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


def _note(methods: Sequence[Method], baseline: Method | None) -> str:
  protocol = methods[0].results[0].protocol
  counts = sorted({len(method.results) for method in methods})
  seeds = " or ".join(str(count) for count in counts)
  deviation = "seeds" if counts[0] > 1 else "rollouts" if counts[-1] == 1 else "mixed"
  over = {
    "seeds": "± over seeds",
    "rollouts": "± over rollouts",
    "mixed": "± over seeds, over rollouts where there is one seed",
  }[deviation]
  commands = protocol["command"] or protocol["commands"]
  parts = [
    f"{protocol['task']}: {protocol['rollouts']} × {protocol['envs']} environments × "
    f"{protocol['steps']} steps, commands {commands}"
    + (", noise and pushes" if protocol["disturbed"] else ""),
    f"{seeds} training seed{'s' if counts != [1] else ''}, {over}",
  ]
  if baseline:
    parts.append(f"× against {baseline.label}")
  return ". ".join(parts) + "."
