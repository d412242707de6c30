"""Six methods on a two-joint arm, in about a minute on a CPU.

The arm has two joints in a row and its tip, at the sum of both angles, must follow a
target that jumps. The joint `reach` may be quick. The joint `carry` holds a cup and
should be calm. Either joint can do the work, and an unconstrained policy uses both.

  python examples/toy.py [--out FOLDER]

prints a table, writes toy.png, and shows how any vectorised environment is trained
with decap's constraints and algorithms: `Arm.step` returns `extras["constraints"]`,
and that is all that the algorithms ask for.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from decap import constraints as core
from decap.rl.build import build_algorithm
from decap.rl.config import (
  AgentCfg,
  FeasibilityCfg,
  LagrangianCfg,
  NIpoCfg,
  PolicyCfg,
  PpoCfg,
)
from decap.rl.feasibility import Feasibility

JOINTS = ("reach", "carry")
GROUPS = {
  "reach": core.BodyGroupCfg(joint_names=("reach",), p_max=0.25),
  "carry": core.BodyGroupCfg(joint_names=("carry",), p_max=0.5),
}
DECOUPLED = {
  "action_rate": {"reach": 100.0, "carry": 3.0},  # rad/s
  "joint_velocity": {"reach": 10.0, "carry": 0.4},  # rad/s
}
"""The limits that count: every method is measured against these."""
WHOLE_BODY = {
  name: {"reach": limits["reach"], "carry": limits["reach"]}
  for name, limits in DECOUPLED.items()
}
"""One limit for all joints, loose enough for the quick one."""


@dataclass
class Method:
  """How the constraints of the arm are turned into learning."""

  algorithm: PpoCfg
  limits: dict[str, dict[str, float]] = field(default_factory=lambda: DECOUPLED)
  rule: Literal["decap", "cat"] = "decap"
  p_max: float | None = None
  """One for all joints, in place of those of their groups."""
  action_rate_weight: float = 0.0
  """Reward shaping: weight of the squared change of the action."""


METHODS = {
  "PPO": Method(PpoCfg()),
  "Reward shaping": Method(PpoCfg(), action_rate_weight=0.5),
  "CaT": Method(
    # p_max rises from 0.05, for half of the run.
    PpoCfg(survival=True, reward_rule="scale-clip", p_max_ramp=(0.2, 0.5)),
    WHOLE_BODY,
    "cat",
    p_max=0.25,
  ),
  "N-IPO": Method(NIpoCfg(barrier_t=50.0), WHOLE_BODY),
  "PPO-Lagrangian": Method(LagrangianCfg(multiplier_lr=0.01)),
  "DeCap": Method(
    PpoCfg(
      survival=True,
      reward_rule="clip",
      # A mean horizon of at least 25 steps, and limits as they are from the start.
      feasibility=FeasibilityCfg(budget=0.04, target=None, quantile=None),
    )
  ),
}


COMMON = {
  "gamma": 0.97,  # the arm settles within 20 steps
  "entropy_coef": 0.002,
  "num_learning_epochs": 4,
  # Returns reach 30 here, and clipped values would follow by 0.2 an update.
  "use_clipped_value_loss": False,
}
"""What all methods share, beside the network and the noise."""


def constraints(method: Method) -> core.Composition:
  """δ̄ and costs of the arm's quantities under one method's limits."""
  groups = {
    name: replace(group, p_max=method.p_max or group.p_max)
    for name, group in GROUPS.items()
  }
  rule = core.TerminationCfg(rule=method.rule)
  return core.Composition(method.limits, groups, JOINTS, rule)


class Arm:
  """Two critically damped joints in a row whose tip follows a jumping target."""

  dt, substeps, action_scale = 0.02, 2, 0.5
  stiffness, damping = 100.0, 20.0
  episode_steps, target_steps = 200, 50

  def __init__(self, num_envs: int, method: Method) -> None:
    self.num_envs, self.method = num_envs, method
    self.composition = constraints(method)
    self.q, self.qd, self.action = (torch.zeros(num_envs, 2) for _ in range(3))
    self.target = torch.zeros(num_envs, 1)
    self.age = torch.zeros(num_envs, 1, dtype=torch.long)
    everyone = torch.ones(num_envs, 1, dtype=torch.bool)
    self._reset(everyone)
    self._draw_target(everyone)
    # Arms of all ages, so that time-outs and jumps are spread.
    self.age = torch.randint(self.episode_steps, (num_envs, 1))

  def step(self, action: Tensor) -> tuple:
    quantities = self._move(action)
    error = self.target - self.q.sum(dim=-1, keepdim=True)
    reward = (-(error**2) / 0.1).exp().squeeze(-1)
    change = (action - self.action).square().sum(dim=-1)
    shaped = reward - self.method.action_rate_weight * change
    self.action = action.clone()
    self.age = self.age + 1
    time_outs = self.age >= self.episode_steps
    extras = {
      "time_outs": time_outs.squeeze(-1),
      "constraints": self.composition.report(quantities),
      "task_reward": reward,
    }
    self._reset(time_outs)
    self._draw_target(self.age % self.target_steps == 0)
    return self.observe(), shaped, time_outs.squeeze(-1), extras

  def observe(self) -> dict[str, Tensor]:
    tip = self.q.sum(dim=-1, keepdim=True)
    state = (self.q, 0.2 * self.qd, self.target, self.target - tip, self.action)
    return {"actor": torch.cat(state, dim=-1)}

  def _move(self, action: Tensor) -> dict[str, Tensor]:
    """Position control for one step; gives the constrained quantities [B, J]."""
    goal = self.action_scale * action
    for _ in range(self.substeps):
      acceleration = self.stiffness * (goal - self.q) - self.damping * self.qd
      self.qd = self.qd + acceleration * self.dt / self.substeps
      self.q = self.q + self.qd * self.dt / self.substeps
    rate = core.action_rate(action, self.action, self.action_scale, self.dt)
    return {
      "action_rate": rate,
      "joint_velocity": core.joint_velocity(self.qd),
    }

  def _reset(self, mask: Tensor) -> None:
    start = torch.rand_like(self.q) - 0.5
    self.q = torch.where(mask, start, self.q)
    self.qd = torch.where(mask, 0.0, self.qd)
    self.action = torch.where(mask, start / self.action_scale, self.action)
    self.age = torch.where(mask, 0, self.age)

  def _draw_target(self, mask: Tensor) -> None:
    self.target = torch.where(
      mask, 2.0 * torch.rand_like(self.target) - 1.0, self.target
    )


@dataclass
class Result:
  """One method's deterministic policy, and the way there."""

  task: float
  """Mean task reward per step; 1 is a tip that is always at the target."""
  violations: dict[str, float]
  """Share of steps above the decoupled limits, by quantity and joint."""
  curve: list[float]
  """Task reward of the exploring policy per iteration."""
  trace: dict[str, list[float]]
  """Angles of both joints, the tip and its target in one environment, over time."""

  @property
  def carry(self) -> float:
    """The worst share of steps above a limit of the joint that should be calm."""
    return max(v for name, v in self.violations.items() if name.endswith("carry"))

  @property
  def reach(self) -> float:
    """The same for the quick joint."""
    return max(v for name, v in self.violations.items() if name.endswith("reach"))


def train(name: str, iterations: int, num_envs: int = 512, seed: int = 1) -> Result:
  """Train one method and evaluate what it learnt."""
  torch.manual_seed(seed)
  torch.set_num_threads(1)
  method = METHODS[name]
  env = Arm(num_envs, method)
  obs = env.observe()
  cfg = AgentCfg(
    num_steps_per_env=16,
    policy=PolicyCfg(hidden_dims=(32, 32), init_std=0.3, std_type="log"),
    algorithm=replace(method.algorithm, **COMMON),
  )
  composition, aid = env.composition, cfg.algorithm.feasibility
  alg = build_algorithm(
    cfg,
    obs,
    len(JOINTS),
    JOINTS,
    composition.row_names,
    num_envs,
    "cpu",
    feasibility=Feasibility(aid, composition) if aid else None,
    composition=composition,
  )
  curve = []
  for iteration in range(iterations):
    rewards = []
    for _ in range(cfg.num_steps_per_env):
      obs, reward, dones, extras = env.step(alg.act(obs))
      alg.process_env_step(obs, reward, dones, extras)
      rewards.append(extras["task_reward"].mean())
    alg.compute_returns(obs)
    alg.update()
    alg.between_iterations((iteration + 1) / iterations)
    curve.append(float(torch.stack(rewards).mean()))
  return evaluate(alg.actor, curve)


@torch.no_grad()
def evaluate(policy, curve: list[float], num_envs: int = 256) -> Result:
  """The mean action in new arms, against the decoupled limits."""
  torch.manual_seed(0)
  env = Arm(num_envs, Method(PpoCfg()))
  env.age[0] = 0  # so that the episode that is drawn is a whole one
  obs, rewards, costs = env.observe(), [], []
  trace: dict[str, list[float]] = {"reach": [], "carry": [], "tip": [], "target": []}
  for step in range(2 * env.episode_steps - 1):
    obs, _, _, extras = env.step(policy(obs))
    if step >= env.episode_steps:
      rewards.append(extras["task_reward"].mean())
      costs.append(extras["constraints"]["costs"].mean(dim=0))
      now = (*env.q[0], env.q[0].sum(), env.target[0])
      for values, value in zip(trace.values(), now, strict=True):
        values.append(float(value))
  violations = torch.stack(costs).mean(dim=0).tolist()
  return Result(
    float(torch.stack(rewards).mean()),
    dict(zip(env.composition.row_names, violations, strict=True)),
    curve,
    trace,
  )


def run_all(iterations: int, workers: int = 2) -> dict[str, Result]:
  """All methods, a process each, so that both cores work."""
  with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
    jobs = {name: pool.submit(train, name, iterations) for name in METHODS}
    return {name: job.result() for name, job in jobs.items()}


def table(results: dict[str, Result]) -> str:
  """Task and constraints, method by method."""
  lines = [f"{'':16}  task reward   above limit: carry   reach"]
  for name, result in results.items():
    lines.append(
      f"{name:16}  {result.task:11.3f} {result.carry:19.1%} {result.reach:7.1%}"
    )
  return "\n".join(lines)


def figure(results: dict[str, Result], path: Path) -> None:
  """Learning curves on the left, both joints of two methods on the right."""
  import matplotlib

  matplotlib.use("Agg")
  import matplotlib.pyplot as plt

  fig, axes = plt.subplots(1, 3, figsize=(13, 3.6), constrained_layout=True)
  for name, result in results.items():
    axes[0].plot(result.curve, label=name)
  axes[0].set(xlabel="iteration", ylabel="task reward per step", title="Training")
  axes[0].legend(fontsize="small")
  styles = {"reach": "C0-", "carry": "C1-", "tip": "k-", "target": "k:"}
  for ax, name in zip(axes[1:], ("PPO", "DeCap"), strict=True):
    for joint, values in results[name].trace.items():
      time_s = [Arm.dt * i for i in range(len(values))]
      ax.plot(time_s, values, styles[joint], label=joint)
    ax.set(xlabel="time, s", ylabel="angle, rad", title=name, ylim=(-1.6, 1.6))
    ax.legend(fontsize="small")
  fig.savefig(path, dpi=150)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--iterations", type=int, default=140)
  parser.add_argument("--out", type=Path, default=Path("."))
  args = parser.parse_args()
  args.out.mkdir(parents=True, exist_ok=True)
  results = run_all(args.iterations)
  print(table(results))
  figure(results, args.out / "toy.png")
  print(f"\nFigure: {args.out / 'toy.png'}")


if __name__ == "__main__":
  main()
