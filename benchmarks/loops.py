"""Speed of training by mjlab and rsl_rl and by us, and of physics alone.

All train, or step, the same environments from the same seed. The clock waits for the GPU
wherever it is read.
"""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Callable, Iterator

import torch
from mjlab.rl import RslRlOnPolicyRunnerCfg
from mjlab.tasks import registry

from benchmarks.machine import busy, memory_gb, quiet_libraries
from benchmarks.report import Row, Settings
from benchmarks.stock import stock_twin, train_stock
from decap.envs.constrained_env import ConstrainedEnv, ConstrainedEnvCfg
from decap.rl import capture
from decap.rl.config import AgentCfg
from decap.rl.display import Stopwatch
from decap.rl.runner import Runner
from decap.runs import RunSpec, build_configs
from decap.tasks.mjlab_runner import rsl_rl_cfg

MJLAB_TASK = "Mjlab-Velocity-Flat-Unitree-G1"
"""mjlab's own G1 task on a plane, for reference."""

WARM_UP, MIN_ITERATIONS = 3, 3
"""Of ours the first iteration runs eagerly and the second records."""


class Clock:
  """Takes the times of a loop's iterations until there are enough of them."""

  def __init__(self, settings: Settings):
    self._settings = settings
    self._times: list[tuple[float, float]] = []
    self._busy: list[float | None] = []

  def __call__(self, collect_s: float, update_s: float = 0.0) -> bool:
    """Note the seconds of an iteration's two stages; whether it was the last."""
    self._times.append((collect_s, update_s))
    self._busy.append(busy(self._settings.device))
    counted = self._times[WARM_UP:]
    enough_s = sum(map(sum, counted)) >= self._settings.seconds
    return enough_s and len(counted) >= MIN_ITERATIONS

  def row(self, steps_per_env: int) -> Row:
    """What followed the warm-up; physics has no update."""
    times = self._times[WARM_UP:]
    collect_s, update_s = map(statistics.fmean, zip(*times, strict=True))
    shares = [share for share in self._busy[WARM_UP:] if share is not None]
    steps, trains = self._settings.num_envs * steps_per_env, update_s > 0.0
    return {
      "rollout_steps_per_s": steps / collect_s,
      "train_steps_per_s": steps / (collect_s + update_s) if trains else None,
      "collect_ms": collect_s * 1e3,
      "update_ms": update_s * 1e3 if trains else None,
      "iterations": len(times),
      "busy": statistics.fmean(shares) if shares else None,
      "memory_gb": memory_gb(self._settings.device),
    }


def stock(settings: Settings, *, own_task: bool = False) -> Row:
  """The task as mjlab's environment, or mjlab's own G1 task, trained by rsl_rl."""
  if own_task:
    env_cfg = registry.load_env_cfg(MJLAB_TASK)
    agent_cfg = registry.load_rl_cfg(MJLAB_TASK)
    assert isinstance(agent_cfg, RslRlOnPolicyRunnerCfg)
    env_cfg.seed, env_cfg.scene.num_envs = settings.seed, settings.num_envs
  else:
    cfg, agent = build_configs(settings.spec())
    env_cfg, agent_cfg = stock_twin(cfg), rsl_rl_cfg(agent)
  clock = Clock(settings)
  train_stock(
    env_cfg,
    agent_cfg,
    settings.device,
    lambda _, log: clock(log["collect_time"], log["learn_time"]),
  )
  return clock.row(agent_cfg.num_steps_per_env)


def ours(
  settings: Settings,
  method: str = "decap",
  *,
  plain: bool = False,
  constrained: bool = True,
  use_graphs: bool = True,
) -> Row:
  """Our loop: step and update as CUDA graphs where there is a GPU, or eagerly.

  Args:
    plain: PPO instead of the method.
    constrained: Whether constraints are measured.
  """
  device = settings.device
  env_cfg, agent_cfg = (plain_ppo if plain else build_configs)(settings.spec(method))
  clock, enough = Clock(settings), False
  with quiet_libraries():
    env = ConstrainedEnv(env_cfg, device)
    if not constrained:
      _measure_no_constraints(env)
    runner = Runner(env, agent_cfg, use_graphs=use_graphs)
    runner.spread_episodes()
    graphs = runner.graphs
    if use_graphs and not graphs and device != "cpu":
      raise RuntimeError("the loop cannot be captured")
    with graphs.stream() if graphs else contextlib.nullcontext():
      while not enough:
        log = runner.iterate(Stopwatch(device))
        enough = clock(log["Perf/collection_time"], log["Perf/learning_time"])
  env.close()
  return {**clock.row(agent_cfg.num_steps_per_env), "captured": graphs is not None}


def on_cores(count: int, settings: Settings) -> Row:
  """Our loop on the first so many cores: the engine starts one thread to each."""
  cores = sorted(os.sched_getaffinity(0))
  os.sched_setaffinity(0, cores[:count])
  try:
    return ours(settings)
  finally:
    os.sched_setaffinity(0, cores)


def plain_ppo(spec: RunSpec) -> tuple[ConstrainedEnvCfg, AgentCfg]:
  """The task, learnt by PPO: constraints are measured and cost nothing."""
  env_cfg, agent_cfg = build_configs(spec)
  agent_cfg.algorithm.survival = False
  agent_cfg.algorithm.reward_rule = "raw"
  return env_cfg, agent_cfg


def _measure_no_constraints(env: ConstrainedEnv) -> None:
  manager = env.constraint_manager
  nothing = {
    "delta": torch.zeros(env.num_envs, device=env.device),
    "costs": torch.zeros(env.num_envs, len(manager.cost_names), device=env.device),
    "quantities": {},
    "margins": {},
  }
  manager.compute = lambda: nothing  # ty: ignore[invalid-assignment]


def physics(settings: Settings) -> Row:
  """The substeps of a control step alone, with constant controls.

  They start where a few random actions have led, again and again, so that contacts
  are those of walking and falling robots rather than of a heap on the ground.
  """
  env_cfg, agent_cfg = build_configs(settings.spec())
  with quiet_libraries():
    env = ConstrainedEnv(env_cfg, settings.device)
    env.reset(seed=1)
  steps = agent_cfg.num_steps_per_env
  shape = env.num_envs, env.action_manager.total_action_dim
  for _ in range(steps):
    env.step(torch.randn(shape, device=env.device))
  state, clock, enough = env.sim.state_dict(), Clock(settings), False

  def step() -> None:
    # Every substep computes positions and forces once; without a split loop the
    # closing forward pass would repeat the next one's positions.
    env.sim.step_many(env.cfg.decimation)
    if getattr(env.sim, "split", False):
      env.sim.forward()

  with _as_graph(env, step) as step_graph:
    while not enough:
      env.sim.load_state_dict(state)
      watch = Stopwatch(settings.device)
      watch.lap()
      for _ in range(steps):
        step_graph()
      enough = clock(watch.lap())
  env.close()
  return clock.row(steps)


@contextlib.contextmanager
def _as_graph(
  env: ConstrainedEnv, func: Callable[[], None]
) -> Iterator[Callable[[], None]]:
  """A function of the simulation, on a GPU as a CUDA graph."""
  if str(env.device) == "cpu":
    yield func
    return
  with capture.own_stream(env.sim) as stream:
    func()
    yield capture.Captured(func, stream)
