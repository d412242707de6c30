"""A walk of the simulated robot under the very controller that drives the real one.

The gantry holds the robot until the policy has taken over, as owners do it; then a
scripted operator walks it, and everything that the tables need is written down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from decap.deploy.bundle import Bundle
from decap.deploy.controller import Controller, Cycle
from decap.deploy.grounds import TERRAINS
from decap.deploy.operator import Input
from decap.deploy.robot_io import RobotState
from decap.deploy.robots import motors_for
from decap.deploy.sensors import GYROS
from decap.deploy.simulation import SimCfg, SimulatedRobot
from decap.deploy.states import NONE, Mode, Requests
from decap.errors import UserError

STAND_S = 1.0
"""Time to the standing pose; the simulated robot starts close to it."""
SETTLE_S = 1.0
"""From the policy's start to the walk's: blended in, gantry let go."""
FADE_S = 0.3
"""The gantry gives way over this time from the policy's start on: longer, and a policy
that walks on the spot would learn to lean on it; shorter, and the robot drops."""
PATIENCE_S = 1.0
"""How long after standing the policy may take to start before a walk is given up."""


@dataclass(frozen=True)
class Walk:
  """Commands over time: (from when in s, vx, vy, yaw rate), and how long."""

  commands: tuple[tuple[float, float, float, float], ...]
  seconds: float
  steered: bool = False
  """Whether the operator turns the robot back to its line, as one with a remote would:
  the yaw rate is then the command's plus what heading and distance ask for."""

  def at(self, time_s: float) -> np.ndarray:
    """The command at a time. # [3]"""
    current: Sequence[float] = (0.0, 0.0, 0.0)
    for start_s, *command in self.commands:
      if time_s >= start_s - 1e-9:
        current = command
    return np.array(current, np.float64)


def straight(speed: float, seconds: float, steered: bool = True) -> Walk:
  """Stand for a second, then walk ahead."""
  return Walk(((1.0, speed, 0.0, 0.0),), seconds, steered)


@dataclass
class Trace:
  """What happened on a walk, one row per control step (T of them)."""

  joint_names: tuple[str, ...]
  control_dt_s: float
  action_scale: np.ndarray
  """rad per unit of action. # [J]"""
  arrays: dict[str, np.ndarray]
  """`time_s` [T]; `q`, `dq`, `torque`, `action` [T, J]; `command`, `velocity` [T, 3];
  `qpos` [T, Q]."""
  gyros: dict[str, tuple[np.ndarray, np.ndarray]]
  """Site → times [N] and angular velocity [N, 3], rad/s, from the walk's start."""
  fell: bool
  stop_reason: str
  """Why the controller stopped the robot before the walk was over; empty if it did not."""
  events: list[str] = field(default_factory=list)

  @property
  def seconds(self) -> float:
    """Time walked."""
    return len(self.arrays["time_s"]) * self.control_dt_s

  @property
  def intervened(self) -> bool:
    """Whether someone or something had to step in, other than after a fall."""
    return bool(self.stop_reason) and not self.fell

  def distance(self) -> float:
    """From start to end in the plane, m."""
    path = self.arrays["qpos"][:, :2]
    return float(np.linalg.norm(path[-1] - path[0])) if len(path) else 0.0

  def save(self, path: Path) -> None:
    """Everything as one .npz file."""
    arrays: dict[str, Any] = {
      f"gyro_{name}_{part}": values
      for name, pair in self.gyros.items()
      for part, values in zip(("time_s", "rad_s"), pair, strict=True)
    }
    names = np.array(self.joint_names)
    np.savez_compressed(path, joint_names=names, **arrays, **self.arrays)


def walk(
  bundle: Bundle, cfg: SimCfg, plan: Walk, robot: SimulatedRobot | None = None
) -> Trace:
  """Walk the plan with a policy; ends early where the robot falls or is stopped.

  Args:
    robot: Built from the same config before; it is reset. A fresh one by default.
  """
  robot = robot or SimulatedRobot(motors_for(bundle.joint_names), cfg)
  robot.reset()
  recorder = _Recorder(robot, plan, bundle.joint_names)
  controller = Controller(
    robot,
    robot.motors,
    [bundle],
    operator=recorder,
    stand_s=STAND_S,
    observers=(recorder.observe,),
  )
  controller.run(recorder.over)
  return recorder.trace(controller, bundle)


class _Recorder:
  """Operator and observer of one walk."""

  def __init__(self, robot: SimulatedRobot, plan: Walk, joint_names: tuple[str, ...]):
    self._robot, self._plan = robot, plan
    self._order = np.array([robot.joint_names.index(name) for name in joint_names])
    self._course = TERRAINS[robot.cfg.terrain]
    self._policy_s = math.inf
    self._rows: dict[str, list] = {}
    self._policy_steps = 0
    self._fell = self._done = self._walking = self._asked = False
    self._stop_reason = ""
    self._events: list[str] = []

  # Operator.

  def poll(self, now_s: float, state: RobotState | None) -> Input:
    """Stand, then the policy, then the plan's commands."""
    del state
    requests = NONE
    if self._policy_s == math.inf:
      requests = Requests(stand=not self._asked, policy=now_s >= STAND_S + 0.1)
      self._asked = True
    if not self._walking:
      return Input(np.zeros(3), requests, exact=True)
    command = self._plan.at(now_s - self._start_s)
    if self._plan.steered and np.count_nonzero(command):
      command[2] += self._correction()
    return Input(command, requests, exact=True)

  @property
  def _start_s(self) -> float:
    return self._policy_s + SETTLE_S

  def _correction(self) -> float:
    return -1.0 * self._robot.yaw() - 0.4 * float(self._robot.data.qpos[1])

  # Observer.

  def observe(self, controller: Controller, cycle: Cycle) -> None:
    """Let go of the robot in time, write down every control step, see the end."""
    robot = self._robot
    self._events += [f"{cycle.now_s:.3f} s: {event}" for event in cycle.events]
    if cycle.mode is Mode.DAMPING:
      self._stop_reason = controller.machine.stop_reason
      self._fell = self._fell or robot.fallen() or "tilt" in self._stop_reason
      self._done = True
      return
    if cycle.mode is not Mode.POLICY:
      return
    if self._policy_s == math.inf:
      self._policy_s = cycle.now_s
    if robot.held:
      robot.release(FADE_S)
    if not self._walking and cycle.now_s >= self._start_s:
      self._walking = True
      robot.restart_gyros()
    if self._walking and controller.policy.steps != self._policy_steps:
      self._policy_steps = controller.policy.steps
      self._record(controller, cycle)

  def over(self) -> bool:
    """Whether the walk has ended, one way or another."""
    now_s = self._robot.now_s()
    if self._policy_s == math.inf and now_s > STAND_S + PATIENCE_S:
      return True
    return self._done or now_s >= self._start_s + self._plan.seconds

  def trace(self, controller: Controller, bundle: Bundle) -> Trace:
    if self._policy_s == math.inf:
      raise UserError(
        f"{bundle.folder} did not get as far as walking: "
        f"{self._stop_reason or '; '.join(self._events) or 'nothing happened'}."
      )
    joints, state = len(bundle.joint_names), self._robot.model.nq
    sizes = {"command": 3, "velocity": 3, "qpos": state}
    sizes |= dict.fromkeys(("q", "dq", "torque", "action"), joints)
    arrays = {
      name: np.array(self._rows.get(name, [])).reshape(-1, size)
      for name, size in sizes.items()
    }
    arrays["time_s"] = np.array(self._rows.get("time_s", []))
    return Trace(
      joint_names=bundle.joint_names,
      control_dt_s=bundle.control_dt_s,
      action_scale=bundle.action_scale,
      arrays=arrays,
      gyros={name: self._gyro(name) for name in GYROS},
      fell=self._fell,
      stop_reason=self._stop_reason,
      events=self._events,
    )

  def _record(self, controller: Controller, cycle: Cycle) -> None:
    robot, policy = self._robot, controller.policy
    data, order = robot.data, self._order
    row = {
      "time_s": cycle.now_s - self._start_s,
      "q": data.qpos[robot.joint_qpos][order],
      "dq": data.qvel[robot.joint_qvel][order],
      "torque": robot.torque[order],
      "action": policy.action.copy(),
      "command": cycle.velocity_command.copy(),
      "velocity": robot.velocity(),
      "qpos": data.qpos.copy(),
    }
    for name, value in row.items():
      self._rows.setdefault(name, []).append(value)
    if robot.fallen():
      self._fell = self._done = True
    elif not self._course.holds(*data.qpos[:2].tolist()):
      self._stop_reason, self._done = "left the course", True

  def _gyro(self, name: str) -> tuple[np.ndarray, np.ndarray]:
    if not self._walking:
      return np.zeros(0), np.zeros((0, 3))
    times, values = self._robot.gyros[name].samples()
    return times - self._start_s, values
