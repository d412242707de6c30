"""Speed of training: one task, trained by mjlab and rsl_rl and by us, and its physics.

Every case trains, or steps, the same environments from the same seed. The clock waits
for the GPU wherever it is read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from mjlab.rl import MjlabOnPolicyRunner, RslRlOnPolicyRunnerCfg, RslRlVecEnvWrapper
from mjlab.tasks import registry
from mjlab.utils.torch import configure_torch_backends

from decap.bench.machine import BusyMeter, is_out_of_memory, memory_gb, release_memory
from decap.bench.report import OUT_OF_MEMORY, Benchmark, Row, Settings
from decap.envs.constrained_env import ConstrainedEnv, ConstrainedEnvCfg
from decap.envs.substitutes import stock_twin
from decap.rl import capture
from decap.rl.config import AgentCfg
from decap.rl.display import Stopwatch
from decap.rl.runner import Runner
from decap.runs import RunSpec, build_configs
from decap.sim import simulation_backend
from decap.tasks.mjlab_runner import rsl_rl_cfg

MJLAB_TASK = "Mjlab-Velocity-Flat-Unitree-G1"
"""mjlab's own G1 task on a plane, for reference."""

WARM_UP = 3
"""Iterations before the clock starts: our first runs eagerly and the second records."""

STOCK_WARM_UP, MIN_ITERATIONS = 2, 3

REFERENCE_NUM_ENVS = 4096
"""Where mjlab's own task is measured, unless it is asked for alone."""

RATIOS = {
  "training_over_stock": ("stock", "train", "training {:.2f} × stock"),
  "rollout_over_stock": ("stock", "rollout", "rollout {:.2f} × stock"),
  "training_over_mjlab_task": (
    "mjlab-task",
    "train",
    "training {:.2f} × mjlab's own G1 task",
  ),
  "rollout_over_physics": ("physics", "rollout", "rollout {:.0%} of physics alone"),
  "constraint_overhead": ("unconstrained", "train", "constraints cost {:.1%}"),
}
"""Name → the case that ours is compared with, by which speed, and the words for it."""


def speeds(
  times: Sequence[tuple[float, float]], steps: int, busy: float | None, device: str
) -> Row:
  """A case's numbers.

  Args:
    times: Seconds of the two stages of each iteration; physics has no update.
    steps: Environment steps per iteration, all environments together.
    busy: Share of the time that the GPU was at work.
  """
  collect_s, update_s = (statistics.fmean(stage) for stage in zip(*times, strict=True))
  trains = update_s > 0.0
  return {
    "rollout_steps_per_s": steps / collect_s,
    "train_steps_per_s": steps / (collect_s + update_s) if trains else None,
    "collect_ms": collect_s * 1e3,
    "update_ms": update_s * 1e3 if trains else None,
    "iterations": len(times),
    "busy": busy,
    "memory_gb": memory_gb(device),
  }


def configure_torch(device: str) -> None:
  """As mjlab's own training does on a GPU; on a CPU physics has the cores."""
  if device == "cpu":
    # Torch's small operations gain nothing from a second one.
    torch.set_num_threads(1)
  else:
    configure_torch_backends()


def stock(settings: Settings) -> Row:
  """The task as mjlab's environment, trained by rsl_rl."""
  env_cfg, agent_cfg = build_configs(settings.spec)
  return _train_stock(settings, stock_twin(env_cfg), rsl_rl_cfg(agent_cfg))


def mjlab_task(settings: Settings) -> Row:
  """mjlab's own G1 task, trained by rsl_rl."""
  env_cfg = registry.load_env_cfg(MJLAB_TASK)
  env_cfg.seed = 1
  env_cfg.scene.num_envs = settings.num_envs
  agent_cfg = registry.load_rl_cfg(MJLAB_TASK)
  assert isinstance(agent_cfg, RslRlOnPolicyRunnerCfg)
  return _train_stock(settings, env_cfg, agent_cfg)


def ours(settings: Settings, use_graphs: bool) -> Row:
  """DeCap: every operation launched from Python, or step and update as CUDA graphs."""
  env_cfg, agent_cfg = build_configs(settings.spec)
  with quiet():
    env = ConstrainedEnv(env_cfg, settings.device)
  return _run(settings, env, agent_cfg, use_graphs)


def unconstrained(settings: Settings) -> Row:
  """The fastest of ours without constraints: none measured, none ends a return."""
  env_cfg, agent_cfg = plain_ppo(settings.spec)
  with quiet():
    env = ConstrainedEnv(env_cfg, settings.device)
  manager = env.constraint_manager
  nothing = {
    "delta": torch.zeros(env.num_envs, device=env.device),
    "costs": torch.zeros(env.num_envs, len(manager.cost_names), device=env.device),
    "quantities": {},
    "margins": {},
  }
  manager.compute = lambda: nothing  # ty: ignore[invalid-assignment]
  return _run(settings, env, agent_cfg, use_graphs=True)


def physics(settings: Settings) -> Row:
  """The substeps of a control step alone, with constant controls.

  They start where a few random actions have led, again and again, so that contacts
  are those of walking and falling robots rather than of a heap on the ground.
  """
  env_cfg, agent_cfg = build_configs(settings.spec)
  with quiet():
    env = ConstrainedEnv(env_cfg, settings.device)
    env.reset(seed=1)
  steps = agent_cfg.num_steps_per_env
  shape = env.num_envs, env.action_manager.total_action_dim
  for _ in range(steps):
    env.step(torch.randn(shape, device=env.device))
  state = env.sim.state_dict()

  def step() -> None:
    # Every substep computes positions and forces once; without a split loop the
    # closing forward pass would repeat the next one's positions.
    env.sim.step_many(env.cfg.decimation)
    if getattr(env.sim, "split", False):
      env.sim.forward()

  def block(step: Callable[[], None]) -> tuple[float, float]:
    env.sim.load_state_dict(state)
    watch = Stopwatch(settings.device)
    watch.lap()
    for _ in range(steps):
      step()
    return watch.lap(), 0.0

  with _as_graph(env, step) as step_graph:
    row = _measure(settings, lambda: block(step_graph), env.num_envs * steps)
  env.close()
  return row


CASES: dict[str, tuple[str, Callable[[Settings], Row]]] = {
  "stock": ("stock mjlab + rsl_rl", stock),
  "eager": ("ours, eager", partial(ours, use_graphs=False)),
  "captured": ("ours, captured", partial(ours, use_graphs=True)),
  "unconstrained": ("ours, no constraints", unconstrained),
  "physics": ("physics alone", physics),
  "mjlab-task": ("mjlab's own G1 task + rsl_rl", mjlab_task),
}
"""Name → title and function."""

CPU_CASES = ("stock", "eager", "unconstrained", "physics")
"""Without a GPU there is nothing to capture, and mjlab's task casts rays, slowly."""


def plain_ppo(spec: RunSpec) -> tuple[ConstrainedEnvCfg, AgentCfg]:
  """The task, learnt by PPO: constraints are measured and cost nothing."""
  env_cfg, agent_cfg = build_configs(spec)
  agent_cfg.algorithm.survival = False
  agent_cfg.algorithm.reward_rule = "raw"
  return env_cfg, agent_cfg


def _train_stock(
  settings: Settings, env_cfg: ManagerBasedRlEnvCfg, agent_cfg: RslRlOnPolicyRunnerCfg
) -> Row:
  times: list[tuple[float, float]] = []

  def log(_: MjlabOnPolicyRunner, values: dict[str, Any]) -> None:
    times.append((values["collect_time"], values["learn_time"]))

  with stock_runner(env_cfg, agent_cfg, settings.device, log) as runner:
    runner.learn(STOCK_WARM_UP, init_at_random_ep_len=True)
    count = _iterations(settings, sum(times[-1]))
    del times[:]
    with BusyMeter(settings.device) as meter:
      runner.learn(count)
    steps = env_cfg.scene.num_envs * agent_cfg.num_steps_per_env
    return speeds(times, steps, meter.share, settings.device)


@contextlib.contextmanager
def stock_runner(
  env_cfg: ManagerBasedRlEnvCfg,
  agent_cfg: RslRlOnPolicyRunnerCfg,
  device: str,
  on_log: Callable[[MjlabOnPolicyRunner, dict[str, Any]], None],
) -> Iterator[MjlabOnPolicyRunner]:
  """mjlab's environment and runner, quiet; ``on_log`` sees what each iteration logs."""
  # On a CPU both run on our engine: it is the training loops that are compared.
  engine = simulation_backend() if device == "cpu" else contextlib.nullcontext()
  agent_cfg.logger, agent_cfg.upload_model = "tensorboard", False
  with quiet(), engine, tempfile.TemporaryDirectory() as folder:
    env = ManagerBasedRlEnv(env_cfg, device)
    runner = MjlabOnPolicyRunner(
      RslRlVecEnvWrapper(env), dataclasses.asdict(agent_cfg), folder, device
    )
    runner.logger.git_status_repos = []
    write = runner.logger.log

    def log(**values: Any) -> None:
      on_log(runner, values)
      write(**values)

    runner.logger.log = log  # ty: ignore[invalid-assignment]
    yield runner
    env.close()


def _run(
  settings: Settings, env: ConstrainedEnv, agent_cfg: AgentCfg, use_graphs: bool
) -> Row:
  with quiet():
    runner = Runner(env, agent_cfg, use_graphs=use_graphs)
    runner.spread_episodes()
    graphs = runner.graphs
    if use_graphs and graphs is None and settings.device != "cpu":
      reason = capture.why_not(settings.device, env.waiting_terms)
      raise RuntimeError(f"no capture: {reason}")

    def iterate() -> tuple[float, float]:
      log = runner.iterate(Stopwatch(settings.device))
      return log["Perf/collection_time"], log["Perf/learning_time"]

    with graphs.stream() if graphs else contextlib.nullcontext():
      steps = env.num_envs * agent_cfg.num_steps_per_env
      row = _measure(settings, iterate, steps)
  env.close()
  return row


def _measure(
  settings: Settings, iterate: Callable[[], tuple[float, float]], steps: int
) -> Row:
  """Mean times of the two stages over as many iterations as the settings ask for."""
  for _ in range(WARM_UP):
    last = iterate()
  count = _iterations(settings, sum(last))
  with BusyMeter(settings.device) as meter:
    times = [iterate() for _ in range(count)]
  return speeds(times, steps, meter.share, settings.device)


def _iterations(settings: Settings, iteration_s: float) -> int:
  return max(MIN_ITERATIONS, math.ceil(settings.seconds / iteration_s))


@contextlib.contextmanager
def _as_graph(
  env: ConstrainedEnv, func: Callable[[], None]
) -> Iterator[Callable[[], None]]:
  """A function of the simulation, on a GPU as a CUDA graph."""
  if torch.device(env.device).type != "cuda":
    yield func
    return
  with capture.own_stream(env.sim) as stream:
    func()
    yield capture.Captured(func, stream)


def quiet() -> contextlib.AbstractContextManager[Any]:
  return contextlib.redirect_stdout(io.StringIO())


def measure(settings: Settings) -> Iterator[Row]:
  """One broken case stops no other."""
  configure_torch(settings.device)
  for case in settings.cases:
    yield measure_case(case, settings)


def measure_case(case: str, settings: Settings) -> Row:
  """Run one case, and turn what goes wrong into a row that says so."""
  release_memory(settings.device)
  start = time.perf_counter()
  error, measured = None, {}
  try:
    measured = CASES[case][1](settings)
  except Exception as problem:
    # Only its text: the traceback would keep the environment alive.
    first_line = traceback.format_exception_only(problem)[0].splitlines()[0]
    error = OUT_OF_MEMORY if is_out_of_memory(problem) else first_line
  row = {"case": case, "num_envs": settings.num_envs}
  row["seconds"] = time.perf_counter() - start
  return {**row, **measured, "error": error}


def summary(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
  """The ratios that the numbers are about, by number of environments."""
  found = {(r["case"], r["num_envs"]): r for r in rows if r.get("error") is None}
  out: dict[str, dict[str, float]] = {}
  for count in dict.fromkeys(row["num_envs"] for row in rows):
    ours = found.get(("captured", count)) or found.get(("eager", count))
    if ours is None:
      continue
    ratios: dict[str, float] = {}
    for name, (case, speed, _) in RATIOS.items():
      if other := found.get((case, count)):
        ratio = ours[f"{speed}_steps_per_s"] / other[f"{speed}_steps_per_s"]
        ratios[name] = 1.0 - ratio if name == "constraint_overhead" else ratio
    out[str(count)] = ratios
  return out


def notes(rows: Sequence[Row]) -> list[str]:
  """The ratios as sentences."""
  return [
    f"{count} environments: "
    + ", ".join(RATIOS[name][2].format(value) for name, value in ratios.items())
    for count, ratios in summary(rows).items()
    if ratios
  ]


def _default_cases(device: str, num_envs: int) -> tuple[str, ...]:
  if device == "cpu":
    return CPU_CASES
  reference = num_envs == REFERENCE_NUM_ENVS
  return tuple(c for c in CASES if reference or c != "mjlab-task")


BENCHMARK = Benchmark(
  name="throughput",
  measured="environment steps per second of rollout and of training",
  cases={name: title for name, (title, _) in CASES.items()},
  columns=(
    ("rollout_steps_per_s", "rollout, steps/s", "{:,.0f}"),
    ("train_steps_per_s", "training, steps/s", "{:,.0f}"),
    ("collect_ms", "collect, ms", "{:.1f}"),
    ("update_ms", "update, ms", "{:.1f}"),
    ("busy", "GPU busy", "{:.0%}"),
    ("memory_gb", "memory, GB", "{:.1f}"),
  ),
  measure=measure,
  num_envs={"cpu": (64, 256), "cuda": (1024, 4096, 8192, 16384)},
  default_cases=_default_cases,
  summary=summary,
  notes=notes,
)
