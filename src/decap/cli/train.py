"""``decap train``: train a policy, or continue a run, with all errors as sentences."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import shlex
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from decap import provenance, runs
from decap.cli import checks, processes
from decap.cli.terminal import program
from decap.errors import UserError
from decap.files import check_writable
from decap.lock import one_writer
from decap.methods import get_method
from decap.options import machine, types
from decap.options.overrides import check_options
from decap.rl import checkpoint_files
from decap.runs import RunSpec
from decap.tasks import CPU_NUM_ENVS, TASKS, get_task, is_own

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnvCfg
  from decap.rl.config import AgentCfg
  from decap.rl.runner import OnIteration, Runner


@dataclass(kw_only=True)
class TrainArgs(types.Simulating):
  """Every config field can be overridden, e.g. --env.termination.kappa 3
  --agent.algorithm.learning-rate 3e-4. Ctrl-C saves at the next iteration boundary and
  exits with code 130; again quits at once."""

  task: types.TaskName = None
  """What to learn; see 'decap list', or package.module:name of your own."""
  method: types.MethodName = None
  """How (default: decap); see 'decap list'."""
  seed: types.MaybeSeed = None
  """Seed of everything random (default: 1)."""
  num_envs: types.Count = None
  """Parallel environments (default: the task's, or 256 on a CPU)."""
  iterations: types.Count = None
  """Train until this iteration (default: the task's)."""
  threads: types.Count = None
  """Threads of C MuJoCo (default: one per core)."""
  limits: types.InputFile = None
  """YAML or JSON file with limits, by constraint."""
  blind: types.Flag = False
  """The actor does not see the gait's clock."""
  gpus: Annotated[int | None, types.shown("N")] = None
  """Train on N GPUs (or, on a CPU, processes)."""
  capture: types.Flag = True
  """No CUDA graphs on a GPU."""
  resume: Annotated[str | None, types.shown("RUN")] = None
  """Continue a run folder or checkpoint."""
  init_from: Annotated[str | None, types.shown("RUN")] = None
  """Start from the policy of a run or checkpoint."""
  verbose: types.Flag = False
  """Show mjlab's tables and Warp's start."""
  log_root: Annotated[str, arg(metavar="DIR")] = "runs"
  """Where run folders go."""
  run_name: Annotated[str, types.shown("LABEL")] = ""
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
    label, most = self.run_name, runs.LONGEST_LABEL
    if Path(label).name != label or len(label) > most:
      raise UserError(
        f"--run-name must be a plain name, at most {most} letters, not '{label}'."
      )
    if self.logger == "wandb":
      machine.check_installed("wandb", "--logger wandb")
    if not (self.task or self.resume):
      raise UserError(f"--task is missing (there are {', '.join(TASKS)}).")

  def run(self) -> int:
    """Check everything that can be checked early, then train."""
    if self.gpus is not None:
      processes.check_devices(self.gpus, self.device)
    if self.resume:
      processes.check_seen(self.resume)
      spec, resume = _continued(self)
      folder = runs.run_folder(self.resume)
      check_writable(folder)
    else:
      spec, resume = new_spec(self), None
      check_writable(self.log_root)
      folder = runs.default_run_folder(self.log_root, spec, self.run_name)
    if self.gpus is not None:
      processes.check_share(spec.num_envs, self.gpus)
      return processes.launch(self.gpus, self.argv)
    with (
      checks.explained_memory(self.device),
      processes.joined(self, spec) as share,
    ):
      finished = train(spec, folder, self, share=share, resume=resume)
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
    limits=runs.read_limits(args.limits) if args.limits else {},
    overrides=args.overrides,
    **(runs.start_of(args.init_from) if args.init_from else {}),
  )


def _continued(args: TrainArgs) -> tuple[RunSpec, Path]:
  """Description and checkpoint of a run to continue; only its length may change."""
  from_folder = "cannot change when a run is continued; it comes from the run folder."
  names = ("method", "seed", "num_envs", "limits", "blind", "run_name", "log_root")
  for name in names:
    if getattr(args, name) != getattr(TrainArgs, name):
      raise UserError(f"--{name.replace('_', '-')} {from_folder}")
  if args.overrides:
    raise UserError(f"{args.overrides[0]} cannot change when a run is continued.")
  assert args.resume is not None
  if args.init_from:
    raise UserError("--resume and --init-from exclude each other.")
  spec = runs.load_spec(args.resume)
  if args.task not in (None, spec.task):
    raise UserError(f"--task {from_folder}")
  get_task(spec.task)  # Or say that it has to be named.
  if args.iterations is not None:
    spec = dataclasses.replace(spec, iterations=args.iterations)
  path = checkpoint_files.resolve(args.resume)
  latest = checkpoint_files.resolve(runs.run_folder(path))
  if not path.samefile(latest):
    raise UserError(
      f"{path} is older than {latest.name}, from which its run goes on; delete the "
      "newer ones to go back, or start another run with --init-from."
    )
  done, end = checkpoint_files.iteration_of(path), spec.iterations
  if done is not None and end is not None:
    if done > end or (done == end and runs.exported(runs.run_folder(path)) == done):
      raise UserError(
        f"{path} is at iteration {done} of {end}; give a larger --iterations."
      )
  return spec, path


def train(
  spec: RunSpec,
  folder: Path,
  options: TrainArgs,
  *,
  share: RunSpec | None = None,
  resume: Path | None = None,
  quiet: bool = False,
  on_iteration: OnIteration | None = None,
) -> bool:
  """Train as described; False if the user, or the caller, stopped it early.

  `quiet` does not say what to do next. Of the options it takes those of machine and
  screen; what decides the result is in `spec`.
  The run folder appears only when the configs are checked and the environment stands.
  Of several processes each takes its `share` of the environments, and the first writes.
  """
  writes = processes.is_first()
  with contextlib.ExitStack() as writer:
    if resume and writes:
      writer.enter_context(one_writer(folder))
    checks.announce_imports(options.device, options.backend)
    start = _start(spec, folder, resume)
    env_cfg, agent_cfg = _checked_configs(share or spec, options)
    made_by = provenance.made_by(folder if resume else None)
    runner = _make_runner(
      spec,
      env_cfg,
      agent_cfg,
      folder if writes else None,
      options,
      on_iteration,
      made_by,
    )
    if start:
      (runner.resume if resume else runner.init_from)(start)
    if writes:
      if resume:
        runs.write_spec(folder, spec)
      else:
        folder = runs.create_run_folder(folder, spec, env_cfg, agent_cfg)
        runner.run_dir = folder
        writer.enter_context(one_writer(folder))
      writer.push(partial(_leave_no_empty, folder))
      provenance.remember(folder, made_by, runner.iteration)
      what = f"Training {spec.method} on {spec.task}, seed {spec.seed}"
      print(f"{what}: {folder}", flush=True)
    finished = runner.learn()
    runner.env.close()
    if writes:
      from decap.export import export_checkpoint

      export_checkpoint(checkpoint_files.resolve(folder), folder / "policy")
  if writes and not quiet:
    _say_next(spec, folder, finished, runner)
  return finished


def _start(spec: RunSpec, folder: Path, resume: Path | None) -> Path | None:
  """The checkpoint to start from: where that of a run is damaged, the one before.

  The damaged one keeps its contents under another name, so that it is not found again.
  What else is wrong with it is better told before the long work.
  """
  path = resume or (Path(spec.init_from) if spec.init_from else None)
  if path is None:
    return None
  from decap.rl import checkpoint

  try:
    state = checkpoint.load(path)
  except UserError as error:
    older = [p for _, p in checkpoint_files.list_checkpoints(folder) if p != path]
    if not resume or not older:
      raise
    with contextlib.suppress(FileNotFoundError):  # Another process was faster.
      path.rename(path.with_name(f"{path.name}.damaged"))
    print(f"{str(error).removesuffix('.')}; going on from {older[-1].name}.")
    return _start(spec, folder, older[-1])
  if resume:
    checkpoint.require_continuable(state, path)
  task = get_task(spec.task)
  if task.robot is not None:
    checkpoint.require_joints(state, path, task.describe().joint_names)
  return path


def _checked_configs(
  spec: RunSpec, options: TrainArgs
) -> tuple[ConstrainedEnvCfg, AgentCfg]:
  """Configs of a run, once all that can be wrong with it before the long work is not."""
  env_cfg, agent_cfg = runs.build_configs(spec)
  env_cfg.num_threads = options.threads or 0
  agent_cfg.logger = options.logger
  envs, number = env_cfg.scene.num_envs, processes.count()
  checks.check_torch_device(options.device, envs)
  each = f" in each of {number} processes" if number > 1 else ""
  print(
    f"Building {envs} environments of {spec.task} on {options.device}{each} …",
    flush=True,
  )
  return env_cfg, agent_cfg


def _make_runner(
  spec: RunSpec,
  env_cfg: ConstrainedEnvCfg,
  agent_cfg: AgentCfg,
  folder: Path | None,
  options: TrainArgs,
  on_iteration: OnIteration | None,
  made_by: dict[str, Any],
) -> Runner:
  """Environment and runner of a method, with their config errors as sentences."""
  from mjlab.utils.torch import configure_torch_backends

  from decap.envs.build import make_env
  from decap.evaluation.environment import missing
  from decap.evaluation.probe import Probe
  from decap.export import describe
  from decap.rl.runner import Runner

  place = (options.device, options.backend)
  # A copy now: building the environment puts objects into its config.
  cfg = copy.deepcopy(env_cfg)
  make_probe = None
  if folder and not missing(spec.task, cfg):
    make_probe = partial(Probe, cfg, get_task(spec.task).describe(), *place)
  configure_torch_backends()
  env = make_env(env_cfg, *place, verbose=options.verbose)
  description = describe(env, spec, agent_cfg) | {"made_by": made_by}
  try:
    return Runner(
      env,
      agent_cfg,
      folder,
      info={"run": spec.to_dict(), "policy": description},
      on_iteration=on_iteration,
      use_graphs=options.capture,
      make_probe=make_probe,
    )
  except ValueError as error:
    raise UserError(f"The agent cannot be built: {error}") from error


def _leave_no_empty(folder: Path, error: type[BaseException] | None, *_: Any) -> None:
  """A run that ends before its first checkpoint leaves nothing to go on with."""
  if error and not checkpoint_files.list_checkpoints(folder):
    shutil.rmtree(folder, ignore_errors=True)


def _say_next(spec: RunSpec, folder: Path, finished: bool, runner: Runner) -> None:
  place = shlex.quote(str(folder)) + f" --task {spec.task}" * is_own(spec.task)
  print(f"Policy: {folder / 'policy'}")
  best = runner.watcher
  if best.best_score is not None:
    print(
      f"Best score {best.best_score:.3f} at iteration {best.best_iteration}: "
      f"{checkpoint_files.best_path(folder)}"
    )
  if finished:
    print(f"Done. Next: {program()} play {place}")
  else:
    print(f"Stopped and saved. Continue with: {program()} train --resume {place}")
