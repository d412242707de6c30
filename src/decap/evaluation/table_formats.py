"""Tables as text: terminal, Markdown, LaTeX, CSV, HTML."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Sequence

from decap.evaluation.columns import Column
from decap.evaluation.tables import Cell, Row, Table


def cell_text(cell: Cell, column: Column) -> str:
  """A cell as plain text."""
  if cell.mean is None:
    return "–"
  text = _digits(cell.mean, column)
  if cell.std is not None:
    text += f" ±{cell.std:.{column.decimals}f}"
  if cell.interval is not None:
    text += f" [±{cell.interval:.{column.decimals}f}]"
  if cell.ratio is not None:
    text += f" ({cell.ratio:.2f}×)"
  return text


def _digits(value: float, column: Column) -> str:
  text = f"{value:.{column.decimals}f}"
  return text if float(text) else text.removeprefix("-")  # There is no minus zero.


def header(column: Column) -> str:
  """Title, unit and the direction that is better."""
  arrow = {"lower": " ↓", "higher": " ↑", "whole": " → 100", None: ""}[column.better]
  return f"{column.title}{f' ({column.unit})' if column.unit else ''}{arrow}"


def _has_sections(table: Table) -> bool:
  return any(row.section for row in table.rows)


def to_rich(table: Table):
  """A table for the terminal, without its note: tables of one comparison share it."""
  from rich import box
  from rich.markup import escape
  from rich.table import Table as RichTable

  out = RichTable(
    title=table.title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
  )
  if _has_sections(table):
    out.add_column(table.group, no_wrap=True)
  out.add_column(table.lead, no_wrap=True)
  for index, column in enumerate(table.columns):
    texts = [
      header(column),
      *(cell_text(row.cells[index], column) for row in table.rows),
    ]
    # A narrow terminal breaks lines between words, never within one.
    longest = max(len(word) for text in texts for word in text.split())
    out.add_column(header(column), justify="right", min_width=longest)
  last = None
  for row in table.rows:
    if last is not None and row.section != last:
      out.add_section()
    texts = [
      f"[bold]{cell_text(cell, column)}[/bold]"
      if cell.best
      else cell_text(cell, column)
      for cell, column in zip(row.cells, table.columns, strict=True)
    ]
    lead = [row.section if row.section != last else ""] if _has_sections(table) else []
    name = row.name.replace(" [", "\n[")  # Marks on a line of their own.
    out.add_row(*lead, escape(name), *texts)
    last = row.section
  return out


def to_markdown(table: Table) -> str:
  """A GitHub-flavoured Markdown table under its title."""
  lead = [table.group] if _has_sections(table) else []
  head = [*lead, table.lead, *(header(column) for column in table.columns)]
  align = ["---"] * (len(lead) + 1) + ["---:"] * len(table.columns)
  lines = [_pipes(head), _pipes(align)]
  for row in table.rows:
    texts = []
    for cell, column in zip(row.cells, table.columns, strict=True):
      text = cell_text(cell, column)
      texts.append(f"**{text}**" if cell.best else text)
    lines.append(_pipes([*([row.section] if lead else []), row.name, *texts]))
  head = f"**{table.title}.** {table.note}".rstrip()
  return f"{head}\n\n" + "\n".join(lines) + "\n"


def to_latex(table: Table) -> str:
  """A LaTeX table; it needs booktabs and xcolor."""
  lead = [table.group] if _has_sections(table) else []
  heads = [*lead, table.lead, *(_latex(header(column)) for column in table.columns)]
  lines = [
    r"\begin{table}",
    rf"\caption{{{_latex(table.title)}. {_latex(table.note)}}}",
    r"\centering",
    rf"\begin{{tabular}}{{{'l' * (len(lead) + 1)}{'c' * len(table.columns)}}}",
    r"\toprule",
    " & ".join(heads) + r" \\",
    r"\midrule",
  ]
  last = None
  for row in table.rows:
    if last is not None and row.section != last:
      lines.append(r"\midrule")
    section = [_latex(row.section) if row.section != last else ""] if lead else []
    cells = [
      _latex_cell(cell, column)
      for cell, column in zip(row.cells, table.columns, strict=True)
    ]
    lines.append(" & ".join([*section, _latex(row.name), *cells]) + r" \\")
    last = row.section
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
  lead = [table.group, table.lead] if _has_sections(table) else [table.lead]
  lines = ["<table>", "<thead><tr>"]
  lines += [f'<th scope="col" class="lead">{text}</th>' for text in lead]
  lines += [f'<th scope="col">{_html_header(column)}</th>' for column in table.columns]
  lines += ["</tr></thead>", "<tbody>"]
  last = None
  for row in table.rows:
    lines.append(f"<tr{_break(last, row.section)}>")
    if len(lead) > 1:
      group = row.section if row.section != last else ""
      lines.append(f'<th class="lead">{html.escape(group)}</th>')
    lines.append(f'<th scope="row" class="lead">{_html_name(row)}</th>')
    for cell, column in zip(row.cells, table.columns, strict=True):
      lines.append(_html_cell(cell, column))
    lines.append("</tr>")
    last = row.section
  return "\n".join([*lines, "</tbody>", "</table>"])


def _break(last: str | None, section: str) -> str:
  return ' class="section"' if last is not None and section != last else ""


def _html_header(column: Column) -> str:
  text = html.escape(header(column))
  return re.sub(r" ([↓↑→])", r"&nbsp;\1", text)


def _html_name(row: Row) -> str:
  marks = f' <span class="marks">[{", ".join(row.marks)}]</span>' if row.marks else ""
  return html.escape(row.label) + marks


def _html_cell(cell: Cell, column: Column) -> str:
  if cell.mean is None:
    return "<td>–</td>"
  parts = [
    f"<b>{_digits(cell.mean, column)}</b>" if cell.best else _digits(cell.mean, column)
  ]
  if cell.std is not None:
    parts.append(f'<span class="std">±{cell.std:.{column.decimals}f}</span>')
  if cell.interval is not None:
    interval = f"[±{cell.interval:.{column.decimals}f}]"
    parts.append(f'<span class="std">{interval}</span>')
  if cell.ratio is not None:
    parts.append(f'<span class="ratio">{cell.ratio:.2f}×</span>')
  return f"<td>{' '.join(parts)}</td>"


def _pipes(cells: Sequence[str]) -> str:
  return "| " + " | ".join(cells) + " |"


def _latex_cell(cell: Cell, column: Column) -> str:
  if cell.mean is None:
    return "--"
  text = _digits(cell.mean, column)
  text = rf"\textbf{{{text}}}" if cell.best else text
  if cell.std is not None:
    std = f"{cell.std:.{column.decimals}f}"
    text += rf"\,{{\scriptsize\textcolor{{gray}}{{$\pm{std}$}}}}"
  if cell.interval is not None:
    half = f"{cell.interval:.{column.decimals}f}"
    text += rf"\,{{\scriptsize[$\pm{half}$]}}"
  if cell.ratio is not None:
    text += rf" ({cell.ratio:.2f}$\times$)"
  return text


_LATEX = {
  "\\": r"\textbackslash{}",
  **{char: f"\\{char}" for char in "&%$#_{}"},
  "~": r"\textasciitilde{}",
  "^": r"\textasciicircum{}",
  "↓": r"$\downarrow$",
  "↑": r"$\uparrow$",
  "→": r"$\to$",
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
  parts = ("".join(_LATEX.get(char, char) for char in part) for part in text.split("δ̄"))
  return r"$\bar\delta$".join(parts)
