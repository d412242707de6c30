"""A training from its description to its bundle, with all errors as sentences."""

from __future__ import annotations

import contextlib
import copy
import shlex
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decap import provenance
from decap.cli import checks, processes
from decap.cli.terminal import program, quiet_libraries
from decap.errors import UserError
from decap.lock import one_writer
from decap.methods import get_method
from decap.rl import checkpoint_files
from decap.runs import RunSpec, build_configs, create_run_folder, write_spec
from decap.tasks import TASKS

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnv, ConstrainedEnvCfg
  from decap.evaluation.probe import Probe
  from decap.rl.config import AgentCfg
  from decap.rl.runner import OnIteration, Runner


def train(
  spec: RunSpec,
  *,
  folder: Path,
  share: RunSpec | None = None,
  device: str = "cpu",
  backend: str = "auto",
  threads: int = 0,
  logger: str = "tensorboard",
  use_graphs: bool = True,
  quiet: bool = False,
  verbose: bool = False,
  resume: Path | None = None,
  on_iteration: OnIteration | None = None,
) -> bool:
  """Train as described; False if the user, or the caller, stopped it early.

  `quiet` does not say what to do next, `verbose` shows tables.
  The run folder appears only when the configs are checked and the environment stands.
  Of several processes each takes its `share` of the environments, and the first writes.
  """
  writes = processes.is_first()
  with contextlib.ExitStack() as writer:
    if resume:
      if writes:
        writer.enter_context(one_writer(folder))
      resume = _readable(folder, resume)
    start = resume or (Path(spec.init_from) if spec.init_from else None)
    env_cfg, agent_cfg = _checked_configs(
      share or spec, device, backend, start, bool(resume)
    )
    env_cfg.num_threads = threads
    agent_cfg.logger = logger  # ty: ignore[invalid-assignment]
    options: dict[str, Any] = {"on_iteration": on_iteration, "use_graphs": use_graphs}
    if writes:
      options["make_probe"] = _probe(spec, env_cfg, device, backend)
    from mjlab.utils.torch import configure_torch_backends

    from decap.evaluation.environment import make_env

    configure_torch_backends()
    with contextlib.nullcontext() if verbose else quiet_libraries():
      env = make_env(env_cfg, device, backend, verbose=True)
    runner = _make_runner(env, agent_cfg, folder if writes else None, spec, **options)
    if resume:
      runner.resume(resume)
    elif start:
      runner.init_from(start)
    if writes and resume:
      write_spec(folder, spec)
    elif writes:
      create_run_folder(folder, spec, env_cfg, agent_cfg)
      writer.enter_context(one_writer(folder))
    if writes:
      provenance.remember(folder, runner.info["policy"]["made_by"], runner.iteration)
      print(
        f"Training {spec.method} on {spec.task}, seed {spec.seed}: {folder}", flush=True
      )
    with _no_empty_folder(folder) if writes else contextlib.nullcontext():
      finished = runner.learn()
    env.close()
    if writes:
      from decap.export import export_checkpoint

      export_checkpoint(checkpoint_files.resolve(folder), folder / "policy")
  if writes and not quiet:
    _say_next(folder, finished, runner)
  return finished


def _checked_configs(
  spec: RunSpec, device: str, backend: str, start: Path | None, resumes: bool
) -> tuple[ConstrainedEnvCfg, AgentCfg]:
  """Configs of a run, once all that can be wrong with it before the long work is not."""
  checks.announce_imports(device, backend)
  if start:
    from decap.rl import checkpoint

    # A damaged one is better told before the long work.
    state = checkpoint.load(start)
    if resumes:
      checkpoint.require_continuable(state, start)
    checkpoint.require_joints(state, start, TASKS[spec.task].describe().joint_names)
  env_cfg, agent_cfg = build_configs(spec)
  checks.check_torch_device(device)
  checks.check_gpu_memory(env_cfg.scene.num_envs, device)
  number, where = processes.count(), f"{spec.task} on {device}"
  each = f" in each of {number} processes" if number > 1 else ""
  print(
    f"Building {env_cfg.scene.num_envs} environments of {where}{each} …", flush=True
  )
  return env_cfg, agent_cfg


def _probe(
  spec: RunSpec, env_cfg: ConstrainedEnvCfg, device: str, backend: str
) -> Callable[[], Probe]:
  """Builds what looks at the policy now and then, when it is first needed."""
  from decap.evaluation.probe import Probe

  # A copy now: building the environment puts objects into its config.
  robot, cfg = TASKS[spec.task].describe(), copy.deepcopy(env_cfg)
  return partial(Probe, cfg, robot, device, backend)


def _readable(folder: Path, path: Path) -> Path:
  """The checkpoint to go on from: the one before where the last is damaged.

  The damaged one keeps its contents under another name, so that it is not found again.
  """
  from decap.rl import checkpoint

  older = [p for _, p in checkpoint_files.list_checkpoints(folder) if p != path]
  try:
    checkpoint.load(path)
  except UserError as error:
    if not older:
      raise
    with contextlib.suppress(FileNotFoundError):  # Another process was faster.
      path.rename(path.with_name(f"{path.name}.damaged"))
    print(f"{str(error).removesuffix('.')}; going on from {older[-1].name}.")
    return _readable(folder, older[-1])
  return path


def _make_runner(
  env: ConstrainedEnv,
  agent_cfg: AgentCfg,
  folder: Path | None,
  spec: RunSpec,
  **options: Any,
) -> Runner:
  """The runner of a method, with its config errors as sentences."""
  from decap.export import describe
  from decap.rl.runner import Runner

  method = get_method(spec.method)
  made_by = {"made_by": provenance.made_by(folder)}
  description = describe(env, spec, agent_cfg) | made_by
  try:
    return Runner(
      env,
      agent_cfg,
      folder,
      info={"run": spec.to_dict(), "policy": description},
      costs=method.costs,
      schedule=method.schedule(env) if method.schedule else None,
      **options,
    )
  except ValueError as error:
    raise UserError(f"The agent cannot be built: {error}") from error


@contextlib.contextmanager
def _no_empty_folder(folder: Path) -> Iterator[None]:
  """A run that ends before its first checkpoint leaves nothing to go on with."""
  try:
    yield
  except (KeyboardInterrupt, UserError):
    if not checkpoint_files.list_checkpoints(folder):
      shutil.rmtree(folder, ignore_errors=True)
    raise


def _say_next(folder: Path, finished: bool, runner: Runner) -> None:
  print(f"Policy: {folder / 'policy'}")
  best = runner.watcher
  if best.best_score is not None:
    print(
      f"Best score {best.best_score:.3f} at iteration {best.best_iteration}: "
      f"{checkpoint_files.best_path(folder)}"
    )
  if finished:
    print(f"Done. Next: {program()} play {shlex.quote(str(folder))}")
  else:
    again = f"{program()} train --resume {shlex.quote(str(folder))}"
    print(f"Stopped and saved. Continue with: {again}")
