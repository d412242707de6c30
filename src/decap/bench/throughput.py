"""Speed of training: stock mjlab + rsl_rl, ours, and the physics below both."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from decap.bench.cases import CASES, Settings, Timing, configure_torch
from decap.bench.gpu import driver_version, is_out_of_memory, release_memory
from decap.bench.machine import describe_machine
from decap.errors import UserError
from decap.files import write_text

GPU_CASES = ("stock", "eager", "captured", "unconstrained", "physics", "mjlab-task")
CPU_CASES = ("stock", "eager", "unconstrained", "physics")
"""Without a GPU there is nothing to capture, and mjlab's task casts rays, slowly."""

REFERENCE_NUM_ENVS = 4096
"""Where mjlab's own task is measured, unless it is asked for alone."""

OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True)
class Speed:
  """One case at one number of environments."""

  case: str
  num_envs: int
  seconds: float
  """Wall time of the whole case, building it included."""
  rollout_steps_per_s: float | None = None
  train_steps_per_s: float | None = None
  """Environment steps per second of whole iterations; None for physics alone."""
  collect_ms: float | None = None
  update_ms: float | None = None
  """Milliseconds per iteration of the two stages."""
  iterations: int = 0
  busy: float | None = None
  """Share of time in which the GPU ran a kernel."""
  memory_gb: float | None = None
  error: str | None = None


def bench_throughput(
  num_envs: Sequence[int],
  device: str,
  *,
  task: str = "g1-flat",
  cases: Sequence[str] | None = None,
  seconds: float = 2.0,
  json_path: Path | None = None,
) -> list[Speed]:
  """Measure all cases at each number of environments; one broken case stops no other.

  The JSON file is rewritten after every case, so that what was measured is never lost.
  """
  configure_torch(device)
  console = make_console()
  speeds: list[Speed] = []
  for count in num_envs:
    for case in cases or _default_cases(device, count):
      settings = Settings(task, count, device, seconds)
      with console.status(f"{CASES[case][0]}, {count} environments"):
        speeds.append(measure(case, settings))
      console.print(_line(speeds[-1]), highlight=False)
      if json_path is not None:
        write_json(json_path, speeds, task, seconds)
  return speeds


def make_console() -> Console:
  """A console; a log file has no width of its own."""
  return Console(width=None if sys.stdout.isatty() else 120)


def measure(case: str, settings: Settings) -> Speed:
  """Run one case, and turn what goes wrong into a row that says so."""
  release_memory(settings.device)
  start = time.perf_counter()
  error = None
  timing = None
  try:
    timing = CASES[case][1](settings)
  except Exception as problem:
    # Only its text: the traceback would keep the environment alive.
    error = OUT_OF_MEMORY if is_out_of_memory(problem) else _first_line(problem)
  elapsed = time.perf_counter() - start
  if timing is None:
    return Speed(case, settings.num_envs, elapsed, error=error)
  return _speed(case, settings, elapsed, timing)


def summary(speeds: Sequence[Speed]) -> dict[str, dict[str, float]]:
  """The ratios that the numbers are about, by number of environments."""
  found = {(s.case, s.num_envs): s for s in speeds if s.error is None}
  out: dict[str, dict[str, float]] = {}
  for count in dict.fromkeys(s.num_envs for s in speeds):
    ours = found.get(("captured", count)) or found.get(("eager", count))
    if ours is None:
      continue
    ratios = {}
    if stock := found.get(("stock", count)):
      ratios["training_over_stock"] = _over(ours, stock, "train_steps_per_s")
      ratios["rollout_over_stock"] = _over(ours, stock, "rollout_steps_per_s")
    if reference := found.get(("mjlab-task", count)):
      ratio = _over(ours, reference, "train_steps_per_s")
      ratios["training_over_mjlab_task"] = ratio
    if physics := found.get(("physics", count)):
      ratios["rollout_over_physics"] = _over(ours, physics, "rollout_steps_per_s")
    if free := found.get(("unconstrained", count)):
      ratios["constraint_overhead"] = 1.0 - _over(ours, free, "train_steps_per_s")
    out[str(count)] = ratios
  return out


def write_json(path: Path, speeds: Sequence[Speed], task: str, seconds: float) -> None:
  """All that was measured, and on what."""
  machine = {**describe_machine(), "driver": driver_version()}
  report = {
    "benchmark": "throughput",
    "measured": "environment steps per second of rollout and of training",
    "task": task,
    "seconds": seconds,
    "machine": machine,
    "results": [asdict(speed) for speed in speeds],
    "summary": summary(speeds),
  }
  write_text(path, json.dumps(report, indent=2) + "\n")


def read_json(path: Path) -> tuple[list[Speed], str, str]:
  """What ``write_json`` wrote: speeds by number of environments, task, machine."""
  try:
    report = json.loads(path.read_text())
    speeds = [Speed(**row) for row in report["results"]]
    machine = report["machine"]
    name = machine.get("gpu") or f"{machine['cpu']}, {machine['cores']} cores"
    return sorted(speeds, key=lambda s: s.num_envs), report["task"], str(name)
  except (OSError, ValueError, KeyError, TypeError) as error:
    raise UserError(f"{path} is no file of 'decap bench --json': {error}") from error


_COLUMNS = (
  "environments",
  "case",
  "rollout, steps/s",
  "training, steps/s",
  "collect, ms",
  "update, ms",
  "GPU busy",
  "memory, GB",
)


def rows(speeds: Sequence[Speed]) -> list[tuple[str, ...]]:
  """Cells of the table, as text."""
  return [
    (
      str(s.num_envs),
      CASES[s.case][0],
      s.error or _text(s.rollout_steps_per_s, "{:,.0f}"),
      _text(s.train_steps_per_s, "{:,.0f}"),
      _text(s.collect_ms, "{:.1f}"),
      _text(s.update_ms, "{:.1f}"),
      _text(s.busy, "{:.0%}"),
      _text(s.memory_gb, "{:.1f}"),
    )
    for s in speeds
  ]


def table(speeds: Sequence[Speed], task: str) -> Table:
  """The table for a terminal."""
  view = Table(title=f"{task}: environment steps per second")
  for index, name in enumerate(_COLUMNS):
    view.add_column(name, justify="left" if index == 1 else "right")
  for cells in rows(speeds):
    view.add_row(*cells)
  return view


def markdown(speeds: Sequence[Speed]) -> str:
  """The table for a document."""
  rules = ["---:" if index != 1 else "---" for index in range(len(_COLUMNS))]
  lines = [_COLUMNS, rules, *rows(speeds)]
  return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def summary_lines(speeds: Sequence[Speed]) -> list[str]:
  """The ratios as sentences."""
  texts = {
    "training_over_stock": "training {:.2f} × stock",
    "rollout_over_stock": "rollout {:.2f} × stock",
    "training_over_mjlab_task": "training {:.2f} × mjlab's own G1 task",
    "rollout_over_physics": "rollout {:.0%} of physics alone",
    "constraint_overhead": "constraints cost {:.1%}",
  }
  return [
    f"{count} environments: "
    + ", ".join(texts[name].format(value) for name, value in ratios.items())
    for count, ratios in summary(speeds).items()
    if ratios
  ]


def _default_cases(device: str, num_envs: int) -> tuple[str, ...]:
  if device == "cpu":
    return CPU_CASES
  reference = num_envs == REFERENCE_NUM_ENVS
  return GPU_CASES if reference else tuple(c for c in GPU_CASES if c != "mjlab-task")


def _speed(case: str, settings: Settings, elapsed: float, timing: Timing) -> Speed:
  trains = timing.update_s > 0.0
  whole = timing.collect_s + timing.update_s
  return Speed(
    case=case,
    num_envs=settings.num_envs,
    seconds=elapsed,
    rollout_steps_per_s=timing.steps / timing.collect_s,
    train_steps_per_s=timing.steps / whole if trains else None,
    collect_ms=timing.collect_s * 1e3,
    update_ms=timing.update_s * 1e3 if trains else None,
    iterations=timing.iterations,
    busy=timing.busy,
    memory_gb=timing.memory_gb,
  )


def _over(speed: Speed, other: Speed, name: str) -> float:
  return getattr(speed, name) / getattr(other, name)


def _line(speed: Speed) -> str:
  what = f"{speed.num_envs:>6}  {CASES[speed.case][0]:<30}"
  if speed.error:
    return f"{what}{speed.error}"
  training = _text(speed.train_steps_per_s, "training {:>9,.0f}")
  rollout = _text(speed.rollout_steps_per_s, "rollout {:>9,.0f}")
  return f"{what}{rollout}  {training}  steps/s   ({speed.seconds:.0f} s)"


def _text(value: Any, form: str) -> str:
  return "" if value is None else form.format(value)


def _first_line(error: BaseException) -> str:
  text = str(error).strip().splitlines()
  return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
