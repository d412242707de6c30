"""Whether our loop learns as rsl_rl's does: the same task and PPO, several seeds each.

Stock is mjlab's environment with rsl_rl; ours is the captured loop (eager on a CPU).
Both count what is in their rollout storage, so that the curves mean the same: reward
per step, and the share of steps at which an episode ended.
``python benchmarks/learning.py --json results/bench/learning.json --plot learning.png``;
with ``--from FILE`` it draws stored curves.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.progress import Progress

from decap.bench.report import write_report
from decap.errors import UserError
from decap.files import replacing
from decap.options.machine import check_device
from decap.sweep.mps import shared_gpu

LEARNING = SimpleNamespace(
  name="learning", measured="reward per step of PPO in both loops, by iteration"
)
CASES = {"stock": "stock mjlab + rsl_rl", "ours": "ours"}
INIT_STD = 0.5
"""Both start with this σ for all joints: rsl_rl has one value, our task one a group."""

LAST = 0.1
"""Share of the run, at its end, that the table averages over."""


@dataclass
class Curve:
  """One training run."""

  case: str
  seed: int
  samples: list[int] = field(default_factory=list)
  reward: list[float] = field(default_factory=list)
  """Mean reward per step of each iteration."""
  ended: list[float] = field(default_factory=list)
  """Share of steps of each iteration at which an episode ended."""
  seconds: float = 0.0

  def final(self, name: str) -> float:
    """Mean over the last iterations."""
    values = getattr(self, name)
    return statistics.fmean(values[-max(1, round(LAST * len(values))) :])


def bench_learning(
  num_envs: int,
  device: str,
  *,
  task: str = "g1-flat",
  seeds: Sequence[int] = (1, 2, 3),
  iterations: int = 150,
  json_path: Path | None = None,
) -> list[Curve]:
  """Trains both loops with every seed, on a GPU all at the same time."""
  runs = [(case, seed) for seed in seeds for case in CASES]
  curves: list[Curve] = []
  with shared_gpu() as (variables, _), Progress() as progress:
    bar = progress.add_task("training", total=len(runs))
    with ProcessPoolExecutor(
      max_workers=1 if device == "cpu" else len(runs),
      mp_context=multiprocessing.get_context("spawn"),
      initializer=_set_environment,
      initargs=(variables,),
    ) as pool:
      futures = [
        pool.submit(train, case, seed, task, num_envs, device, iterations)
        for case, seed in runs
      ]
      for future in as_completed(futures):
        curves.append(future.result())
        progress.advance(bar)
        if json_path is not None:
          _write_json(json_path, curves, task, num_envs)
  return sorted(curves, key=lambda curve: (curve.case, curve.seed))


def train(
  case: str, seed: int, task: str, num_envs: int, device: str, iterations: int
) -> Curve:
  """One run; a process of its own."""
  from decap.bench.training import configure_torch, plain_ppo, quiet, stock_runner
  from decap.envs.constrained_env import ConstrainedEnv
  from decap.envs.substitutes import stock_twin
  from decap.rl.runner import Runner
  from decap.runs import RunSpec
  from decap.tasks.mjlab_runner import rsl_rl_cfg

  configure_torch(device)
  env_cfg, agent_cfg = plain_ppo(RunSpec(task, "decap", seed, num_envs, iterations))
  agent_cfg.policy.init_std = INIT_STD
  curve = Curve(case, seed)
  start = time.perf_counter()

  def note(storage: Any) -> None:
    steps = num_envs * agent_cfg.num_steps_per_env
    curve.samples.append(steps * (len(curve.samples) + 1))
    curve.reward.append(float(storage.rewards.mean()))
    curve.ended.append(float(storage.dones.float().mean()))

  if case == "stock":
    with stock_runner(
      stock_twin(env_cfg),
      rsl_rl_cfg(agent_cfg),
      device,
      lambda runner, _: note(runner.alg.storage),
    ) as runner:
      runner.learn(iterations, init_at_random_ep_len=True)
  else:
    with quiet():
      env = ConstrainedEnv(env_cfg, device)
      ours = Runner(env, agent_cfg, on_iteration=lambda *_: note(ours.alg.storage))
      ours.learn()
      env.close()
  return dataclasses.replace(curve, seconds=time.perf_counter() - start)


def _set_environment(variables: dict[str, str]) -> None:
  os.environ.update(variables)


def table(curves: Sequence[Curve]) -> list[str]:
  """Lines that compare the ends of the curves."""
  lines = []
  for case, title in CASES.items():
    group = [curve for curve in curves if curve.case == case]
    rewards = [curve.final("reward") for curve in group]
    spread = statistics.stdev(rewards) if len(rewards) > 1 else 0.0
    lines.append(
      f"{title:<22} reward per step {statistics.fmean(rewards):.4f} ± {spread:.4f}, "
      f"episodes ended {statistics.fmean(c.final('ended') for c in group):.3%} of "
      f"steps ({len(group)} seeds, {group[0].samples[-1] / 1e6:.1f} M samples)"
    )
  return lines


def read_json(path: Path) -> list[Curve]:
  """What ``bench_learning`` wrote, once both loops have a curve."""
  try:
    curves = [Curve(**row) for row in json.loads(path.read_text())["results"]]
  except (OSError, ValueError, KeyError, TypeError) as error:
    raise UserError(
      f"{path} is no file of 'benchmarks/learning.py --json': {error}"
    ) from error
  missing = CASES.keys() - {curve.case for curve in curves}
  if missing:
    raise UserError(f"{path} has no curve of {', '.join(sorted(missing))}.")
  return curves


def plot(curves: Sequence[Curve], path: Path) -> None:
  """Reward per step over samples: mean and range of the seeds."""
  import matplotlib

  matplotlib.use("Agg")
  import matplotlib.pyplot as plt

  figure, axis = plt.subplots(figsize=(6.5, 4), layout="constrained")
  colors = {"stock": "tab:gray", "ours": "tab:blue"}
  for case, title in CASES.items():
    group = [curve for curve in curves if curve.case == case]
    samples = [s / 1e6 for s in group[0].samples]
    values = list(zip(*(curve.reward for curve in group), strict=True))
    mean = [statistics.fmean(v) for v in values]
    axis.plot(samples, mean, color=colors[case], label=title)
    axis.fill_between(
      samples,
      [min(v) for v in values],
      [max(v) for v in values],
      color=colors[case],
      alpha=0.25,
      linewidth=0,
    )
  axis.set(xlabel="million samples", ylabel="reward per step")
  axis.grid(alpha=0.3)
  axis.legend()
  with replacing(path) as partial:
    figure.savefig(partial, dpi=130)
  plt.close(figure)


def _write_json(path: Path, curves: Sequence[Curve], task: str, num_envs: int) -> None:
  settings = {"task": task, "num_envs": num_envs}
  write_report(path, LEARNING, settings, [dataclasses.asdict(c) for c in curves])


if __name__ == "__main__":
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--task", default="g1-flat")
  parser.add_argument("--num-envs", type=int)
  parser.add_argument("--device", default="auto")
  parser.add_argument("--iterations", type=int, default=150)
  parser.add_argument("--seeds", type=int, nargs="+", default=(1, 2, 3))
  parser.add_argument("--json", type=Path)
  parser.add_argument("--from", dest="source", type=Path)
  parser.add_argument("--plot", type=Path)
  options = parser.parse_args()
  if options.source:
    found = read_json(options.source)
  else:
    where = check_device(options.device)
    found = bench_learning(
      options.num_envs or (64 if where == "cpu" else 1024),
      where,
      task=options.task,
      seeds=options.seeds,
      iterations=options.iterations,
      json_path=options.json,
    )
  print("\n".join(table(found)))
  if options.plot:
    plot(found, options.plot)
