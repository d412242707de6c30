"""``decap bench``: how fast training is here, and where the time goes."""

from __future__ import annotations

import argparse
from pathlib import Path

from decap.commands import checks
from decap.commands.options import add_device
from decap.errors import UserError
from decap.files import check_writable, write_text
from decap.tasks import TASKS

GPU_NUM_ENVS = (1024, 4096, 8192, 16384)
CPU_NUM_ENVS = (64, 256)
CASES = ("stock", "eager", "captured", "unconstrained", "physics", "mjlab-task")
FAILED = 1
"""Exit code when a case could not be measured."""


def add_options(parser: argparse.ArgumentParser) -> None:
  """What is measured, and where the numbers go."""
  add = parser.add_argument
  add(
    "what",
    nargs="?",
    choices=("training", "engines", "methods", "learning"),
    default="training",
    help="speed of training loops (default), of the two CPU physics engines or of all "
    "methods; or learning curves of our loop and stock's",
  )
  add("--num-envs", type=int, nargs="+", metavar="N", help="numbers of environments")
  add("--task", metavar="NAME", help="task to train (default: g1-flat)")
  add_device(parser)
  add("--cases", nargs="+", choices=CASES, help="a choice of cases (default: all)")
  add("--seconds", type=float, help="how long a case is measured (default: 2)")
  add("--steps", type=int, metavar="N", help="engines only: steps (default: 20)")
  add("--iterations", type=int, metavar="N", help="methods and learning only")
  add("--seeds", type=int, nargs="+", metavar="N", help="learning only (1 2 3)")
  add("--json", metavar="FILE", help="write all numbers and the machine's description")
  add("--from", dest="source", metavar="FILE", help="show stored numbers instead")
  add("--table", metavar="FILE", help="write the table as Markdown")
  add("--plot", metavar="FILE", help="draw the speeds, e.g. as speeds.png")


def run(options: argparse.Namespace) -> int:
  """Measure, print a table, write what was asked for."""
  for count in options.num_envs or ():
    checks.check_at_least("--num-envs", count, 1)
  for path in (options.json, options.table, options.plot):
    if path:
      check_writable(Path(path).parent)
  commands = {
    "training": _training,
    "engines": _engines,
    "methods": _methods,
    "learning": _learning,
  }
  return commands[options.what](options)


def _training(options: argparse.Namespace) -> int:
  _refuse(options, "steps", "iterations", "seeds")
  if options.source:
    return _stored(options)
  device = checks.check_device(options.device)
  task = _task(options)
  seconds = 2.0 if options.seconds is None else options.seconds
  if not seconds > 0:
    raise UserError(f"--seconds must be above 0, not {seconds}.")
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


def _stored(options: argparse.Namespace) -> int:
  _refuse_to_measure(options)
  from decap.bench import throughput

  return _show(options, *throughput.read_json(Path(options.source)))


def _show(options: argparse.Namespace, speeds: list, task: str, machine: str) -> int:
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


def _engines(options: argparse.Namespace) -> int:
  _refuse(
    options,
    *("task", "cases", "seconds", "table", "plot", "source", "iterations", "seeds"),
  )
  for count in options.num_envs or ():
    checks.check_num_envs(count, "cpu")
  checks.check_at_least("--steps", options.steps, 1)
  _load("cpu")
  from decap.bench.engines import bench_engines

  bench_engines(
    options.num_envs or CPU_NUM_ENVS,
    20 if options.steps is None else options.steps,
    options.json,
  )
  return 0


def _methods(options: argparse.Namespace) -> int:
  _refuse(options, "cases", "seconds", "table", "plot", "source", "steps", "seeds")
  checks.check_at_least("--iterations", options.iterations, 1)
  task, num_envs = _task(options), _one_size(options)
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


def _learning(options: argparse.Namespace) -> int:
  _refuse(options, "cases", "seconds", "table", "steps")
  checks.check_at_least("--iterations", options.iterations, 1)
  from decap.bench import learning

  if options.source:
    _refuse_to_measure(options)
    curves = learning.read_json(Path(options.source))
  else:
    task, num_envs = _task(options), _one_size(options)
    device = _device(options)
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


def _refuse(options: argparse.Namespace, *names: str, by: str = "") -> None:
  by = by or f"'decap bench {options.what}'"
  for name in names:
    if getattr(options, name) is not None:
      option = "from" if name == "source" else name.replace("_", "-")
      raise UserError(f"{by} takes no --{option}.")


def _refuse_to_measure(options: argparse.Namespace) -> None:
  settings = ("num_envs", "task", "cases", "seconds", "iterations", "seeds", "json")
  _refuse(options, *settings, by="--from measures nothing and")


def _task(options: argparse.Namespace) -> str:
  task = options.task or "g1-flat"
  if task not in TASKS:
    raise UserError(f"Unknown task '{task}' (there are {', '.join(TASKS)}).")
  return task


def _one_size(options: argparse.Namespace) -> int | None:
  if options.num_envs and len(options.num_envs) > 1:
    raise UserError(f"'decap bench {options.what}' takes one number of environments.")
  return options.num_envs[0] if options.num_envs else None


def _device(options: argparse.Namespace) -> str:
  device = checks.check_device(options.device)
  _load(device)
  return device


def _load(device: str) -> None:
  checks.announce_imports(device, "warp")
  checks.check_torch_device(device)


def _machine(device: str) -> str:
  from decap.bench.machine import describe_machine

  machine = describe_machine()
  if device == "cpu":
    return f"{machine['cpu']}, {machine['cores']} cores"
  return str(machine["gpu"])
