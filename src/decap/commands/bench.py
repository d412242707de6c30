"""``decap bench``: how fast training is here, and where the time goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from tyro.conf import Positional, arg

from decap.commands import checks
from decap.commands.args import SEED, above
from decap.commands.options import Computing, Count, Counts, OutputFile, TaskName, shown
from decap.errors import UserError
from decap.files import write_text

GPU_NUM_ENVS = (1024, 4096, 8192, 16384)
CPU_NUM_ENVS = (64, 256)
Case = Literal["stock", "eager", "captured", "unconstrained", "physics", "mjlab-task"]
CASES = get_args(Case)
FAILED = 1
"""Exit code when a case could not be measured."""


@dataclass(kw_only=True)
class BenchArgs(Computing):
  """What is measured, and where the numbers go."""

  what: Positional[Literal["training", "engines", "methods", "learning"]] = "training"
  """Speed of training loops, of the two CPU physics engines or of all methods; or
  learning curves of our loop and stock's."""
  num_envs: Counts = None
  """Numbers of environments."""
  task: TaskName = None
  """Task to train (default: g1-flat)."""
  cases: Annotated[tuple[Case, ...] | None, shown("CASE [CASE ...]")] = None
  """A choice of cases (default: all)."""
  seconds: Annotated[float | None, shown("S"), above(0)] = None
  """How long a case is measured (default: 2)."""
  steps: Count = None
  """Engines only: steps (default: 20)."""
  iterations: Count = None
  """Methods and learning only."""
  seeds: Annotated[tuple[int, ...] | None, shown("N [N ...]"), SEED] = None
  """Learning only (default: 1 2 3)."""
  json: OutputFile = None
  """Write all numbers and the machine's description."""
  source: Annotated[
    str | None, arg(name="from", metavar="FILE", help_behavior_hint="")
  ] = None
  """Show stored numbers instead."""
  table: OutputFile = None
  """Write the table as Markdown."""
  plot: OutputFile = None
  """Draw the speeds, e.g. as speeds.png."""

  def run(self) -> int:
    """Measure, print a table, write what was asked for."""
    return run(self)


def run(options: BenchArgs) -> int:
  """Measure, print a table, write what was asked for."""
  commands = {
    "training": _training,
    "engines": _engines,
    "methods": _methods,
    "learning": _learning,
  }
  return commands[options.what](options)


def _training(options: BenchArgs) -> int:
  _refuse(options, "steps", "iterations", "seeds")
  if options.source:
    return _stored(options)
  device = options.device
  task = options.task or "g1-flat"
  seconds = 2.0 if options.seconds is None else options.seconds
  if device == "cpu" and "captured" in (options.cases or ()):
    raise UserError("The case 'captured' needs a GPU.")
  _load(device)
  from decap.bench import throughput

  speeds = throughput.bench_throughput(
    options.num_envs or (CPU_NUM_ENVS if device == "cpu" else GPU_NUM_ENVS),
    device,
    task=task,
    cases=options.cases,
    seconds=seconds,
    json_path=Path(options.json) if options.json else None,
  )
  return _show(options, speeds, task, _machine(device))


def _stored(options: BenchArgs) -> int:
  _refuse_to_measure(options)
  from decap.bench import throughput

  return _show(options, *throughput.read_json(Path(options.source)))


def _show(options: BenchArgs, speeds: list, task: str, machine: str) -> int:
  """Table, ratios and what was asked for; the exit code."""
  from decap.bench import plot, throughput

  throughput.make_console().print(throughput.table(speeds, task))
  print("\n".join(throughput.summary_lines(speeds)))
  if options.table:
    write_text(options.table, throughput.markdown(speeds))
  if options.plot:
    plot.plot_speeds(speeds, Path(options.plot), f"{task} on {machine}")
  broken = [s for s in speeds if s.error not in (None, throughput.OUT_OF_MEMORY)]
  return FAILED if broken else 0


def _engines(options: BenchArgs) -> int:
  _refuse(
    options,
    *("task", "cases", "seconds", "table", "plot", "source", "iterations", "seeds"),
  )
  for count in options.num_envs or ():
    checks.check_num_envs(count, "cpu")
  _load("cpu")
  from decap.bench.engines import bench_engines

  bench_engines(
    options.num_envs or CPU_NUM_ENVS,
    20 if options.steps is None else options.steps,
    options.json,
  )
  return 0


def _methods(options: BenchArgs) -> int:
  _refuse(options, "cases", "seconds", "table", "plot", "source", "steps", "seeds")
  task, num_envs = options.task or "g1-flat", _one_size(options)
  device = _device(options)
  from decap.bench.methods import bench_methods

  bench_methods(
    num_envs or (64 if device == "cpu" else 2048),
    device,
    task=task,
    iterations=options.iterations or 60,
    json_path=Path(options.json) if options.json else None,
  )
  return 0


def _learning(options: BenchArgs) -> int:
  _refuse(options, "cases", "seconds", "table", "steps")
  if options.source:
    _refuse_to_measure(options)
  task, num_envs = options.task or "g1-flat", _one_size(options)
  device = "" if options.source else _device(options)
  from decap.bench import learning

  if options.source:
    curves = learning.read_json(Path(options.source))
  else:
    curves = learning.bench_learning(
      num_envs or (64 if device == "cpu" else 1024),
      device,
      task=task,
      seeds=options.seeds or (1, 2, 3),
      iterations=options.iterations or 150,
      json_path=Path(options.json) if options.json else None,
    )
  print("\n".join(learning.table(curves)))
  if options.plot:
    learning.plot(curves, Path(options.plot))
  return 0


def _refuse(options: BenchArgs, *names: str, by: str = "") -> None:
  by = by or f"'decap bench {options.what}'"
  for name in names:
    if getattr(options, name) is not None:
      option = "from" if name == "source" else name.replace("_", "-")
      raise UserError(f"{by} takes no --{option}.")


def _refuse_to_measure(options: BenchArgs) -> None:
  settings = ("num_envs", "task", "cases", "seconds", "iterations", "seeds", "json")
  _refuse(options, *settings, by="--from measures nothing and")


def _one_size(options: BenchArgs) -> int | None:
  if options.num_envs and len(options.num_envs) > 1:
    raise UserError(f"'decap bench {options.what}' takes one number of environments.")
  return options.num_envs[0] if options.num_envs else None


def _device(options: BenchArgs) -> str:
  _load(options.device)
  return options.device


def _load(device: str) -> None:
  checks.announce_imports(device, "warp")
  checks.check_torch_device(device)


def _machine(device: str) -> str:
  from decap.bench.machine import describe_machine

  machine = describe_machine()
  if device == "cpu":
    return f"{machine['cpu']}, {machine['cores']} cores"
  return str(machine["gpu"])
