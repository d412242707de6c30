"""What several commands show: progress, tables, and what to run next."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decap.cli import checks

if TYPE_CHECKING:
  from decap.evaluation.policies import Policy
  from decap.evaluation.protocol import Protocol
  from decap.evaluation.rollout import Evaluation
  from decap.evaluation.tables import Table


def evaluate_with_bar(
  title: str, policy: Policy, protocol: Protocol, **options: Any
) -> Evaluation:
  """Evaluate a policy, under a bar that shows how far it is."""
  from rich.markup import escape
  from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

  from decap.evaluation.rollout import evaluate

  columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
  explained = checks.explained_memory(options.get("device", "cpu"), "--envs")
  with explained, Progress(*columns) as progress:
    task = progress.add_task(escape(title), total=protocol.steps)
    show = partial(progress.update, task)
    return evaluate(policy, protocol, on_step=lambda n: show(completed=n), **options)


def print_tables(tables: Sequence[Table]) -> None:
  """One below the other, and what all of them are of."""
  from rich.console import Console

  from decap.evaluation.table_formats import to_rich

  console = Console()
  for table in tables:
    # Where a table is wider than the terminal, its lines go on in the next one.
    console.print(to_rich(table), crop=False)
  console.print(tables[0].note, markup=False)  # Labels may have brackets.


def program() -> str:
  """How to start us again: ``decap`` where the PATH has it, else as it was started."""
  script = Path(sys.argv[0])
  found = shutil.which("decap")
  # From Python, and in a fork, it may be a bare name that is no file.
  foreign = script.name != "decap" or not script.exists()
  if foreign or (found and os.path.samefile(found, script)):
    return "decap"
  return str(script)
