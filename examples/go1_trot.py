"""Limits for a Unitree Go1 from a scripted trot, in a minute on a CPU.

No policy has to be trained before a robot has limits: any motion that does the task can
be profiled. Feet on a diagonal swing together by the clock of the robot's description,
and legs are bent by inverse kinematics.

  python examples/go1_trot.py [--output limits.yaml]

prints what `decap profile` would propose for the trot, and how much of the commands it
follows.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from decap.envs.build import make_env
from decap.envs.mdp.kinematics import root_velocity_yaw, up_b
from decap.evaluation import profile
from decap.evaluation.environment import command_term, evaluation_cfg
from decap.evaluation.policies import Policy
from decap.evaluation.protocol import Protocol
from decap.evaluation.rollout import Evaluation, Rollout
from decap.robots.go1 import go1

LINK_M = 0.213
"""Length of thigh and calf."""
PUSH_NS_M = 30.0
"""Force with which a leg that stands pushes for each m/s that the trunk is too slow."""
BALANCE_S = 0.1
"""Distance by which feet are put ahead for each m/s that the trunk is too fast."""
LEVEL = 1.5
"""Length that a leg gains for each metre that its corner of the trunk is too low."""
HIP_M = 0.08
"""Distance of a leg's plane from the axis that spreads it."""
STANCE_M = 0.26
"""Height of the hips above the ground."""
LIFT_M = 0.06
"""How far a swinging foot is lifted."""
FEET = ((0.19, -0.13), (0.19, 0.13), (-0.19, -0.13), (-0.19, 0.13))
"""Where the feet stand below the trunk, m, in the order of the description."""


class Trot:
  """Position targets of a trot, as actions of the task.

  The motors are soft: targets are ahead of the motion by their lag, and beyond it by
  what the weight on a leg bends.
  """

  def __init__(self, env) -> None:
    self.env, self.gait = env, go1().gait
    term = env.action_manager.get_term("joint_pos")
    self.scale, self.offset = term.scale, term.offset  # [B, J]
    self.feet = torch.tensor(FEET)
    self.ahead = torch.tensor(self.gait.offsets)
    model = env.sim.mj_model
    self.weight_n = float(model.body_mass.sum() * 9.81)
    gain = torch.tensor(model.actuator_gainprm[:, 0], dtype=torch.float)
    damping = torch.tensor(-model.actuator_biasprm[:, 2], dtype=torch.float)
    joints = [
      model.joint(int(j)).name.split("/")[-1] for j in model.actuator_trnid[:, 0]
    ]
    order = [joints.index(name) for name in go1().joint_names]
    self.stiffness = gain[order].view(4, 3)
    self.lag_s = float((damping / gain).mean())

  def __call__(self, obs) -> Tensor:
    velocity = self._velocity()  # [B, 4, 2]
    moves = velocity.norm(dim=-1) > 0.02
    time_s = self.env.episode_length_buf.unsqueeze(1) * self.env.step_dt
    phase = (time_s + self.lag_s) / self.gait.period_s + self.ahead
    step_s, lift, load = self._swing(phase % 1.0)
    place = velocity * step_s.unsqueeze(-1)  # [B, 4, 2]
    robot = self.env.scene["robot"]
    actual = root_velocity_yaw(self.env, robot).unsqueeze(1)
    # Feet are put where the trunk is going, and press where it sinks.
    missing = (self._command() - actual) * moves.unsqueeze(-1)  # [B, 4, 2]
    place = place - BALANCE_S * missing
    x, y = place.unbind(-1)  # [B, 4] each
    sinks = -(up_b(robot)[:, None, :2] * self.feet).sum(-1)
    down = STANCE_M + LEVEL * sinks - lift * moves
    load = torch.where(moves, load, 1.0).unsqueeze(-1)
    push_x, push_y = (PUSH_NS_M * load * missing).unbind(-1)
    push_z = load.squeeze(-1) * self.weight_n / 4.0
    hip = self.offset[:, 0::3] + torch.atan2(y, torch.full_like(y, STANCE_M))
    reach = torch.hypot(x, down).clamp(max=1.98 * LINK_M)
    calf = -2.0 * torch.acos(reach / (2.0 * LINK_M))
    thigh = -0.5 * calf - torch.atan2(x, down)
    side = HIP_M * self.feet[:, 1].sign() + down * torch.sin(hip)
    ahead, below = (f(thigh + calf) * LINK_M for f in (torch.sin, torch.cos))
    torque = torch.stack(
      (
        -push_z * side - push_y * down,
        push_z * x + push_x * down,
        -push_z * ahead + push_x * below,
      ),
      -1,
    )  # [B, 4, 3]
    target = torch.stack((hip, thigh, calf), -1) + torque / self.stiffness
    return (target.flatten(1) - self.offset) / self.scale

  def _swing(self, phase: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of each foot: time for which it goes with the ground, s; height, m; its load."""
    share, period = self.gait.stance_share, self.gait.period_s
    swing = (phase - share) / (1.0 - share)
    swings = swing >= 0.0
    back = torch.where(swings, -0.5 * torch.cos(math.pi * swing), 0.5 - phase / share)
    lift = LIFT_M * torch.sin(math.pi * swing) * swings
    load = 0.5 * math.pi / share * torch.sin(math.pi * phase / share) * ~swings
    return back * share * period, lift, load

  def _velocity(self) -> Tensor:
    """Commanded velocity of the trunk at each foot. # [B, 4, 2]"""
    yaw = command_term(self.env).command[:, 2:, None]  # [B, 1, 1]
    x, y = self.feet.unbind(-1)
    return self._command() + yaw * torch.stack((-y, x), -1)

  def _command(self) -> Tensor:
    return command_term(self.env).command[:, None, :2]  # [B, 1, 2]


def trot(envs: int = 32, steps: int = 500, **changed: Any) -> Evaluation:
  """Let Go1s trot as they are told, and measure them; `changed` are of the protocol."""
  torch.set_num_threads(1)
  protocol = Protocol("go1-flat", 1, envs, steps, per_command=0, **changed)
  env = make_env(evaluation_cfg(protocol), "cpu")
  info = {"name": "trot", "source": "examples/go1_trot.py", "task": "go1-flat"}
  rollout = Rollout(env, Policy(Trot(env), info), protocol, record=envs)
  return rollout.evaluation(rollout.run())


def stand(envs: int = 16, steps: int = 250) -> Evaluation:
  """The same, told to stand: what they need there is the least that is proposed."""
  return trot(envs, steps, commands="fixed", command=(0.0, 0.0, 0.0))


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--output", type=Path, default=Path("limits.yaml"))
  args = parser.parse_args()
  evaluation = trot()
  trajectory = evaluation.trajectory
  rule = profile.complete_rule(list(trajectory.layout.groups), go1().profile_quantiles)
  walking, standing = map(profile.profile_trajectory, (trajectory, stand().trajectory))
  limits = profile.propose_limits(walking, standing, rule)
  for name, values in limits.items():
    print(f"{name}: {values}")
  tracking = evaluation.result.metrics["tracking"]
  falls = evaluation.result.metrics["falls_per_minute"]["mean"]
  print(f"Followed {100 * tracking['followed']['mean']:.0f} %, {falls:.2f} falls/min.")
  profile.write_limits(args.output, limits, rule, trajectory.policy, trajectory.layout)
  print(f"Wrote {args.output}")


if __name__ == "__main__":
  main()
