"""Tables as text: terminal, Markdown, LaTeX, CSV, HTML."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from decap.evaluation.columns import Column
from decap.evaluation.tables import Cell, Row, Table


@dataclass(frozen=True)
class _Marks:
  """How a format writes what stands beside a mean, and the best of a column."""

  std: str = " ±{}"
  interval: str = " [±{}]"
  ratio: str = " ({}×)"
  best: str = "{}"
  """Of the mean alone."""
  best_cell: str = "{}"


_PLAIN = _Marks()
_RICH = _Marks(best_cell="[bold]{}[/bold]")
_MARKDOWN = _Marks(best_cell="**{}**")
_HTML = _Marks(
  ' <span class="std">±{}</span>',
  ' <span class="std">[±{}]</span>',
  ' <span class="ratio">{}×</span>',
  "<b>{}</b>",
)
_LATEX = _Marks(
  r"\,{{\scriptsize\textcolor{{gray}}{{$\pm{}$}}}}",
  r"\,{{\scriptsize[$\pm{}$]}}",
  r" ({}$\times$)",
  r"\textbf{{{}}}",
)


def cell_text(cell: Cell, column: Column, marks: _Marks = _PLAIN) -> str:
  """A cell as text."""
  if cell.mean is None:
    return "–"
  text = f"{cell.mean:.{column.decimals}f}"
  text = text if float(text) else text.removeprefix("-")  # There is no minus zero.
  text = marks.best.format(text) if cell.best else text
  for form, value in ((marks.std, cell.std), (marks.interval, cell.interval)):
    if value is not None:
      text += form.format(f"{value:.{column.decimals}f}")
  if cell.ratio is not None:
    text += marks.ratio.format(f"{cell.ratio:.2f}")
  return marks.best_cell.format(text) if cell.best else text


def _cell_texts(row: Row, table: Table, marks: _Marks = _PLAIN) -> list[str]:
  pairs = zip(row.cells, table.columns, strict=True)
  return [cell_text(cell, column, marks) for cell, column in pairs]


def header(column: Column) -> str:
  """Title, unit and the direction that is better."""
  arrow = {"lower": " ↓", "higher": " ↑", "whole": " → 100", None: ""}[column.better]
  return f"{column.title}{f' ({column.unit})' if column.unit else ''}{arrow}"


def _leads(table: Table) -> list[str]:
  """Heads of what names a row: its section, where there are any, and its label."""
  sections = any(row.section for row in table.rows)
  return [table.group, table.lead] if sections else [table.lead]


def _rows(table: Table) -> Iterator[tuple[Row, list[str], bool]]:
  """Rows, the section's name where one begins, and whether another ended before."""
  last = None
  for row in table.rows:
    begins = row.section != last
    section = [row.section if begins else ""] if len(_leads(table)) > 1 else []
    yield row, section, begins and last is not None
    last = row.section


LABEL_WIDTH = 12
"""Characters that names of rows have in the narrowest terminal."""


def to_rich(table: Table) -> Any:
  """A table for the terminal, without its note: tables of one comparison share it."""
  from rich.markup import escape

  out = _empty(table.title)
  heads = [*_leads(table), *map(header, table.columns)]
  rows = [[row.section, row.name, *_cell_texts(row, table)] for row in table.rows]
  lines = [heads, *(texts[-len(heads) :] for texts in rows)]
  for place, column in enumerate(zip(*lines, strict=True)):
    # A narrow terminal breaks lines between words; within one in long names only.
    longest = max(len(word) for text in column for word in text.split())
    if place < len(heads) - len(table.columns):
      out.add_column(column[0], overflow="fold", min_width=min(longest, LABEL_WIDTH))
    else:
      out.add_column(escape(column[0]), justify="right", min_width=longest)
  for row, section, ended in _rows(table):
    if ended:
      out.add_section()
    marks = row.name.removeprefix(row.label)  # On a line of their own.
    names = (*section, f"{row.label}\n{marks.strip()}".strip())
    out.add_row(*map(escape, names), *_cell_texts(row, table, _RICH))
  return out


def numbers_table(
  title: str, heads: Sequence[str], lines: Sequence[Sequence[str]]
) -> Any:
  """Lines of text for the terminal, names in the first column and numbers after it."""
  out = _empty(title)
  for i, head in enumerate(heads):
    # Where a terminal is too narrow, lines go on in the next one: no number is cut.
    width = max(len(line[i]) for line in (heads, *lines))
    side = "right" if i else "left"
    out.add_column(head, justify=side, no_wrap=True, min_width=width)
  for line in lines:
    out.add_row(*line)
  return out


def _empty(title: str) -> Any:
  """A table for the terminal without columns."""
  from rich import box
  from rich.table import Table as RichTable

  looks: dict[str, Any] = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0)}
  return RichTable(title=title, title_justify="left", **looks)


def to_markdown(table: Table) -> str:
  """A GitHub-flavoured Markdown table under its title."""
  leads = _leads(table)
  align = ["---"] * len(leads) + ["---:"] * len(table.columns)
  lines = [_pipes([*leads, *map(header, table.columns)]), _pipes(align)]
  for row in table.rows:
    names = [row.section, row.name][-len(leads) :]
    lines.append(_pipes([*names, *_cell_texts(row, table, _MARKDOWN)]))
  head = f"**{table.title}.** {table.note}".rstrip()
  return f"{head}\n\n" + "\n".join(lines) + "\n"


def to_latex(table: Table) -> str:
  """A LaTeX table; it needs booktabs and xcolor."""
  leads = _leads(table)
  heads = [*leads, *(_latex(header(column)) for column in table.columns)]
  lines = [
    r"\begin{table}",
    rf"\caption{{{_latex(table.title)}. {_latex(table.note)}}}",
    r"\centering",
    rf"\begin{{tabular}}{{{'l' * len(leads)}{'c' * len(table.columns)}}}",
    r"\toprule",
    " & ".join(heads) + r" \\",
    r"\midrule",
  ]
  for row, section, ended in _rows(table):
    if ended:
      lines.append(r"\midrule")
    cells = [text.replace("–", "--") for text in _cell_texts(row, table, _LATEX)]
    lines.append(" & ".join([*map(_latex, (*section, row.name)), *cells]) + r" \\")
  lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
  return "\n".join(lines)


def to_csv(tables: Sequence[Table]) -> str:
  """All tables as one long list: one line per table, row and column."""
  out = io.StringIO()
  writer = csv.writer(out, lineterminator="\n")
  writer.writerow(
    ("table", "group", "method", "marks", "column", "unit", "mean", "std", "interval")
    + ("ratio", "best")
  )
  for table in tables:
    for row in table.rows:
      for cell, column in zip(row.cells, table.columns, strict=True):
        numbers = (cell.mean, cell.std, cell.interval, cell.ratio)
        values = ("" if v is None else v for v in numbers)
        writer.writerow(
          (table.title, row.section, row.label, " ".join(row.marks), column.title)
          + (column.unit, *values, int(cell.best))
        )
  return out.getvalue()


def to_html(table: Table) -> str:
  """An HTML table without its note; the best cells are bold."""
  lines = ["<table>", "<thead><tr>"]
  lines += [f'<th scope="col" class="lead">{text}</th>' for text in _leads(table)]
  for column in table.columns:
    text = re.sub(r" ([↓↑→])", r"&nbsp;\1", html.escape(header(column)))
    lines.append(f'<th scope="col">{text}</th>')
  lines += ["</tr></thead>", "<tbody>"]
  for row, section, ended in _rows(table):
    lines.append('<tr class="section">' if ended else "<tr>")
    lines += [f'<th class="lead">{html.escape(name)}</th>' for name in section]
    lines.append(f'<th scope="row" class="lead">{_html_name(row)}</th>')
    lines += [f"<td>{text}</td>" for text in _cell_texts(row, table, _HTML)]
    lines.append("</tr>")
  return "\n".join([*lines, "</tbody>", "</table>"])


def _html_name(row: Row) -> str:
  marks = f' <span class="marks">[{", ".join(row.marks)}]</span>' if row.marks else ""
  return html.escape(row.label) + marks


def _pipes(cells: Sequence[str]) -> str:
  return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


_LATEX_CHARACTERS: dict[str, str] = {
  "\\": r"\textbackslash{}",
  **{char: f"\\{char}" for char in "&%$#_{}"},
  "~": r"\textasciitilde{}",
  "^": r"\textasciicircum{}",
  "↓": r"$\downarrow$",
  "↑": r"$\uparrow$",
  "→": r"$\to$",
  **{char: f"${char}$" for char in "<>|"},
  "±": r"$\pm$",
  "×": r"$\times$",
  "²": r"\textsuperscript{2}",
  "³": r"\textsuperscript{3}",
  "·": r"$\cdot$",
  "κ": r"$\kappa$",
  "ρ": r"$\rho$",
  "σ": r"$\sigma$",
  "–": "--",
}


def _latex(text: str) -> str:
  special = str.maketrans(_LATEX_CHARACTERS)
  return r"$\bar\delta$".join(part.translate(special) for part in text.split("δ̄"))
