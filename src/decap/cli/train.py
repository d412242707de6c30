"""``decap train``: train a policy, or continue a run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from decap.cli import checks, processes
from decap.cli.training import train
from decap.errors import UserError
from decap.files import check_writable
from decap.methods import check_options, get_method
from decap.options import machine
from decap.options.types import (
  Count,
  Flag,
  InputFile,
  MaybeSeed,
  MethodName,
  Simulating,
  TaskName,
  shown,
)
from decap.rl import checkpoint_files
from decap.runs import (
  RunSpec,
  default_run_folder,
  load_spec,
  read_limits,
  run_folder,
  start_of,
)
from decap.tasks import CPU_NUM_ENVS, TASKS


@dataclass(kw_only=True)
class TrainArgs(Simulating):
  """Every config field can be overridden, e.g. --env.termination.kappa 3
  --agent.algorithm.learning-rate 3e-4. Ctrl-C saves at the next iteration boundary and
  exits with code 130; again quits at once."""

  task: TaskName = None
  """What to learn; see 'decap list'."""
  method: MethodName = None
  """How (default: decap); see 'decap list'."""
  seed: MaybeSeed = None
  """Seed of everything random (default: 1)."""
  num_envs: Count = None
  """Parallel environments (default: the task's, or 256 on a CPU)."""
  iterations: Count = None
  """Train until this iteration (default: the task's)."""
  threads: Count = None
  """Threads of C MuJoCo (default: one per core)."""
  limits: InputFile = None
  """YAML or JSON file with limits, by constraint."""
  blind: Flag = False
  """The actor does not see the gait's clock."""
  gpus: Annotated[int | None, shown("N")] = None
  """Train on N GPUs (or, on a CPU, processes)."""
  capture: Flag = True
  """No CUDA graphs on a GPU."""
  resume: Annotated[str | None, shown("RUN")] = None
  """Continue a run folder or checkpoint."""
  init_from: Annotated[str | None, shown("RUN")] = None
  """Start from the policy of a run or checkpoint."""
  verbose: Flag = False
  """Show mjlab's tables and Warp's start."""
  log_root: Annotated[str, arg(metavar="DIR")] = "runs"
  """Where run folders go."""
  run_name: Annotated[str, shown("LABEL")] = ""
  """Label of the run folder."""
  logger: Literal["tensorboard", "wandb"] = "tensorboard"
  """Where curves go (wandb writes TensorBoard events too)."""
  overrides: tuple[str, ...] = dataclasses.field(init=False, default=())
  """What was said of config fields."""

  def check(self) -> None:
    super().check()
    machine.check_num_envs(self.num_envs, self.device)
    if self.threads and (self.device != "cpu" or self.backend == "warp"):
      raise UserError(
        "--threads is for C MuJoCo: --device cpu, and not --backend warp."
      )
    if Path(self.run_name).name != self.run_name:
      raise UserError(f"--run-name must be a plain name, not '{self.run_name}'.")
    if self.logger == "wandb":
      machine.check_installed("wandb", "--logger wandb")
    if not (self.task or self.resume):
      raise UserError(f"--task is missing (there are {', '.join(TASKS)}).")

  def run(self) -> int:
    """Check everything that can be checked early, then train."""
    device = self.device
    if self.gpus is not None:
      processes.check_devices(self.gpus, device)
      processes.check_share(self.num_envs, self.gpus)
      return processes.launch(self.gpus, self.argv)
    if self.resume:
      processes.check_seen(self.resume)
    spec, checkpoint = _continued(self) if self.resume else (new_spec(self), None)
    folder = run_folder(self.resume) if self.resume else None
    check_writable(folder or self.log_root)
    folder = folder or default_run_folder(self.log_root, spec, self.run_name)
    with (
      checks.explained_memory(device),
      processes.joined(device, spec) as (device, share, threads),
    ):
      finished = train(
        spec,
        share=share,
        device=device,
        backend=self.backend,
        threads=self.threads or threads,
        logger=self.logger,
        use_graphs=self.capture,
        verbose=self.verbose,
        folder=folder,
        resume=checkpoint,
      )
    return 0 if finished else processes.INTERRUPTED


def new_spec(args: TrainArgs) -> RunSpec:
  """The run that was asked for."""
  method = get_method(args.method or "decap")
  check_options(method, list(args.overrides))
  return RunSpec(
    task=args.task or "",
    method=method.name,
    seed=1 if args.seed is None else args.seed,
    num_envs=args.num_envs or (CPU_NUM_ENVS if args.device == "cpu" else None),
    iterations=args.iterations,
    blind=args.blind,
    limits=read_limits(args.limits) if args.limits else {},
    overrides=args.overrides,
    **(start_of(args.init_from) if args.init_from else {}),
  )


def _continued(args: TrainArgs) -> tuple[RunSpec, Path]:
  """Description and checkpoint of a run to continue; only its length may change."""
  for name in ("task", "method", "seed", "num_envs", "limits", "blind"):
    if getattr(args, name) not in (None, False):
      raise UserError(
        f"--{name.replace('_', '-')} cannot change when a run is continued; "
        "it comes from the run folder."
      )
  if args.overrides:
    raise UserError(f"{args.overrides[0]} cannot change when a run is continued.")
  assert args.resume is not None
  if args.init_from:
    raise UserError("--resume and --init-from exclude each other.")
  spec = load_spec(args.resume)
  if args.iterations is not None:
    spec = dataclasses.replace(spec, iterations=args.iterations)
  path = checkpoint_files.resolve(args.resume)
  latest = checkpoint_files.resolve(run_folder(path))
  if not path.samefile(latest):
    raise UserError(
      f"{path} is older than {latest.name}, from which its run goes on; delete the "
      "newer ones to go back, or start another run with --init-from."
    )
  done, end = checkpoint_files.iteration_of(path), spec.iterations
  if done is not None and end is not None:
    if done > end or (done == end and _exported(run_folder(path), done)):
      raise UserError(
        f"{path} is at iteration {done} of {end}; give a larger --iterations."
      )
  return spec, path


def _exported(folder: Path, iteration: int) -> bool:
  """Whether a run has the bundle of its end; a kill may have come before that."""
  from decap.deploy.bundle import read_info

  try:
    return read_info(folder / "policy")["iteration"] == iteration
  except UserError:
    return False
