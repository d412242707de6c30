"""Whether our loop learns as rsl_rl's does: the same task and PPO, several seeds each.

Stock is mjlab's environment with rsl_rl; ours is the captured loop (eager on a CPU).
Both count what is in their rollout storage, so that the curves mean the same: reward
per step, and the share of steps at which an episode ended.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.loops import plain_ppo
from benchmarks.machine import quiet_libraries
from benchmarks.report import Row, Settings
from benchmarks.stock import stock_twin, train_stock
from decap.envs.constrained_env import ConstrainedEnv
from decap.rl.runner import Runner
from decap.tasks.mjlab_runner import rsl_rl_cfg

INIT_STD = 0.5
"""Both start with this σ for all joints: rsl_rl has one value, our task one a group."""

LAST = 0.1
"""Share of the run, at its end, that the table averages over."""


def measure(case: str, settings: Settings) -> Row:
  """One run, and its curves."""
  env_cfg, agent_cfg = plain_ppo(settings.spec())
  agent_cfg.policy.init_std = INIT_STD
  steps = settings.num_envs * agent_cfg.num_steps_per_env
  row: Row = {"seed": settings.seed, "samples": [], "reward": [], "ended": []}

  def note(storage: Any) -> None:
    row["samples"].append(steps * (len(row["samples"]) + 1))
    row["reward"].append(float(storage.rewards.mean()))
    row["ended"].append(float(storage.dones.float().mean()))

  if case == "stock":
    twin, agent = stock_twin(env_cfg), rsl_rl_cfg(agent_cfg)
    train_stock(twin, agent, settings.device, lambda r, _: note(r.alg.storage))
    return row
  with quiet_libraries():
    env = ConstrainedEnv(env_cfg, settings.device)
    ours = Runner(env, agent_cfg, on_iteration=lambda *_: note(ours.alg.storage))
    if not ours.learn():
      raise KeyboardInterrupt
    env.close()
  return row


def with_ends(rows: Sequence[Row]) -> list[Row]:
  """Rows, means over the ends of their curves, and of those over the seeds so far."""
  out, seeds = [], {}
  for row in rows:
    if row.get("reward"):
      last = slice(-max(1, round(LAST * len(row["reward"]))), None)
      ends = {f"{n}_end": statistics.fmean(row[n][last]) for n in ("reward", "ended")}
      same = seeds.setdefault(row["case"], [])
      same.append(ends["reward_end"])
      row = {**row, **ends, "million": row["samples"][-1] / 1e6}
      row["mean"] = statistics.fmean(same)
      row["deviation"] = statistics.stdev(same) if len(same) > 1 else None
    out.append(row)
  return out
