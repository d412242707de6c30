"""Runs a policy under a protocol and measures it.

One batch holds all rollouts. Policy, environment and metrics of a step run eagerly on
a CPU and as one CUDA graph on a GPU; the host reads nothing until the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from decap.envs.build import make_env
from decap.evaluation.environment import (
  evaluation_cfg,
  last_sample,
  make_layout,
  tell_commands,
  watch,
)
from decap.evaluation.layout import Limits
from decap.evaluation.metrics import Metrics
from decap.evaluation.policies import Act, Policy, load_policy
from decap.evaluation.protocol import Protocol, file_names
from decap.evaluation.recorder import TrajectoryRecorder
from decap.evaluation.results import Result
from decap.evaluation.trajectory import Sample, Trajectory
from decap.provenance import versions
from decap.rl.display import Stopwatch
from decap.tasks import get_task

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnv


EAGER_STEPS = 3
"""Steps before a CUDA graph is recorded: they allocate what it reuses."""

SYNC_STEPS = 50
"""Steps after which the host waits, so that a progress bar tells the truth."""


@dataclass
class Evaluation:
  """A result, a trajectory if one was asked for, and how long it took."""

  result: Result
  trajectory: Trajectory | None
  seconds: float
  """Of the rollout, without start-up."""

  def save(self, folder: Path, label: str = "") -> Path:
    """Write both files; returns that of the metrics."""
    metrics, trajectory = (folder / name for name in file_names(label))
    trajectory.unlink(missing_ok=True)  # It would not fit the metrics.
    self.result.save(metrics)
    if self.trajectory is not None:
      self.trajectory.save(trajectory)
    return metrics


def evaluate(
  source: str | Policy,
  protocol: Protocol | None = None,
  *,
  device: str = "cpu",
  backend: str = "auto",
  trajectory: int = 0,
  limits: Limits | None = None,
  on_step: Callable[[int], None] | None = None,
) -> Evaluation:
  """Evaluate a run folder, checkpoint, bundle folder, `stand`, or a loaded policy.

  Args:
    protocol: That of the simulation tables by default.
    backend: Physics: "warp", "native", or "auto" for the device's.
    trajectory: Environments per rollout to record, as many as there are at most.
    limits: What violations are counted against, instead of the task's.
    on_step: Called with the number of finished steps, now and then.
  """
  protocol = protocol or Protocol()
  policy = load_policy(source, device) if isinstance(source, str) else source
  cfg = evaluation_cfg(protocol, limits, policy.blind)
  env = make_env(cfg, device, backend)
  try:
    policy.check(describe_env(env, protocol.task))
    rollout = Rollout(env, policy, protocol, min(trajectory, protocol.envs))
    return rollout.evaluation(rollout.run(on_step))
  finally:
    env.close()


def describe_env(env: ConstrainedEnv, task: str) -> dict[str, Any]:
  """Robot, actions and observations of an environment, as bundles describe them."""
  from decap.export import describe
  from decap.rl.config import AgentCfg
  from decap.runs import RunSpec

  return describe(env, RunSpec(task=task, method="decap"), AgentCfg())


class Rollout:
  """One batch of a protocol: environment, policy, metrics and recorder."""

  def __init__(
    self, env: ConstrainedEnv, policy: Policy, protocol: Protocol, record: int = 0
  ) -> None:
    self.env = env
    self.policy = policy
    self.protocol = protocol
    self.device = str(env.device)
    robot = get_task(protocol.task).describe()
    self.layout = make_layout(env, robot)
    self.metrics = Metrics(
      self.layout,
      protocol.rollouts,
      protocol.envs,
      protocol.warmup,
      self.device,
      protocol.per_command,
    )
    watch(env, robot)
    recorded = (env, self.layout, robot, protocol, record)
    self._recorder = TrajectoryRecorder(*recorded) if record else None
    self._tell = tell_commands(env, protocol)

  def run(self, on_step: Callable[[int], None] | None = None) -> float:
    """Run all steps; returns the seconds that they took."""
    act = self.policy.act
    if act is None:
      size = self.env.action_manager.total_action_dim
      zero = torch.zeros(self.protocol.num_envs, size, device=self.device)
      act = lambda obs: zero  # noqa: E731
    steps, seed = self.protocol.steps, self.protocol.seed
    take, tell, follow = self.metrics.accumulate, self._tell, self.follow
    return run_steps(self.env, act, steps, seed, take, tell, follow, on_step)

  def follow(self, sample: Sample) -> None:
    """What depends on the host's step count and cannot be in the graph."""
    self.metrics.follow()
    if self._recorder:
      metrics = self.metrics
      self._recorder.add(sample, age=metrics.age, delta=metrics.violations.delta)

  def evaluation(self, seconds: float) -> Evaluation:
    """The result of a finished run."""
    backend = "warp" if type(self.env.sim).__name__.startswith("Warp") else "native"
    result = Result(
      policy=self.policy.info,
      protocol=self.protocol.to_dict(),
      layout=self.layout,
      metrics=self.metrics.result(),
      engine={"backend": backend, "device": self.device.split(":")[0]},
      versions=versions(),
    )
    recorder = self._recorder
    trajectory = recorder.trajectory(self.policy.info) if recorder else None
    return Evaluation(result, trajectory, seconds)


def run_steps(
  env: Any,
  act: Act,
  count: int,
  seed: int,
  take: Callable[[Sample], None],
  before: Callable[[int], None],
  after: Callable[[Sample], None] = lambda sample: None,
  on_step: Callable[[int], None] | None = None,
) -> float:
  """Let a policy walk in a watched environment; returns the seconds that it took.

  Args:
    take: Called with every step; like `act`, on fixed buffers only: a GPU records it.
    before: Called with the number of each step before it, outside of the recording.
    after: Called with every step after it, outside of the recording.
    on_step: Called with the number of finished steps, now and then.
  """
  obs: dict[str, torch.Tensor] = {}
  last: list[Sample] = []  # Replays of a recording write into the one that it made.

  def step() -> None:
    new, _, fell, timed_out, _ = env.step(act(obs))
    last[:] = [last_sample(env, fell, timed_out)]
    take(*last)
    for name, value in new.items():
      obs[name].copy_(value)

  with _stream(env) as stream, torch.no_grad():
    before(0)  # The same start in every call of one environment.
    obs |= {name: value.clone() for name, value in env.reset(seed=seed)[0].items()}
    watch, seconds = Stopwatch(str(env.device)), 0.0
    watch.lap()
    now = step
    for t in range(count):
      if stream is not None and t == EAGER_STEPS:
        from decap.rl.capture import Captured

        now = Captured(step, stream)
      before(t)
      now()
      after(*last)
      if (t + 1) % SYNC_STEPS == 0 or t + 1 == count:
        seconds += watch.lap()
        if on_step:
          on_step(t + 1)
    return seconds


@contextlib.contextmanager
def _stream(env: Any) -> Iterator[torch.cuda.Stream | None]:
  """The stream to record on; None where the steps run eagerly."""
  if torch.device(env.device).type != "cuda":
    yield None
    return
  from decap.rl import capture

  reason = capture.why_not(str(env.device), env.waiting_terms)
  if reason is not None:
    print(f"Evaluating without CUDA graphs: {reason}.")
    yield None
    return
  with capture.own_stream(env.sim) as stream:
    yield stream
