"""What a sweep file asks for: a list of runs, and how to go about them.

A file names tasks, methods, seeds and options; every combination is a run. Blocks
under ``runs`` change some of these keys and are expanded by themselves.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Fixed, arg

from decap.errors import UserError
from decap.evaluation.protocol import Protocol, ProtocolArgs
from decap.files import read_yaml
from decap.methods import get_method
from decap.options.args import FINITE, SEED, Args, above, at_least
from decap.options.overrides import check_options
from decap.options.types import Backend, Count, Flag, Methods, Tasks
from decap.runs import LONGEST_LABEL, RunSpec, read_limits, start_of
from decap.sweep.sections import Time, as_list, keys, read_section, seconds, tokens
from decap.tasks import CPU_NUM_ENVS, ITERATIONS, NUM_ENVS, folder_name

Amount = Annotated[float | None, FINITE, above(0)]
STEPS_PER_ITERATION = 24
"""Steps of each environment per iteration, unless overridden."""


@dataclass(kw_only=True)
class RunKeys(Args):
  """Keys that describe runs: at the top for all, in a block for some."""

  name: str = ""
  task: Tasks = ()
  method: Methods = ("decap",)
  seed: Annotated[tuple[int, ...], SEED] = (1,)
  iterations: Annotated[int, at_least(1)] = ITERATIONS
  num_envs: Count = None
  blind: Flag = False
  limits: str | None = None
  init_from: str | None = None
  overrides: Fixed[dict[str, Any]] = field(default_factory=dict)
  grid: Fixed[dict[str, Any]] = field(default_factory=dict)


@dataclass(kw_only=True)
class Resources(Args):
  """The section `cluster`: a job's share of it."""

  partition: str | None = None
  account: str | None = None
  qos: str | None = None
  constraint: str | None = None
  gpu: str | None = None
  """Type of GPU, as the cluster calls it; None takes any."""
  gpus: Annotated[int, at_least(1)] = 1
  """GPUs of each run, which trains on all of them."""
  cpus: Annotated[int, at_least(1)] = 4
  memory: Amount = None
  """In GB; None leaves it to the cluster."""
  time: Time = "4h"
  """Longest time of a job; then it saves, goes back into the queue, and goes on."""
  grace: Time = "2m"
  """How long before that it is told: an iteration and a checkpoint must fit."""
  parallel: Count = None
  """Jobs at a time; None is all."""
  setup: tuple[str, ...] = ()
  """Shell commands before each job, such as ``module load cuda``."""
  options: Fixed[dict[str, Any]] = field(default_factory=dict)
  """Further options of sbatch."""

  def check(self) -> None:
    if seconds(self.grace) >= seconds(self.time):
      raise UserError("--grace must be shorter than --time.")

  def submitit(self, device: str, parallel: int) -> dict[str, Any]:
    """Parameters of submitit's SLURM executor, for so many jobs at a time."""
    names = ("partition", "account", "qos", "constraint")
    kind = f"gpu:{self.gpu}" if self.gpu else "gpu"
    parameters: dict[str, Any] = {
      "job_name": "decap",
      "time": max(1, math.ceil(seconds(self.time) / 60)),
      "signal_delay_s": round(seconds(self.grace)),
      "cpus_per_task": self.cpus,
      # Since SLURM 22.05 a step does not inherit this, and would have one core.
      "srun_args": [f"--cpus-per-task={self.cpus}"],
      "array_parallelism": parallel,
      "setup": list(self.setup) or None,
      "additional_parameters": dict(self.options) or None,
      "mem": f"{round(1024 * self.memory)}M" if self.memory else None,
      "gres": f"{kind}:{self.gpus}" if device != "cpu" else None,
      **{name: getattr(self, name) for name in names},
    }
    return {name: value for name, value in parameters.items() if value is not None}


@dataclass(kw_only=True)
class EvaluationKeys(ProtocolArgs):
  """The section `evaluate`: options of `decap evaluate`, on a machine named later."""

  device: str = "auto"

  def check(self) -> None:
    self.check_protocol()

  def settle(self, device: str) -> None:
    """Where: this machine, which must have what it takes."""
    self.device = device
    try:
      super().check()
    except UserError as error:
      raise UserError(f"'evaluate': {error}") from error


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
    steps, given = "--agent.num-steps-per-env", self.spec.overrides
    own = given[given.index(steps) + 1] if steps in given else ""
    # What is no number is told when the run's configs are built.
    return self.spec.num_envs * (int(own) if own.isdecimal() else STEPS_PER_ITERATION)


@dataclass(kw_only=True)
class Plan(RunKeys):
  """A sweep file: what its runs have in common, how to go about them, and the runs."""

  runs: Fixed[Any] = ()
  """Blocks of run keys; once expanded, all planned runs."""
  devices: Annotated[tuple[str, ...], arg(name="device")] = ("auto",)
  """Once settled, GPUs that share the runs out, or one CPU."""
  backend: Backend = "auto"
  jobs: Count = None
  """Runs at a time on each of them; None leaves it to their kind."""
  evaluate: Fixed[Any] = field(default_factory=dict)
  """Further options of ``decap evaluate``; False trains only."""
  evaluation: EvaluationKeys = field(init=False, default_factory=EvaluationKeys)
  """What they say; read once, since a look at a run must not fail."""
  counted: dict[str, Any] = field(init=False, default_factory=dict)
  """Limits that violations are counted against, where `evaluate` names a file of them."""
  steps_per_s: Amount = None
  """Environment steps per second of all jobs of one device, for the time estimate."""
  cluster: Fixed[dict[str, Any]] = field(default_factory=dict)
  resources: Resources = field(init=False, default_factory=Resources)
  """What a job asks of a cluster, by that section."""
  slurm: bool = field(init=False, default=False)
  """Whether the runs are jobs of one."""

  @property
  def gpus(self) -> int:
    """GPUs of one run; on this machine one process has one."""
    return self.resources.gpus if self.slurm and not self.on_cpu else 1

  @property
  def on_cpu(self) -> bool:
    return self.devices == ("cpu",)

  def settle(self, devices: tuple[str, ...], jobs: int) -> None:
    """Where and how many at a time, with as many environments as `decap train` takes
    there where the file says nothing."""
    self.devices, self.jobs = devices, jobs
    default = CPU_NUM_ENVS if self.on_cpu else NUM_ENVS
    self.runs = tuple(
      replace(run, spec=replace(run.spec, num_envs=run.spec.num_envs or default))
      for run in self.runs
    )

  def protocol(self, task: str) -> Protocol:
    """How a run of `task` is evaluated."""
    return self.evaluation.protocol(self.evaluation.task or task)

  def evaluation_label(self, task: str) -> str:
    """What names the metrics file of a run of `task`: empty, or e.g. ``disturbed``."""
    return self.protocol(task).label_for(task)


def read_plan(path: str | Path) -> Plan:
  """Read a sweep file; what is wrong with it is said in one sentence."""
  path = Path(path)
  data = read_yaml(path, "sweep file")
  try:
    return make_plan(data, path.parent)
  except UserError as error:
    raise UserError(f"{path}: {error}") from error


def make_plan(data: Any, base: Path = Path()) -> Plan:
  """Expand the contents of a sweep file; files that it names lie below `base`."""
  if not isinstance(data, dict):
    raise UserError("a sweep file maps keys to values (task, method, seed, …).")
  plan = read_section(Plan, data)
  blocks = [{}] if data.get("runs") is None else data["runs"]
  if not isinstance(blocks, list) or not all(isinstance(b, dict) for b in blocks):
    raise UserError("'runs' must be a list of blocks, each a map of keys to values.")
  common = {key: value for key, value in data.items() if key in keys(RunKeys)}
  plan.runs = tuple(run for block in blocks for run in _expand(common, block, base))
  if not plan.runs:
    raise UserError("there are no runs: 'runs', 'seed' or 'grid' is empty.")
  _check_names(plan.runs)
  if plan.evaluate is True:
    plan.evaluate = {}
  if plan.evaluate is not False:  # Now, and not after hours of training.
    plan.evaluation = _evaluation(plan.evaluate)
    if limits := plan.evaluation.limits:
      plan.counted = read_limits(base / limits)
      plan.evaluate = {**plan.evaluate, "limits": base / limits}
  plan.resources = read_section(Resources, plan.cluster)
  return plan


def _expand(
  common: Mapping[str, Any], changed: Mapping[str, Any], base: Path
) -> Iterator[PlannedRun]:
  """All runs of a block, whose keys replace the common ones; overrides are merged."""
  block = read_section(RunKeys, {**common, **changed})
  for key in ("task", "method"):
    if not getattr(block, key):
      raise UserError(f"'{key}' is missing.")
  fixed = {**(common.get("overrides") or {}), **block.overrides}
  grid = [[(key, v) for v in as_list(items)] for key, items in block.grid.items()]
  limits_file = base / block.limits if block.limits else None
  limits = read_limits(limits_file) if limits_file else {}
  same: dict[str, Any] = {"num_envs": block.num_envs, "iterations": block.iterations}
  same |= {"blind": block.blind, "limits": limits}
  same |= start_of(base / block.init_from) if block.init_from else {}
  for task, method, *chosen, seed in itertools.product(
    block.task, block.method, *grid, block.seed
  ):
    overrides = option_tokens({**fixed, **dict(chosen)})
    check_options(get_method(method), list(overrides))
    spec = RunSpec(task, method, seed, overrides=overrides, **same)
    label = _label(block.name, chosen)
    name = "_".join(
      part for part in (folder_name(task), method, label, f"s{seed}") if part
    )
    yield PlannedRun(name, spec, label, limits_file)


def option_tokens(options: Mapping[str, Any]) -> tuple[str, ...]:
  """Command-line tokens of overrides: ``{"agent.x": 3}`` → ``("--agent.x", "3")``."""
  for key in options:
    if not str(key).startswith(("env.", "agent.")):
      raise UserError(f"the override '{key}' must begin with 'env.' or 'agent.'.")
  # Collections are written as in Python.
  written = {
    key.replace("_", "-"): str(tuple(value) if isinstance(value, list) else value)
    for key, value in options.items()
  }
  return tuple(tokens(written))


def _check_names(runs: Sequence[PlannedRun]) -> None:
  """Names tell runs apart in logs; on disk their descriptions do, but for the length."""
  for run in runs:
    if len(run.label) > LONGEST_LABEL:
      raise UserError(
        f"'{run.label}' is too long for a folder's name: give its values as 'overrides' "
        "of a block with a name."
      )
  for run, other in itertools.combinations(runs, 2):
    if run.name == other.name:
      raise UserError(
        f"two runs are called '{run.name}'; give their blocks different names."
      )
    if replace(other.spec, iterations=run.iterations) == run.spec:
      raise UserError(
        f"'{run.name}' and '{other.name}' are one run: they differ in nothing but "
        "their names and iterations."
      )


def _label(name: str, chosen: Sequence[tuple[str, Any]]) -> str:
  parts = [name] if name else []
  for key, value in chosen:
    parts.append(f"{key.split('.')[-1]}={'x'.join(map(str, as_list(value)))}")
  return re.sub(r"[^\w.=-]+", "-", "_".join(parts))


def _evaluation(options: Any) -> EvaluationKeys:
  """What options of `decap evaluate` ask for."""
  if not isinstance(options, dict):
    raise UserError("'evaluate' must be true, false or a map of its options.")
  if "device" in options:
    raise UserError("'evaluate' takes no 'device': it is the sweep's.")
  try:
    return read_section(EvaluationKeys, options)
  except UserError as error:
    raise UserError(f"'evaluate': {error}") from error
