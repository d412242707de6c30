"""The paper's tables and figures, from the files in results/paper.

`make tables` writes the tables into docs/paper.md, results/paper/tables.tex and
tables.html, and draws the figures; a test compares. `make motion` walks the released
policies for the figures that metrics files cannot give.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from matplotlib.figure import Figure
from paper_claims import claims
from paper_figures import learning_curves, trade_off
from paper_rows import (
  COST,
  SECTIONS,
  SHOWN,
  SUMMARY,
  TITLES,
  Section,
  read_curves,
  read_methods,
  read_rows,
  row_of,
  title_of,
)

from decap.evaluation import plots
from decap.evaluation import table_formats as formats
from decap.evaluation.columns import GROUNDS
from decap.evaluation.report import find_trajectories, make_page, tables_section
from decap.evaluation.results import Result, load_result
from decap.evaluation.tables import (
  STANDING,
  Cell,
  Row,
  Table,
  make_tables,
)

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "paper"
PAGE = ROOT / "docs" / "paper.md"
FIGURES = ROOT / "docs" / "figures" / "paper"
NOTHING = "No runs yet: `make paper` trains them."


# Tables.


def section_tables(root: Path, section: Section) -> list[Table]:
  """All tables of a section: the usual protocol first, then noise and pushes."""
  tables: list[Table] = []
  for disturbed in (False, True):
    methods = read_methods(root, section, disturbed)
    if not methods:
      continue
    rows = {row_of(method): method for method in methods}
    base = rows.get(section.baseline)
    every = make_tables(methods, base.label if base else None, [COST])
    made = {table.title: table for table in every}
    wanted = section.shown[: 2 if disturbed else None]
    chosen = [made[title] for title in wanted if title in made]
    if disturbed:
      chosen = [replace(t, title=f"{t.title}, with noise and pushes") for t in chosen]
    elif section.paper:
      labels = {method.label: row for row, method in rows.items()}
      values = yaml.safe_load((root / "values.yaml").read_text())
      beside = [_beside_paper(t, labels, values, section.baseline) for t in chosen[:2]]
      chosen = [*beside, *chosen[2:]]
    tables += chosen
  return tables


def summary_table(root: Path) -> list[Table]:
  """All methods on one page: means, and ratios of what moves less or more."""
  section = SECTIONS[0]
  methods = read_methods(root, section)
  base = next((m.label for m in methods if row_of(m) == section.baseline), None)
  if not methods:
    return []
  table = make_tables(methods, base, [SUMMARY])[-1]
  rows = [
    replace(
      row,
      cells=tuple(
        Cell(c.mean, best=c.best, ratio=c.ratio if "smoothness" in of.path else None)
        for c, of in zip(row.cells, table.columns, strict=True)
      ),
    )
    for row in table.rows
  ]
  return [replace(table, rows=tuple(rows), note="")]


def grounds_table(root: Path) -> list[Table]:
  """What follows and violates on every ground, under the same limits."""
  title, rough, tables = SHOWN[1], read_rows(root, "g1-rough"), {}
  for task in ("g1-flat", "g1-rough"):
    section = next(s for s in SECTIONS if s.task == task and not s.rows)
    methods = [m for m in read_methods(root, section) if row_of(m) in rough]
    if not methods:
      return []
    tables[task] = next(t for t in make_tables(methods) if t.title == title)
  rows = tuple(
    replace(row, section=task, cells=tuple(replace(c, best=False) for c in row.cells))
    for task, table in tables.items()
    for row in table.rows
    if row.label != STANDING
  )
  first = tables["g1-flat"]
  return [replace(first, title=f"{title}, by ground", rows=rows, group="Task")]


def kinds_table(root: Path) -> list[Table]:
  """What was trained on rough ground, on each kind and level of it."""
  section = next(s for s in SECTIONS if s.name == "rough")
  methods = [m for m in read_methods(root, section) if m.results[0].layout.grounds]
  if not methods:
    return []
  return [table for table in make_tables(methods) if table.title == GROUNDS]


def _beside_paper(
  table: Table, labels: dict[str, str], values: dict[str, Any], baseline: str
) -> Table:
  """The table with what the paper prints below each row that it has."""
  same = {"middle": "decap"}  # What the paper compares its ablations with.
  rows: list[Row] = []
  for row in table.rows:
    rows.append(row)
    ours = labels.get(row.label, "")
    name, base = same.get(ours, ours), same.get(baseline, baseline)
    cells = []
    for column in table.columns:
      mean, std = _paper_numbers(values, name, column.path, row.section)
      against, _ = _paper_numbers(values, base, column.path, row.section)
      ratio = mean / against if mean is not None and against and name != base else None
      cells.append(Cell(mean, std, ratio=ratio if column.better else None))
    if any(cell.mean is not None for cell in cells):
      rows.append(Row(f"{title_of(name)}, paper", tuple(cells), row.section))
  return replace(table, rows=tuple(rows))


def _paper_numbers(
  values: dict[str, Any], row: str, path: tuple[str, ...], group: str
) -> tuple[float | None, float | None]:
  """Mean and deviation as printed: shares are in % there."""
  rows, name = values["task"], path[-1]
  if path[0] == "smoothness":
    rows = values["smoothness"][group]
  elif path[0] == "violations":
    name = f"{path[2]}/{path[1]}"
  mean, std, *_ = [*rows.get(row, {}).get(name, []), None, None]
  return mean, std


# Writing.


def blocks(root: Path) -> dict[str, str]:
  """Name of a mark in the page -> what stands there."""
  out = {"claims": claims(root)}
  for name, _, tables in all_tables(root):
    out[name] = in_markdown(tables) or ("" if name in MAY_LACK else NOTHING)
  captions = figure_captions(root)
  for name in DRAWN:
    text = captions.get(name)
    link = f"![{text}](figures/paper/{name}.png)\n\n*{text}*\n" if text else ""
    out[f"figure {name}"] = link
  return out


MAY_LACK = ("summary", "grounds", "kinds")
"""Parts of the page that say nothing where there are no runs."""
OPEN = 2
"""Tables of a part that are open; who wants the others unfolds them."""


def in_markdown(tables: list[Table]) -> str:
  """Tables below each other; one note is enough for all of a protocol."""
  texts, last = [], None
  for place, table in enumerate(tables):
    told = replace(table, note="" if table.note == last else table.note)
    text, last = formats.to_markdown(told), table.note
    if place >= OPEN:
      text = text.removeprefix(f"**{table.title}.**").strip()
      head = f"<details markdown>\n<summary>{table.title}</summary>\n\n"
      text = f"{head}{text}\n\n</details>\n"
    texts.append(text)
  return "\n".join(texts)


def all_tables(root: Path) -> list[tuple[str, str, list[Table]]]:
  """Name, title and tables of every section."""
  parts = [(s.name, s.title, section_tables(root, s)) for s in SECTIONS]
  grounds = ("grounds", "The same limits on every ground", grounds_table(root))
  kinds = ("kinds", "Kinds and levels of ground", kinds_table(root))
  summary = ("summary", SUMMARY[0], summary_table(root))
  return [summary, *parts, grounds, kinds]


def page(text: str, root: Path = RESULTS) -> str:
  """The page with today's tables between their marks."""
  for name, block in blocks(root).items():
    mark = re.compile(rf"(<!-- {name} -->\n).*?(<!-- / -->)", re.DOTALL)
    assert mark.search(text), f"paper.md has no place for '{name}'"
    text = mark.sub(lambda m, b=block: f"{m[1]}{b.rstrip()}\n{m[2]}", text)
  return text


def latex(root: Path = RESULTS) -> str:
  """All tables; they need booktabs and xcolor."""
  tables = [table for _, _, tables in all_tables(root) for table in tables]
  return "\n".join(map(formats.to_latex, tables)) or "% No runs yet.\n"


def html(root: Path = RESULTS) -> str:
  """All tables as one page that opens offline."""
  parts = [tables_section(title, t) for _, title, t in all_tables(root) if t]
  return make_page("The paper's tables", "" if parts else NOTHING, parts)


# Figures.

DRAWN = ("trade-off", "learning", "distributions")
"""Figures from files in results/paper, in the order of the page."""


def figure_captions(root: Path) -> dict[str, str]:
  """Figures that there is data for -> what they show."""
  found = {}
  if read_methods(root, SECTIONS[0]):
    found["trade-off"] = (
      "Following against smoothness: large points are means over seeds, small ones seeds; "
      "hollow ones fall, stand or hop"
    )
    found["distributions"] = (
      "Distribution of each quantity against its limit, over all joint-steps of seed 1"
    )
  if read_curves(root):
    found["learning"] = (
      "Learning over samples and over wall-clock time: thick lines are means over seeds. "
      "Limits are those of the method: CaT and N-IPO have the legs' for the arms, too"
    )
  return found


def digest(paths: Iterable[Path]) -> str:
  """What a figure was drawn from."""
  hashed = hashlib.sha256()
  for path in sorted(paths):
    hashed.update(path.name.encode() + path.read_bytes())
  return hashed.hexdigest()


def sources(root: Path = RESULTS) -> list[Path]:
  """Files behind the figures of methods."""
  folder = root / "g1-flat"
  return [*folder.glob("*.json"), *folder.glob("*.csv")]


def draw(root: Path = RESULTS, folder: Path = FIGURES) -> list[Path]:
  """Draw what there is data for; each file says from what."""
  methods = read_methods(root, SECTIONS[0])
  first = {title_of(row_of(method)): method.results[0] for method in methods}
  figures: dict[str, Callable[[], Figure]] = {
    "trade-off": lambda: trade_off(methods),
    "learning": lambda: learning_curves(read_curves(root)),
    "distributions": lambda: plots.distributions(first),
  }
  return [
    _save(figures[name](), folder / f"{name}.png", digest(sources(root)))
    for name in figure_captions(root)
  ]


def _save(figure: Figure, path: Path, source: str) -> Path:
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=150, metadata={"Description": source, "Software": None})
  return path


MOVING = ("g1-flat-smoothness-rewards", "g1-flat-cat", "g1-flat-decap")
"""Released policies whose motion is drawn, where they are there."""


def moving() -> list[Path]:
  """Networks of those that are there."""
  return [p for n in MOVING if (p := ROOT / "policies" / n / "policy.onnx").is_file()]


def draw_motion(folder: Path = FIGURES) -> list[Path]:
  """Velocity under switching commands and pushes, and traces of every quantity.

  Metrics files hold no motion: the released policies walk for it, a minute each.
  """
  runs: dict[str, Result] = {}
  with tempfile.TemporaryDirectory() as work:
    for network in moving():
      out = Path(work) / network.parent.name
      options = ["--commands", "switching", "--disturbed", "--rollouts", "1"]
      options += ["--envs", "32", "--trajectory", "32", "--device", "cpu"]
      command = ["evaluate", str(network.parent), *options, "--output", str(out)]
      subprocess.run([sys.executable, "-m", "decap", *command], check=True)
      result = load_result(out / "metrics-switching-disturbed.json")
      runs[TITLES[result.policy["method"]]] = result
    recorded = find_trajectories(runs)
  figures = {"tracking": plots.velocity_tracking(recorded)}
  for quantity in next(iter(runs.values())).layout.limits:
    figures[f"traces-{quantity}"] = plots.traces(recorded, quantity)
  source = digest(moving())
  return [_save(fig, folder / f"{name}.png", source) for name, fig in figures.items()]


def write(paths: Iterable[tuple[Path, str]]) -> None:
  """Write files, and say so."""
  for path, text in paths:
    path.write_text(text, "utf-8")
    print(f"Wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
  if sys.argv[1:] == ["--motion"]:
    drawn = draw_motion()
  else:
    files = [(RESULTS / "tables.tex", latex()), (RESULTS / "tables.html", html())]
    write([(PAGE, page(PAGE.read_text("utf-8"))), *files])
    drawn = draw()
  for file in drawn:
    print(f"Drew {file.relative_to(ROOT)}")
