"""Our own training loop: rollout, returns, update, log, checkpoint.

Everything that a run needs to go on bit for bit on the CPU engine is in a checkpoint:
environment, algorithm, last observation, random number generators and counters. The
loop reads from the device once per iteration, when it logs.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from decap import collective
from decap.errors import UserError, first_line
from decap.rl import capture, checkpoint, checkpoint_files, divergence
from decap.rl.build import algorithm_for, cost_columns
from decap.rl.config import AgentCfg
from decap.rl.curves import Curves
from decap.rl.display import (
  LiveDisplay,
  PlainDisplay,
  Status,
  Stopwatch,
  make_display,
)
from decap.rl.environment import Environment
from decap.rl.interrupts import on_interrupt
from decap.rl.status import StatusFile
from decap.rl.warnings import Warnings
from decap.rl.watching import Evaluate, Watcher
from decap.testing import waits

OnIteration = Callable[[int, dict[str, float]], bool | None]
"""Called with the iteration's number and log; returning True ends the run."""

GAIN = "distribution.gain"
"""Name of the actor's gain in a checkpoint; see `Gaussian`."""
MOST_THREADS = 8
"""Of torch, in updates on a CPU. Physics rests then, and its cores are free."""


class Runner:
  """Trains one agent in one environment.

  Args:
    env: What learns to move; usually a ConstrainedEnv.
    cfg: The agent.
    run_dir: Where checkpoints and events go; None writes nothing.
    info: Plain data to keep in every checkpoint, such as the run's description.
    on_iteration: Called after every iteration; see OnIteration.
    make_probe: Builds what measures the policy every `cfg.eval_interval` iterations;
      see Watcher.
  """

  def __init__(
    self,
    env: Environment,
    cfg: AgentCfg,
    run_dir: Path | None = None,
    *,
    info: dict[str, Any] | None = None,
    on_iteration: OnIteration | None = None,
    use_graphs: bool = True,
    make_probe: Callable[[], Evaluate] | None = None,
  ):
    self.env = env
    self.cfg = cfg
    self.run_dir = run_dir
    self.info = info or {}
    self.device = str(env.device)
    self.iteration = 0
    self._on_iteration = on_iteration
    self._stop = False
    self.watcher = Watcher(make_probe, cfg.eval_interval)
    self._composition = env.constraint_manager.composition
    self.warnings = Warnings(self._composition)
    self._quantities: dict[str, torch.Tensor] = {}
    self._losses: dict[str, torch.Tensor] = {}
    self._marks = torch.zeros(0)
    self._broken: dict[str, int] = {}
    self._saved_at = time.monotonic()
    self._update_threads = min(getattr(env.sim, "num_threads", 1), MOST_THREADS)
    # Steps that each environment has lived, and sum and number of those that ended.
    self._age = torch.zeros(env.num_envs, device=self.device)
    self._ended = torch.zeros(2, device=self.device)
    self.graphs: capture.Graphs | None = None
    if use_graphs and self._can_capture():
      self.graphs = capture.Graphs(self)
    columns = cost_columns(self._composition.rows, cfg.algorithm)
    self._cost_index = [torch.tensor(c, device=self.device) for c in columns.values()]
    # The environment's construction draws numbers too; seed again, so that a run does
    # not depend on how many.
    # Processes that train together share networks, and differ in all that is random.
    obs, _ = env.reset(seed=cfg.seed + collective.rank())
    self.obs = {name: value.clone() for name, value in obs.items()}
    self.alg = algorithm_for(env, cfg, self.obs, tuple(columns))
    self.alg.train_mode()
    self._composition.shared = True
    for net in self.alg.networks.values():
      collective.share((*net.parameters(), *net.buffers()))

  # Training.

  def learn(self) -> bool:
    """Train until `cfg.iterations`; returns False if something ended it earlier.

    The first Ctrl-C (or SIGTERM) saves at the next iteration boundary and returns; a
    second one quits at once.
    """
    if self.graphs:
      self._run_eagerly_if_a_step_waits()
    if self.iteration == 0:
      self.spread_episodes()
      self.fit_normalisers()
    total, first = self.cfg.iterations, self.iteration
    self.alg.set_p_max(first / total)  # A run that goes on may have become longer.
    watch, self._saved_at = Stopwatch(self.device), time.monotonic()
    stream = self.graphs.stream() if self.graphs else contextlib.nullcontext()
    with (
      stream,
      Curves(self.run_dir, self.cfg, self.iteration) as curves,
      StatusFile(self.run_dir) as status,
      make_display(PlainDisplay, LiveDisplay) as display,
      self._interrupts(display),
    ):
      while self.iteration < total and not self._stop:
        log = self.iterate(watch)
        self.iteration += 1
        done = self.iteration - first
        steps = self.env.num_envs * self.cfg.num_steps_per_env * collective.size()
        seconds = log["Perf/collection_time"] + log["Perf/learning_time"]
        log["Perf/total_fps"] = steps / seconds
        left_s = watch.left(done, total - self.iteration)
        progress = Status(self.iteration, total, steps / seconds, left_s)
        log |= self.watcher(self.iteration, self.alg.actor)
        display.update(progress, self.watcher.latest | log)
        status.update(progress, self.watcher.latest | log)
        curves(log, self.iteration)
        for warning in self.warnings(log, self._quantities, self._broken):
          display.message(warning)
        if self._on_iteration and self._on_iteration(self.iteration, log):
          self._stop = True
        self._agree_to_stop()
        self._save_if_due(ended=self._stop or self.iteration == total)
    return self.iteration >= total

  def rollout_step(self) -> None:
    """One control step of policy and environment, stored for the update.

    Reads and writes fixed buffers only, so that it can be recorded as a CUDA graph.
    """
    actions = self.alg.act(self.obs)
    obs, rewards, terminated, time_outs, extras = self.env.step(actions)
    dones = terminated | time_outs
    constraints = extras["constraints"]
    # Kept, not copied: a recorded step writes to the same memory every time.
    self._quantities = constraints["quantities"]
    seen = {"constraints": {**constraints, "costs": self._costs(constraints["costs"])}}
    seen["fell"] = terminated
    # With a finite horizon nothing comes after a time-out; as in mjlab's wrapper.
    if not self.env.cfg.is_finite_horizon:
      seen["time_outs"] = time_outs
    if "progress" in extras:
      seen["progress"] = extras["progress"]
    self.alg.process_env_step(obs, rewards, dones, seen)
    for name, value in obs.items():
      self.obs[name].copy_(value)
    self._age.add_(1.0)
    self._ended.add_(torch.stack(((self._age * dones).sum(), dones.float().sum())))
    self._age.masked_fill_(dones, 0.0)

  def iterate(self, watch: Stopwatch) -> dict[str, float]:
    """One iteration: rollout, update, log."""
    watch.lap()
    if self.graphs is None:
      with torch.no_grad():
        for _ in range(self.cfg.num_steps_per_env):
          self.rollout_step()
      collected = watch.lap()
      with _threads(self._update_threads):
        self.alg.begin_update()
        self.learn_from_rollout()
    else:
      self.graphs.rollout()
      collected = watch.lap()
      self.alg.begin_update()
      self.graphs.learn()
    self.env.between_iterations()
    self.alg.between_iterations((self.iteration + 1) / self.cfg.iterations)
    log = self.env.flush_log()
    self._correct_episode_length(log)
    # One copy to the host for all losses, and for whether the networks are finite.
    losses = self._losses
    values = torch.stack([v.float() for v in losses.values()])
    values = torch.cat((values, self._marks)).tolist()
    log.update(zip(losses, values, strict=False))
    self._check_finite(log, values[len(losses) :])
    log["Perf/collection_time"] = collected
    log["Perf/learning_time"] = watch.lap()
    return log

  def learn_from_rollout(self) -> None:
    """Returns and all mini-batches; what ``begin_update`` draws stays outside.

    Reads and writes fixed buffers only, as `rollout_step` does.
    """
    self.alg.compute_returns(self.obs)
    self._losses = self.alg.learn()
    self._marks = divergence.marks(self.alg.networks)

  def spread_episodes(self) -> None:
    """Start the environments at random ages, so that they do not time out together."""
    length = self.env.episode_length_buf
    length.copy_(torch.randint_like(length, high=int(self.env.max_episode_length)))

  def fit_normalisers(self) -> None:
    """One rollout that trains nothing but new normalisers.

    They start as the identity; were the first update made with that, fitting them
    after it would make another policy of what it learnt. Those of an existing policy
    are part of it and stay.
    """
    new = [net for net in self.alg.networks.values() if net.normaliser_is_new]
    if not new:
      return
    with torch.no_grad():
      for _ in range(self.cfg.num_steps_per_env):
        self.rollout_step()
      self.alg.fit_normalisers(new)
    # It says what robots achieve; all else is logged of the first iteration alone.
    self.env.flush_log()
    self._ended.zero_()
    self.alg.applied.zero_()

  # Checkpoints.

  def state_dict(self) -> dict[str, Any]:
    """Everything that is needed to continue."""
    return {
      **self.alg.state_dict(),
      "iter": self.iteration,
      # Where mjlab's runner looks for it.
      "infos": {"env_state": {"common_step_counter": self.env.common_step_counter}},
      "env": self.env.state_dict(),
      "obs": self.obs,
      "age": self._age,
      "rng": checkpoint.rng_state(),
      "device": self.device,
      "infeasible": self.warnings.infeasible,
      "watcher": self.watcher.state_dict(),
      "processes": collective.size(),
      **self.info,
    }

  def save(self) -> Path | None:
    """Write a checkpoint and delete old ones; returns its path."""
    if self.run_dir is None:
      return None
    path = checkpoint_files.path_for(self.run_dir, self.iteration)
    checkpoint.save(path, self.state_dict())
    self._saved_at = time.monotonic()
    checkpoint_files.prune(self.run_dir, self.cfg.keep_checkpoints)
    return path

  def resume(self, path: Path) -> None:
    """Continue where a checkpoint was written."""
    state = checkpoint.load(path, self.device)
    checkpoint.require_continuable(state, path)
    checkpoint.require_shapes(state, path, self.alg.networks)
    try:
      self.alg.load_state_dict(state)
      if collective.size() == state.get("processes", 1) == 1:
        self._resume_env(state)
      else:
        # A checkpoint holds the environments of the first process only.
        self.env.set_step_count(state["infos"]["env_state"]["common_step_counter"])
        self.spread_episodes()
      self.iteration = int(state["iter"])
      self.warnings.infeasible = dict(state["infeasible"])
      self.watcher.load_state_dict(state.get("watcher", {}))
    except (UserError, torch.OutOfMemoryError):
      raise
    except Exception as error:  # Any, of what else a file may hold in their place.
      raise UserError(f"{path} does not fit this run: {first_line(error)}.") from error

  def _resume_env(self, state: dict[str, Any]) -> None:
    self.env.load_state_dict(state["env"])
    for name, value in self.obs.items():
      value.copy_(state["obs"][name])
    self._age.copy_(state["age"])
    checkpoint.set_rng_state(state["rng"])

  def init_from(self, path: Path) -> None:
    """Start from the networks and normalisers of a checkpoint, and nothing else."""
    state = checkpoint.load(path, self.device)
    actor, own = state.get("actor_state_dict", {}), self.alg.actor.state_dict()
    if GAIN in own:  # Saved only where noise differs by joint; elsewhere it is one.
      actor.setdefault(GAIN, torch.ones_like(own[GAIN]))
    networks = {"actor": self.alg.actor, "critic": self.alg.critic}
    checkpoint.require_shapes(state, path, networks)
    for name, network in networks.items():
      network.load_state_dict(state[f"{name}_state_dict"])

  # Private methods.

  def _save_if_due(self, ended: bool) -> None:
    """Save by iterations, by time, at the end, and the best policy beside these."""
    if self.run_dir is not None and self.watcher.improved(self.iteration):
      checkpoint.save(checkpoint_files.best_path(self.run_dir), self.state_dict())
    late = time.monotonic() - self._saved_at > self.cfg.save_every_s
    if ended or late or self.iteration % self.cfg.save_interval == 0:
      self.save()

  def _agree_to_stop(self) -> None:
    """A signal reaches processes at different iterations; they end at the same."""
    if collective.size() > 1:
      stop = torch.tensor(float(self._stop), device=self.device)
      self._stop = bool(collective.maximum(stop))

  def _costs(self, costs: torch.Tensor) -> torch.Tensor:
    """Costs as the algorithm sees them. # [B, rows] -> [B, K]"""
    if len(self._cost_index) == costs.shape[1]:
      return costs
    return torch.stack([costs[:, i].amax(1) for i in self._cost_index], dim=1)

  def _can_capture(self) -> bool:
    if torch.device(self.device).type != "cuda":
      return False
    reason = capture.why_not(self.device, self.env.waiting_terms)
    if reason is not None:
      print(f"Training runs without CUDA graphs: {reason}.")
    return reason is None

  def _run_eagerly_if_a_step_waits(self) -> None:
    """Try a step, since a term of the user's own may wait where nothing declares it.

    A recording that fails half-way would leave torch in a state without return. The
    first steps do not count: terms make their constants then.
    """
    with torch.no_grad():
      for _ in range(2):
        self.rollout_step()
      found = waits(self.rollout_step)
    self.alg.storage.clear()
    if found:
      self.graphs = None
      print(f"Training runs without CUDA graphs: a step waits for {found[0]}.")

  def _check_finite(self, log: dict[str, float], marks: list[float]) -> None:
    """End the run where its numbers are not finite; nothing of this is saved."""
    self._broken = self.env.not_finite()
    networks = divergence.names(self.alg.networks)
    found = divergence.findings(networks, marks, log, self._broken)
    if found:
      raise divergence.error(found, self.iteration + 1, self.run_dir)

  def _correct_episode_length(self, log: dict[str, float]) -> None:
    """The environment's own figure counts the random age that episodes started with."""
    total, count = self._ended.tolist()
    self._ended.zero_()
    log.pop("Train/episode_length", None)
    if count:
      log["Train/episode_length"] = total / count

  def _interrupts(self, display) -> contextlib.AbstractContextManager[None]:
    def stop(*_: Any) -> None:
      signal.signal(signal.SIGINT, signal.default_int_handler)
      self._stop = True
      display.message("Stopping after this iteration; Ctrl-C again quits at once.")

    return on_interrupt(stop)


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
  """So many threads of torch; one is best for the small operations of a rollout."""
  before = torch.get_num_threads()
  torch.set_num_threads(count)
  try:
    yield
  finally:
    torch.set_num_threads(before)
