"""What a sweep file asks for: a list of runs, and how to go about them.

A file names tasks, methods, seeds and options; every combination is a run. Blocks
under ``runs`` change some of these keys and are expanded by themselves.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decap.errors import UserError
from decap.methods import check_options, get_method
from decap.runs import RunSpec, read_limits, start_of
from decap.sweep import values
from decap.tasks import ITERATIONS, get_task

if TYPE_CHECKING:
  from decap.evaluation.protocol import ProtocolArgs

RUN_KEYS = (
  *("name", "task", "method", "seed", "iterations", "num-envs", "blind", "limits"),
  *("init-from", "overrides", "grid"),
)
"""Keys that describe runs: at the top for all, in a block for some."""

SWEEP_KEYS = (
  *("runs", "device", "backend", "jobs", "evaluate", "time-limit", "run-time-limit"),
  *("steps-per-s", "cluster"),
)
"""Keys about the sweep as a whole, at the top only."""

CLUSTER_TEXTS = ("partition", "account", "qos", "constraint", "gpu")
CLUSTER_KEYS = (
  *CLUSTER_TEXTS,
  *("gpus", "cpus", "memory", "time", "grace", "parallel", "setup", "options"),
)
"""Keys of the section `cluster`."""

STEPS_PER_ITERATION = 24
"""Steps of each environment per iteration, unless overridden."""


@dataclass(frozen=True)
class Resources:
  """A job's share of the cluster."""

  partition: str | None = None
  account: str | None = None
  qos: str | None = None
  constraint: str | None = None
  gpu: str | None = None
  """Type of GPU, as the cluster calls it; None takes any."""
  gpus: int = 1
  """GPUs of each run, which trains on all of them."""
  cpus: int = 4
  memory_gb: float | None = None
  """None leaves it to the cluster."""
  time_s: float = 4 * 3600.0
  """Longest time of a job; then it saves, goes back into the queue, and goes on."""
  grace_s: float = 120.0
  """How long before that it is told: an iteration and a checkpoint must fit."""
  parallel: int | None = None
  """Jobs at a time; None is all."""
  setup: tuple[str, ...] = ()
  """Shell commands before each job, such as ``module load cuda``."""
  options: dict[str, Any] = field(default_factory=dict)
  """Further options of sbatch."""

  def submitit(self, device: str, parallel: int) -> dict[str, Any]:
    """Parameters of submitit's SLURM executor, for so many jobs at a time."""
    parameters: dict[str, Any] = {
      "job_name": "decap",
      "time": max(1, math.ceil(self.time_s / 60)),
      "signal_delay_s": round(self.grace_s),
      "cpus_per_task": self.cpus,
      # Since SLURM 22.05 a step does not inherit this, and would have one core.
      "srun_args": [f"--cpus-per-task={self.cpus}"],
      "array_parallelism": parallel,
      "setup": list(self.setup) or None,
      "additional_parameters": dict(self.options) or None,
      "mem": f"{self.memory_gb:g}G" if self.memory_gb else None,
      "partition": self.partition,
      "account": self.account,
      "qos": self.qos,
      "constraint": self.constraint,
    }
    if device != "cpu":
      kind = f"gpu:{self.gpu}" if self.gpu else "gpu"
      parameters["gres"] = f"{kind}:{self.gpus}"
    return {name: value for name, value in parameters.items() if value is not None}


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
  resources: Resources = Resources()
  """What a job asks of a cluster."""
  cluster: str | None = None
  """Whose jobs the runs are: None is this machine."""

  @property
  def gpus(self) -> int:
    """GPUs of one run; on this machine one process has one."""
    return self.resources.gpus if self.cluster and self.device != "cpu" else 1

  def evaluation_label(self, task: str) -> str:
    """What names the metrics file of a run of `task`: empty, or e.g. ``disturbed``."""
    if self.evaluate is None:
      return ""
    args = _evaluate_args(self.evaluate)
    return args.protocol(args.task or task).label_for(task)


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
  values.check_keys(data, RUN_KEYS + SWEEP_KEYS)
  common = {key: value for key, value in data.items() if key in RUN_KEYS}
  blocks = data.get("runs", [{}])
  if not isinstance(blocks, list) or not all(isinstance(b, dict) for b in blocks):
    raise UserError("'runs' must be a list of blocks, each a map of keys to values.")
  runs: list[PlannedRun] = []
  for block in blocks:
    values.check_keys(block, RUN_KEYS)
    # A block's keys replace the common ones; overrides are merged.
    overrides = [values.mapping(part, "overrides") for part in (common, block)]
    merged = {**common, **block, "overrides": {**overrides[0], **overrides[1]}}
    runs += _expand(merged, base)
  _check_names(runs)
  return Plan(
    runs=tuple(runs),
    device=str(data.get("device", "auto")),
    backend=values.choice(
      data.get("backend", "auto"), "backend", ("auto", "warp", "native")
    ),
    jobs=values.whole(data, "jobs", 1) if "jobs" in data else None,
    evaluate=_evaluation(data.get("evaluate", True)),
    time_limit_s=values.parse_duration(data.get("time-limit")),
    run_time_limit_s=values.parse_duration(data.get("run-time-limit")),
    steps_per_s=values.positive(data, "steps-per-s") if "steps-per-s" in data else None,
    resources=_resources(values.mapping(data, "cluster")),
  )


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
  grid = values.mapping(block, "grid")
  choices: list[list[Any]] = [
    [(key, value) for value in values.as_list(items)] for key, items in grid.items()
  ]
  # An empty value is train's default.
  given = {key: value for key, value in block.items() if value is not None}
  block = {"method": "decap", "iterations": ITERATIONS, **given}
  choices = [_names(block, "task"), _names(block, "method"), *choices, _seeds(block)]
  limits_file = base / str(block["limits"]) if block.get("limits") else None
  start = start_of(base / str(block["init-from"])) if block.get("init-from") else {}
  runs = []
  for task, method, *chosen, seed in itertools.product(*choices):
    overrides = option_tokens({**values.mapping(block, "overrides"), **dict(chosen)})
    spec = RunSpec(
      task=task,
      method=method,
      seed=seed,
      num_envs=values.whole(block, "num-envs", 1) if "num-envs" in block else None,
      iterations=values.whole(block, "iterations", 1),
      blind=values.yes(block, "blind"),
      limits=read_limits(limits_file) if limits_file else {},
      overrides=overrides,
      **start,
    )
    get_task(task)
    check_options(get_method(method), list(overrides))
    label = _label(block.get("name"), chosen)
    name = "_".join(part for part in (task, method, label, f"s{seed}") if part)
    runs.append(PlannedRun(name, spec, label, limits_file))
  return runs


def with_environments(plan: Plan, num_envs: int) -> Plan:
  """The plan with as many environments where its file says nothing."""
  runs = tuple(
    run
    if run.spec.num_envs
    else dataclasses.replace(run, spec=dataclasses.replace(run.spec, num_envs=num_envs))
    for run in plan.runs
  )
  return dataclasses.replace(plan, runs=runs)


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


def _label(name: Any, chosen: list[tuple[str, Any]]) -> str:
  parts = [str(name)] if name else []
  parts += [
    f"{key.split('.')[-1]}={'x'.join(map(str, values.as_list(value)))}"
    for key, value in chosen
  ]
  return re.sub(r"[^\w.=-]+", "-", "_".join(parts))


def _names(block: dict[str, Any], key: str) -> list[str]:
  if block.get(key) in (None, []):
    raise UserError(f"'{key}' is missing.")
  return [str(value) for value in values.as_list(block[key])]


def _seeds(block: dict[str, Any]) -> list[int]:
  seeds = values.as_list(block.get("seed", 1))
  for seed in seeds:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
      raise UserError(
        f"a seed must be a whole number from 0 on and below 2^32, not {seed!r}."
      )
  return seeds


def _resources(data: Mapping[str, Any]) -> Resources:
  """Check the section; what is left out has a default."""
  values.check_keys(data, CLUSTER_KEYS)
  found: dict[str, Any] = {
    name: str(data[name]) for name in CLUSTER_TEXTS if name in data
  }
  for key in ("gpus", "cpus", "parallel"):
    if key in data:
      found[key] = values.whole(data, key, 1)
  if "memory" in data:
    found["memory_gb"] = values.positive(data, "memory")
  for key in ("time", "grace"):
    if key in data:
      found[f"{key}_s"] = values.parse_duration(data[key])
  if "setup" in data:
    found["setup"] = tuple(str(line) for line in values.as_list(data["setup"]))
  if "options" in data:
    found["options"] = values.mapping(data, "options")
  return Resources(**found)


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
      tokens += map(str, values.as_list(item))
  # Now, and not after hours of training.
  args = _evaluate_args(tokens)
  args.protocol(args.task or "g1-flat")
  if args.limits:
    read_limits(args.limits)
  return tuple(tokens)


def _evaluate_args(tokens: Sequence[str]) -> ProtocolArgs:
  """What options of `decap evaluate` ask for."""
  from decap.evaluation.protocol import ProtocolArgs
  from decap.options.args import validate
  from decap.options.reading import read

  try:
    args = read(ProtocolArgs, tokens, "evaluate")
    validate(args)
  except UserError as error:
    raise UserError(f"'evaluate': {error}") from error
  return args


def with_options(plan: Plan, **options: Any) -> Plan:
  """The plan with those command-line options that were given."""
  given = {key: value for key, value in options.items() if value is not None}
  return dataclasses.replace(plan, **given)
