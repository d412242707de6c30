"""The controller: one cycle at 500 Hz reads, checks, decides and commands.

It knows the protocol of a robot, not which one, so simulation runs exactly what drives
hardware. The order of a cycle matters: checks come before requests, requests before
targets, and no path leads to a command that a check has not seen.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from decap.deploy.bundle import Bundle
from decap.deploy.latency import Latency
from decap.deploy.operator import Operator
from decap.deploy.policy import RunningPolicy
from decap.deploy.robot_io import (
  COMMAND_DT_S,
  COMMANDS_PER_STEP,
  Robot,
  RobotCommand,
  RobotState,
  damping_command,
)
from decap.deploy.states import DRIVEN, NONE, STAND_S, Machine, Mode
from decap.deploy.stops import Deadlines, Limits, Monitor, skipped_cycles, target_fault
from decap.errors import UserError
from decap.robots.motors import RobotMotors

BLEND_S = 0.5
"""Time in which a policy takes over from what drove before."""

EFFORT_SHARE = 0.98
"""Share of a motor's peak torque that position and damping together may ask for."""

DAMPING_FACTOR = 2.0
"""Damping of a stop over the gain that the motors walk with."""


@dataclass
class Cycle:
  """Everything about one cycle, for recorder, screen and tests."""

  now_s: float
  state: RobotState | None
  """The state that arrived in this cycle, if one did and could be used."""
  command: RobotCommand
  mode: Mode
  velocity_command: np.ndarray
  fault: str | None
  events: list[str] = field(default_factory=list)


def clip_targets(
  q_target: np.ndarray,
  q: np.ndarray,
  dq: np.ndarray,
  kp: np.ndarray,
  kd: np.ndarray,
  effort: np.ndarray,
) -> np.ndarray:
  """Nearest targets for which kp·(q* − q) − kd·q̇ stays within ± effort, all [J]."""
  resistance = kd * dq
  shares = (kp * (q_target - q) - resistance) / effort
  if shares.dot(shares) < 0.99:
    return q_target  # All together are within what a single one may be: as usual.
  stiff = np.maximum(kp, 1e-9)
  low = q + (resistance - effort) / stiff
  high = q + (resistance + effort) / stiff
  return np.where(kp > 0, np.minimum(np.maximum(q_target, low), high), q_target)


def damping_of(motors: RobotMotors) -> RobotCommand:
  """The command that every stop of this robot ends in."""
  return damping_command(len(motors.motors), DAMPING_FACTOR * motors.array("kd"))


class Controller:
  """Drives a robot with one of several policies, and stops it when it must."""

  def __init__(
    self,
    robot: Robot,
    motors: RobotMotors,
    bundles: Sequence[Bundle],
    operator: Operator,
    limits: Limits | None = None,
    stand_s: float = STAND_S,
    observers: Sequence[Callable[[Controller, Cycle], None]] = (),
  ):
    if robot.joint_names != motors.joint_names:
      raise UserError("The robot's joints are not those of its motor table.")
    self.robot = robot
    self.motors = motors
    self.policies = [RunningPolicy(b, motors.joint_names) for b in bundles]
    self.operator = operator
    self.limits = limits or Limits()
    now_s = robot.now_s()
    self.machine = Machine(len(self.policies), stand_s, since_s=now_s)
    self.monitor = Monitor(motors, self.limits, now_s, robot.mode_machine)
    self.deadlines = Deadlines(self.limits, self.monitor.tolerated)
    self.latency = Latency()
    self.observers = list(observers)
    self.state: RobotState | None = None
    """The newest state that could be used."""
    self.cycles = 0
    self._damping = damping_of(motors)
    self._effort = EFFORT_SHARE * motors.array("effort_limit")
    self._sent = self._damping
    self._from = self._damping
    """What was commanded when the present mode or policy took over."""
    self._blend_start_s = now_s
    self._share = 0.0
    """How far the policy has taken over."""
    self._countdown = 0
    """Cycles until the policy is asked again; those that are left out count, too."""
    self._target = np.zeros(len(motors.motors))
    self._velocity_command = np.zeros(3)
    self._output_fault: str | None = None
    """What was wrong with the policy's targets in this very cycle."""
    self.next_s = now_s
    """When the next cycle is due."""
    self.policy_stepped = False
    """Whether the policy was asked in the last cycle."""
    self._written_s = math.inf  # When a command was sent last; the first is never late.

  @property
  def policy(self) -> RunningPolicy:
    """The policy that drives, or will."""
    return self.policies[self.machine.policy]

  def run(self, until: Callable[[], bool]) -> None:
    """Cycle until told to end; the robot is left in damping, whatever happens."""
    try:
      while not until():
        self.step()
        self.robot.sleep_until(self.next_s)
    finally:
      self.release()

  def run_for(self, seconds: float) -> None:
    """Cycle for a time of the robot's clock."""
    end_s = self.robot.now_s() + seconds - 1e-9
    self.run(lambda: self.robot.now_s() >= end_s)

  def release(self, repeats: int = 5) -> None:
    """Leave the robot in damping: the last commands that this controller sends."""
    for _ in range(repeats - 1):
      with contextlib.suppress(UserError):  # The next one may get through.
        self.robot.write(self._damping)
    self.robot.write(self._damping)

  def step(self) -> Cycle:
    """One cycle: read, check, decide, command, report."""
    now_s = self.robot.now_s()
    lag_s = max(0.0, now_s - self.next_s)
    skipped = skipped_cycles(lag_s)
    self.next_s += COMMAND_DT_S * (1 + skipped)
    self._countdown -= skipped
    fresh = self._read(now_s)
    wanted = self.operator.poll(now_s, fresh)
    fault = self.monitor.fault(now_s) or self.deadlines.fault(now_s, lag_s)
    self._output_fault = None
    before, driver = self.machine.mode, self.policy
    if self.machine.step(now_s, wanted.requests, fault):
      self._hand_over(now_s, before, driver)
    # Of the policy that drives now, which may be another one.
    self._velocity_command = self.policy.command(wanted.stick, wanted.exact)
    command = self._command(now_s)
    refused = self._output_fault or self._late()
    if refused and self.machine.mode in DRIVEN:
      # What would have been sent was refused just now: stop in this very cycle.
      events = self.machine.events
      self.machine.step(now_s, NONE, refused)
      self.machine.events = events + self.machine.events
      fault, command = refused, self._damping
    self._write(command)
    cycle = Cycle(
      now_s=now_s,
      state=fresh,
      command=command,
      mode=self.machine.mode,
      velocity_command=self._velocity_command,
      fault=fault,
      events=self.machine.events,
    )
    self.cycles += 1
    for observer in self.observers:
      observer(self, cycle)
    return cycle

  def _read(self, now_s: float) -> RobotState | None:
    started = time.perf_counter()
    state = self.monitor.update(
      self.robot.read(),
      now_s,
      self.robot.rejected_states(),
      self.robot.foreign_commands(),
    )
    self.latency.add("read", time.perf_counter() - started)
    if state is not None:
      self.state = state
    return state

  def _hand_over(self, now_s: float, before: Mode, driver: RunningPolicy) -> None:
    """A new mode or policy takes over from the command that was sent last."""
    self._from = self._sent
    self._blend_start_s = now_s
    self._countdown = 0
    if before is Mode.PASSIVE and self.state is not None:
      # From where the joints are, not from a target that damping never had.
      self._from = RobotCommand(self.state.q.copy(), self.policy.kp, self.policy.kd)
    if self.machine.mode is Mode.POLICY:
      self._target = self._sent.q_target
      walking = driver if before is Mode.POLICY else None
      self.policy.start(self._sent.q_target, walking)

  def _command(self, now_s: float) -> RobotCommand:
    if self.machine.mode is Mode.STAND:
      return self._stand(now_s)
    if self.machine.mode is Mode.POLICY:
      return self._drive(now_s)
    return self._damping

  def _stand(self, now_s: float) -> RobotCommand:
    share = (now_s - self.machine.since_s) / max(self.machine.stand_s, 1e-9)
    share = min(1.0, share)
    smooth = share * share * (3.0 - 2.0 * share)
    return self._limited(self._blend(smooth, self.policy.default_pos))

  def _blend(self, share: float, target: np.ndarray) -> RobotCommand:
    """From what was commanded before to the target and gains of the policy."""
    start, policy = self._from, self.policy
    return RobotCommand(
      q_target=start.q_target + share * (target - start.q_target),
      kp=start.kp + share * (policy.kp - start.kp),
      kd=start.kd + share * (policy.kd - start.kd),
    )

  def _drive(self, now_s: float) -> RobotCommand:
    policy = self.policy
    self.policy_stepped = self._countdown <= 0
    if self.policy_stepped:
      # Late or not, 50 Hz: the next step is due when it was.
      self._countdown = self._countdown % COMMANDS_PER_STEP or COMMANDS_PER_STEP
      target = self._ask(policy)
      if self._output_fault:
        return self._damping
      self._target = target
    self._countdown -= 1
    if not self.policy_stepped and self._share >= 1.0:
      return self._limited(self._sent)  # Nothing but the state has changed.
    self._share = share = min(1.0, (now_s - self._blend_start_s) / BLEND_S)
    return self._limited(self._blend(share, self._target))

  def _ask(self, policy: RunningPolicy) -> np.ndarray:
    """Targets of the policy; `_output_fault` says if they must not be sent."""
    assert self.state is not None
    try:
      target = policy.step(self.state, self._velocity_command, self.latency)
    except Exception as error:  # Whatever a network does wrong, the robot is damped.
      self._output_fault = f"the policy failed: {error}"
      return self._target
    self._output_fault = target_fault(
      target, self._target, self.limits, self.motors.joint_names
    )
    return target

  def _late(self) -> str | None:
    """What is wrong if the last command was long ago: the watchdog may have damped."""
    late_s = self.robot.now_s() - self._written_s - COMMAND_DT_S
    return f"a command came {late_s:.3f} s late" if late_s > self.limits.lag_s else None

  def _limited(self, command: RobotCommand) -> RobotCommand:
    """The command, within what the motors can give at the newest state."""
    assert self.state is not None
    self._sent = command
    q, dq, kp, kd = self.state.q, self.state.dq, command.kp, command.kd
    target = clip_targets(command.q_target, q, dq, kp, kd, self._effort)
    return replace(command, q_target=target)

  def _write(self, command: RobotCommand) -> None:
    started = time.perf_counter()
    self.robot.write(command)
    self.latency.add("publish", time.perf_counter() - started)
    self._written_s = self.robot.now_s()
