"""Progress and tables on the terminal, for commands that measure."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from decap.evaluation.tables import Table


@contextmanager
def progress_bar(title: str, steps: int) -> Iterator[Callable[[int], None]]:
  """A bar that moves when it is called with the number of finished steps."""
  from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
  )

  columns = (
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TimeElapsedColumn(),
    TimeRemainingColumn(),
  )
  with Progress(*columns) as progress:
    task = progress.add_task(title, total=steps)
    yield lambda done: progress.update(task, completed=done)


def print_tables(tables: Sequence[Table]) -> None:
  """One below the other, and what all of them are of."""
  from rich.console import Console

  from decap.evaluation.table_formats import to_rich

  console = Console()
  for table in tables:
    # Where a table is wider than the terminal, its lines go on in the next one.
    console.print(to_rich(table), crop=False)
  console.print(tables[0].note)


@contextmanager
def quiet_libraries() -> Iterator[None]:
  """Hide what mjlab prints of its managers and seeds, and Warp of the devices."""
  from decap.sim.backend import hush_warp

  hush_warp()
  with redirect_stdout(io.StringIO()):
    yield
