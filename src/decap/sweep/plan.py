"""What a sweep file asks for: a list of runs, and how to go about them.

A file names tasks, methods, seeds and options; every combination is a run. Blocks
under ``runs`` change some of these keys and are expanded by themselves.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decap.errors import UserError
from decap.methods import check_options, get_method
from decap.runs import RunSpec, read_limits

if TYPE_CHECKING:
  from decap.commands.evaluate import EvaluateArgs

RUN_KEYS = (
  "name",
  "task",
  "method",
  "seed",
  "iterations",
  "num-envs",
  "blind",
  "limits",
  "overrides",
  "grid",
)
"""Keys that describe runs: at the top for all, in a block for some."""

SWEEP_KEYS = (
  "runs",
  "device",
  "backend",
  "jobs",
  "evaluate",
  "time-limit",
  "run-time-limit",
  "steps-per-s",
)
"""Keys about the sweep as a whole, at the top only."""

STEPS_PER_ITERATION = 24
"""Steps of each environment per iteration, unless overridden."""


@dataclass(frozen=True)
class PlannedRun:
  """One run of a sweep."""

  name: str
  spec: RunSpec
  label: str = ""
  """What tells its run folder from others of the same method and seed."""
  limits_file: Path | None = None

  @property
  def iterations(self) -> int:
    assert self.spec.iterations is not None
    return self.spec.iterations

  @property
  def steps_per_iteration(self) -> int:
    """Environment steps of one iteration, all environments together."""
    assert self.spec.num_envs is not None
    tokens = self.spec.overrides
    steps = STEPS_PER_ITERATION
    if "--agent.num-steps-per-env" in tokens:
      steps = int(tokens[tokens.index("--agent.num-steps-per-env") + 1])
    return self.spec.num_envs * steps


@dataclass(frozen=True)
class Plan:
  """A sweep file, checked and expanded."""

  runs: tuple[PlannedRun, ...]
  device: str = "auto"
  backend: str = "auto"
  jobs: int | None = None
  """Runs at a time; None leaves it to the device."""
  evaluate: tuple[str, ...] | None = ()
  """Further options of ``decap evaluate``; None trains only."""
  time_limit_s: float | None = None
  """Seconds after which the whole sweep saves and ends."""
  run_time_limit_s: float | None = None
  """Seconds after which a run saves and makes room for the next."""
  steps_per_s: float | None = None
  """Environment steps per second of all jobs together, for the time estimate."""

  def evaluation_label(self, task: str) -> str:
    """What names the metrics file of a run of `task`: empty, or e.g. ``disturbed``."""
    if self.evaluate is None:
      return ""
    args = _evaluate_args(self.evaluate)
    away = args.task if args.task not in (None, task) else ""
    return "-".join(part for part in (away, args.protocol(task).label) if part)


def read_plan(path: str | Path) -> Plan:
  """Read a sweep file; what is wrong with it is said in one sentence."""
  import yaml

  path = Path(path)
  try:
    data = yaml.safe_load(path.read_text())
  except OSError as error:
    raise UserError(f"Cannot read the sweep file {path}: {error.strerror}.") from error
  except (yaml.YAMLError, UnicodeDecodeError) as error:
    reason = " ".join(str(error).split())
    raise UserError(f"{path} is not YAML: {reason}.") from error
  try:
    return make_plan(data, path.parent)
  except UserError as error:
    raise UserError(f"{path}: {error}") from error


def make_plan(data: Any, base: Path = Path()) -> Plan:
  """Expand the contents of a sweep file; files that it names lie below `base`."""
  if not isinstance(data, dict):
    raise UserError(f"a sweep file maps keys to values ({', '.join(RUN_KEYS)}, …).")
  _check_keys(data, RUN_KEYS + SWEEP_KEYS)
  common = {key: value for key, value in data.items() if key in RUN_KEYS}
  blocks = data.get("runs", [{}])
  if not isinstance(blocks, list) or not all(isinstance(b, dict) for b in blocks):
    raise UserError("'runs' must be a list of blocks, each a map of keys to values.")
  runs: list[PlannedRun] = []
  for block in blocks:
    _check_keys(block, RUN_KEYS)
    runs += _expand(_merge(common, block), base)
  _check_names(runs)
  return Plan(
    runs=tuple(runs),
    device=str(data.get("device", "auto")),
    backend=_choice(data.get("backend", "auto"), "backend", ("auto", "warp", "native")),
    jobs=_whole(data, "jobs", 1) if "jobs" in data else None,
    evaluate=_evaluation(data.get("evaluate", True)),
    time_limit_s=parse_duration(data.get("time-limit")),
    run_time_limit_s=parse_duration(data.get("run-time-limit")),
    steps_per_s=_positive(data, "steps-per-s") if "steps-per-s" in data else None,
  )


def parse_duration(value: Any) -> float | None:
  """Seconds of ``90``, ``"90s"``, ``"40m"`` or ``"1.5h"``; None stays None."""
  if value is None:
    return None
  match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?", str(value).strip())
  if not match or float(match[1]) <= 0:
    raise UserError(f"'{value}' is no duration; write 90s, 40m or 2h.")
  return float(match[1]) * {"m": 60, "min": 60, "h": 3600}.get(match[2], 1)


def option_tokens(options: Mapping[str, Any]) -> tuple[str, ...]:
  """Command-line tokens of overrides: ``{"agent.x": 3}`` → ``("--agent.x", "3")``."""
  tokens: list[str] = []
  for key, value in options.items():
    if not str(key).startswith(("env.", "agent.")):
      raise UserError(f"the override '{key}' must begin with 'env.' or 'agent.'.")
    # Collections are written as in Python.
    value = tuple(value) if isinstance(value, list) else value
    tokens += [f"--{key}".replace("_", "-"), str(value)]
  return tuple(tokens)


def _expand(block: dict[str, Any], base: Path) -> list[PlannedRun]:
  grid = _mapping(block, "grid")
  choices: list[list[Any]] = [
    [(key, value) for value in _as_list(values)] for key, values in grid.items()
  ]
  choices = [_names(block, "task"), _names(block, "method"), *choices, _seeds(block)]
  limits_file = base / str(block["limits"]) if block.get("limits") else None
  runs = []
  for task, method, *chosen, seed in itertools.product(*choices):
    overrides = option_tokens({**_mapping(block, "overrides"), **dict(chosen)})
    spec = RunSpec(
      task=task,
      method=method,
      seed=seed,
      num_envs=_whole(block, "num-envs", 1),
      iterations=_whole(block, "iterations", 1),
      blind=_yes(block, "blind"),
      limits=read_limits(limits_file) if limits_file else {},
      overrides=overrides,
    )
    _check_run(spec)
    label = _label(block.get("name"), chosen)
    name = "_".join(part for part in (task, method, label, f"s{seed}") if part)
    runs.append(PlannedRun(name, spec, label, limits_file))
  return runs


def _check_run(spec: RunSpec) -> None:
  from decap.tasks import TASKS

  if spec.task not in TASKS:
    raise UserError(f"unknown task '{spec.task}' (there are {', '.join(TASKS)}).")
  method = get_method(spec.method)
  check_options(method, list(spec.overrides))


def _check_names(runs: list[PlannedRun]) -> None:
  """Names tell runs apart in logs; on disk their descriptions do, but for the length."""
  for run, other in itertools.combinations(runs, 2):
    if run.name == other.name:
      raise UserError(
        f"two runs are called '{run.name}'; give their blocks different names."
      )
    if dataclasses.replace(other.spec, iterations=run.iterations) == run.spec:
      raise UserError(
        f"'{run.name}' and '{other.name}' are one run: they differ in nothing but "
        "their names and iterations."
      )


def _check_keys(data: Mapping[str, Any], known: tuple[str, ...]) -> None:
  for key in data:
    if key not in known:
      raise UserError(f"unknown key '{key}' (there are {', '.join(known)}).")


def _merge(common: dict[str, Any], block: dict[str, Any]) -> dict[str, Any]:
  """A block's keys replace the common ones; overrides are merged."""
  merged = {**common, **block}
  overrides = {**_mapping(common, "overrides"), **_mapping(block, "overrides")}
  return {**merged, "overrides": overrides}


def _label(name: Any, chosen: list[tuple[str, Any]]) -> str:
  parts = [str(name)] if name else []
  parts += [
    f"{key.split('.')[-1]}={'x'.join(map(str, _as_list(value)))}"
    for key, value in chosen
  ]
  return re.sub(r"[^\w.=-]+", "-", "_".join(parts))


def _names(block: dict[str, Any], key: str) -> list[str]:
  if block.get(key) in (None, []):
    raise UserError(f"'{key}' is missing.")
  return [str(value) for value in _as_list(block[key])]


def _seeds(block: dict[str, Any]) -> list[int]:
  seeds = _as_list(block.get("seed", 1))
  for seed in seeds:
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
      raise UserError(f"a seed must be a whole number from 0 on, not {seed!r}.")
  return seeds


def _mapping(block: Mapping[str, Any], key: str) -> dict[str, Any]:
  value = block.get(key) or {}
  if not isinstance(value, dict):
    raise UserError(f"'{key}' must map options to values.")
  return value


def _whole(block: Mapping[str, Any], key: str, least: int) -> int:
  value = block.get(key)
  if value is None:
    raise UserError(f"'{key}' is missing.")
  if isinstance(value, bool) or not isinstance(value, int) or value < least:
    raise UserError(f"'{key}' must be a whole number from {least} on, not {value!r}.")
  return value


def _positive(block: Mapping[str, Any], key: str) -> float:
  value = block[key]
  if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
    raise UserError(f"'{key}' must be above 0, not {value!r}.")
  return float(value)


def _evaluation(value: Any) -> tuple[str, ...] | None:
  """``true``, ``false``, or options of `decap evaluate` as a map."""
  if isinstance(value, bool):
    return () if value else None
  if not isinstance(value, dict):
    raise UserError("'evaluate' must be true, false or a map of its options.")
  tokens: list[str] = []
  for key, item in value.items():
    if key in ("device", "output"):
      raise UserError(f"'evaluate' takes no '{key}': it is the sweep's.")
    if item is not False:
      tokens.append(f"--{key}")
    if not isinstance(item, bool):
      tokens += map(str, _as_list(item))
  # Now, and not after hours of training.
  args = _evaluate_args(tokens)
  args.protocol(args.task or "g1-flat")
  if args.limits:
    read_limits(args.limits)
  return tuple(tokens)


def _evaluate_args(tokens: Sequence[str]) -> EvaluateArgs:
  """What options of `decap evaluate` ask for."""
  from decap.cli import Parser
  from decap.commands import evaluate

  parser = Parser(prog="decap evaluate")
  evaluate.add_options(parser)
  options, unknown = parser.parse_known_args(["RUN", *tokens])
  if unknown:
    raise UserError(f"'evaluate' has an unknown option '{unknown[0].lstrip('-')}'.")
  return evaluate.read_arguments(options)


def _yes(block: Mapping[str, Any], key: str) -> bool:
  value = block.get(key, False)
  if not isinstance(value, bool):
    raise UserError(f"'{key}' must be true or false, not {value!r}.")
  return value


def _choice(value: Any, key: str, known: tuple[str, ...]) -> str:
  if value not in known:
    raise UserError(f"'{key}' must be one of {', '.join(known)}, not {value!r}.")
  return value


def _as_list(value: Any) -> list[Any]:
  return list(value) if isinstance(value, (list, tuple)) else [value]


def with_options(plan: Plan, **options: Any) -> Plan:
  """The plan with those command-line options that were given."""
  given = {key: value for key, value in options.items() if value is not None}
  return dataclasses.replace(plan, **given)
