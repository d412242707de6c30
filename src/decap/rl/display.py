"""What a user sees while a policy trains: a live panel, or one line per iteration."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

Log = dict[str, float]
D = TypeVar("D")


@dataclass(frozen=True)
class Status:
  """Where a run stands after an iteration, and what its file says of it."""

  iteration: int
  total: int
  steps_per_s: float
  """Environment steps per second of this iteration, learning included."""
  left_s: float
  """Estimated seconds until the run is done."""
  values: dict[str, float] = field(default_factory=dict)
  """The numbers of the screen, such as ``reward``; see `headline_values`."""
  time: str = ""
  """When this was, UTC."""


class Lines:
  """A screen of lines, for log files and pipes."""

  def message(self, text: str) -> None:
    """Show a line that stays."""
    print(text, flush=True)


class LivePanel:
  """A screen that is redrawn in place."""

  def __init__(self, live: Any):
    self.live = live

  def message(self, text: str) -> None:
    """Show a line that stays, above the panel."""
    self.live.console.print(text, markup=False, highlight=False)


class PlainDisplay(Lines):
  """One line per iteration."""

  def update(self, progress: Status, log: Log) -> None:
    """Show the iteration that has just ended."""
    digits = len(str(progress.total))
    parts = [f"{progress.iteration:>{digits}}/{progress.total}"]
    parts += [f"{name} {value}" for name, value in headline(log)]
    worst = max(violations(log).items(), key=lambda item: item[1], default=None)
    if worst:
      parts.append(f"worst {worst[0]} {worst[1]:.1%}")
    parts.append(f"{progress.steps_per_s:.0f} steps/s")
    parts.append(f"left {duration(progress.left_s)}")
    self.message("  ".join(parts))


class LiveDisplay(LivePanel):
  """A progress bar and a table of the constraints."""

  def update(self, progress: Status, log: Log) -> None:
    """Show the iteration that has just ended."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    bar = Table.grid(padding=(0, 1))
    bar.add_row(
      f"{progress.iteration}/{progress.total}",
      ProgressBar(total=progress.total, completed=progress.iteration, width=40),
      f"left {duration(progress.left_s)}",
      f"{progress.steps_per_s:.0f} steps/s",
    )
    line = "   ".join(f"{name} [bold]{value}[/bold]" for name, value in headline(log))
    # As text of its own: a message is printed without markup, and draws all anew.
    text = Text.from_markup(line)
    self.live.update(Group(bar, text, _constraint_grid(log)), refresh=True)


@contextlib.contextmanager
def make_display(plain: Callable[[], D], live: Callable[[Any], D]) -> Iterator[D]:
  """Live, in a panel of rich, on a terminal that it can draw on; plain lines otherwise."""
  if not sys.stdout.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
    yield plain()
    return
  from rich.live import Live

  with Live(auto_refresh=False) as panel:
    yield live(panel)


def make_console() -> Any:
  """A console; a log file has no width of its own."""
  from rich.console import Console

  return Console(width=None if sys.stdout.isatty() else 120)


_HEADLINE = {
  "episode": ("Train/episode_length", "{:.0f} steps"),
  "reward": ("Train/reward", "{:.2f}"),
  "error": ("", "{:.2f} m/s"),
  "δ̄": ("Constraint/delta", "{:.3f}"),
  "applied": ("Constraint/delta_applied", "{:.2%}"),
  "followed": ("Eval/followed", "{:.0%}"),
  "gait": ("Eval/gait", "{:+.2f}"),
}
"""Name → where it is in the log, and how it is printed."""


def headline_values(log: Mapping[str, float]) -> dict[str, float]:
  """The few numbers that tell how a run is doing, by name."""
  keys = {name: key for name, (key, _) in _HEADLINE.items()}
  keys["error"] = tracking_error(log) or ""
  values = {name: log[key] for name, key in keys.items() if key in log}
  if "applied" in values:  # As a share: how much of the constraints is in force.
    values["applied"] /= values.get("δ̄") or 1.0
  return values


def headline(log: Mapping[str, float]) -> list[tuple[str, str]]:
  """The same as (name, text)."""
  return [(n, _HEADLINE[n][1].format(v)) for n, v in headline_values(log).items()]


def tracking_error(log: Mapping[str, float]) -> str | None:
  """Name of the logged error of the commanded planar velocity, if there is one."""
  names = (k for k in log if k.startswith("Metrics/") and k.endswith("error_vel_xy"))
  return next(names, None)


def violations(log: Log) -> dict[str, float]:
  """Constraint row → share of steps with at least one joint above its limit."""
  prefix, suffix = "Constraint/", "/violation"
  return {
    key[len(prefix) : -len(suffix)]: value
    for key, value in log.items()
    if key.startswith(prefix) and key.endswith(suffix)
  }


def duration(seconds: float) -> str:
  """Seconds as h:mm:ss."""
  seconds = int(seconds)
  return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _constraint_grid(log: Log):
  from rich.table import Table

  table = Table(box=None, header_style="dim")
  table.add_column("constraint")
  for column in ("mean", "max", "violated", "decides δ̄"):
    table.add_column(column, justify="right")
  for row, violated in violations(log).items():
    table.add_row(
      row,
      f"{log.get(f'Constraint/{row}/mean', 0.0):.2f}",
      f"{log.get(f'Constraint/{row}/max', 0.0):.1f}",
      f"{violated:.1%}",
      f"{log.get(f'Constraint/{row}/share', 0.0):.0%}",
    )
  return table


class Stopwatch:
  """Times of the parts of an iteration, and the time left of a run.

  Work on a GPU goes on after its launch; a lap waits for it.
  """

  def __init__(self, device: str = "cpu"):
    self._device = device
    self._start = self._last = time.perf_counter()

  def lap(self) -> float:
    """Seconds since the last lap."""
    if self._device != "cpu":
      import torch

      torch.cuda.synchronize(self._device)
    now = time.perf_counter()
    lap, self._last = now - self._last, now
    return lap

  def left(self, done: int, remaining: int) -> float:
    """Seconds that `remaining` iterations will take if they are like the `done` ones."""
    return (self._last - self._start) / done * remaining
