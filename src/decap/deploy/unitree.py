"""The robot of `robot_io` over Unitree's DDS messages, and a simulated one behind them.

On a robot, time is that since the machine's start, which no change of the wall clock
touches. Against a simulator (`lockstep`), time is the counter in the states: one state
in, one command out, so that a slow machine is slow and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from decap.deploy.dds import Participant, Reader, Writer
from decap.deploy.messages import LOW_CMD, LOW_STATE, TYPE_NAMES, BadMessage, Codec
from decap.deploy.robot_io import COMMAND_DT_S, Robot, RobotCommand, RobotState, clock_s
from decap.errors import UserError
from decap.robots.motors import RobotMotors

COMMAND_TOPIC = "rt/lowcmd"
STATE_TOPIC = "rt/lowstate"
ROBOT_DOMAIN = 0
SIMULATION_DOMAIN = 1

_RESEND_S = 0.05
"""In lockstep, what is not answered in this time is sent again."""
_LOST_S = 1.0
"""In lockstep, real time without a newer state after which simulated time goes on alone."""


class UnitreeRobot:
  """A G1 on the network."""

  def __init__(
    self, motors: RobotMotors, interface: str, domain: int, lockstep: bool = False
  ):
    self.motors = motors
    self.joint_names = motors.joint_names
    self._codec = Codec(motors)
    self._lockstep = lockstep
    self._participant = Participant(interface, domain)
    commands, states = _topics(self._participant)
    self._writer = Writer(self._participant, commands)
    self._states = Reader(self._participant, states, LOW_STATE)
    # All that others send: our own participant is left out.
    self._others = Reader(self._participant, commands, LOW_CMD, depth=16)
    self._rejected = self._foreign = 0
    self._pending: RobotState | None = None
    self._last_message = b""
    self.mode_machine: int | None = None
    """What the robot called itself when it was connected; echoed ever after."""
    self._time_s: float | None = None
    self._lost = False

  def connect(self, timeout_s: float = 5.0) -> RobotState:
    """Wait for a robot of this kind; nothing is sent before it was seen."""
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
      if self._states.wait(0.1) and (state := self._take()) is not None:
        self._check_kind(state)
        self.mode_machine = state.mode_machine
        self._pending = state
        return state
    if self._rejected:
      raise UserError(
        f"A robot answers, but all of its {self._rejected} states have a wrong "
        "checksum (is it a G1?)."
      )
    raise UserError(
      f"No robot on the network: no state arrived within {timeout_s:g} s (is it on, is "
      "the cable in, and has this machine an address 192.168.123.x there?)."
    )

  def read(self) -> RobotState | None:
    state, self._pending = self._pending, None
    while (newer := self._take()) is not None:
      state = newer
    return state

  def write(self, command: RobotCommand) -> None:
    if self.mode_machine is None:
      return  # A robot that was not connected gets no command.
    self._last_message = self._codec.encode_command(command, self.mode_machine)
    self._writer.write(self._last_message)

  def now_s(self) -> float:
    if self._lockstep:
      return self._time_s or 0.0
    return clock_s()

  def sleep_until(self, time_s: float) -> None:
    if not self._lockstep:
      time.sleep(max(0.0, time_s - clock_s()))
      return
    # A simulator may take its time. Once it is gone, or behind because it started anew,
    # time passes as on the wall.
    step_s = max(0.0, time_s - self.now_s())
    patience_s = step_s if self._lost else _LOST_S
    give_up_s = time.monotonic() + patience_s
    while self.now_s() < time_s - 1e-9:
      before_s, came = self.now_s(), self._states.wait(min(_RESEND_S, patience_s))
      if came:
        self._pending = self._take() or self._pending
      if self.now_s() > before_s:
        self._lost = False
      elif time.monotonic() > give_up_s:
        self._time_s, self._lost = time_s, True
      elif came and self._last_message:
        self._writer.write(self._last_message)  # The answer got lost: again.

  def rejected_states(self) -> int:
    return self._rejected

  def foreign_commands(self) -> int:
    while self._others.take() is not None:
      self._foreign += 1
    return self._foreign

  def close(self) -> None:
    self._participant.close()

  def _take(self) -> RobotState | None:
    """The next valid state that waits; those with a wrong checksum are dropped."""
    while (data := self._states.take()) is not None:
      try:
        arrived_s = time.clock_gettime(time.CLOCK_MONOTONIC_RAW)
        state = self._codec.decode_state(data, arrived_s)
      except BadMessage:
        self._rejected += 1
        continue
      if self._lockstep:
        state.stamp_s = state.tick / 1000.0
        self._time_s = max(self._time_s or 0.0, state.stamp_s)
      return state
    return None

  def _check_kind(self, state: RobotState) -> None:
    known = self.motors.mode_machines
    if state.mode_machine not in known:
      raise UserError(
        f"The robot calls itself mode_machine {state.mode_machine}; the policy is for "
        f"{len(self.motors.motors)} degrees of freedom "
        f"(mode_machine {', '.join(map(str, known))})."
      )


def _topics(participant: Participant) -> tuple[int, int]:
  """Topics of commands and of states."""
  return (
    participant.topic(COMMAND_TOPIC, TYPE_NAMES["cmd"], LOW_CMD),
    participant.topic(STATE_TOPIC, TYPE_NAMES["state"], LOW_STATE),
  )


class SimulatorPort:
  """The robot's side of the network: publishes states, takes commands."""

  def __init__(self, motors: RobotMotors, interface: str, domain: int):
    self._codec = Codec(motors)
    self._participant = Participant(interface, domain)
    commands, states = _topics(self._participant)
    self._writer = Writer(self._participant, states)
    self._commands = Reader(self._participant, commands, LOW_CMD, depth=16)
    self.rejected = 0
    """Commands dropped because of their checksum."""

  def publish(self, state: RobotState) -> None:
    self._writer.write(self._codec.encode_state(state))

  def receive(self, timeout_s: float) -> tuple[RobotCommand, int] | None:
    """The newest command and its mode_machine, waiting for one if need be."""
    newest = None
    if self._commands.wait(timeout_s):
      while (data := self._commands.take()) is not None:
        try:
          newest = self._codec.decode_command(data)
        except BadMessage:
          self.rejected += 1
    return newest

  def close(self) -> None:
    self._participant.close()


def serve(
  robot: Robot,
  port: SimulatorPort,
  until: Callable[[], bool],
  patience_s: float = 1.0,
  on_command: Callable[[RobotCommand], None] = lambda _: None,
) -> None:
  """Put a simulated robot on the network, in lockstep with its controller.

  Args:
    until: Asked after each step whether to end.
    patience_s: Real time for which an answer is awaited; then physics goes on with
      the last command, as motors would. The first command is awaited for ever.
    on_command: Called with each command before the robot gets it.
  """
  answered = False
  while not until():
    state = robot.read()
    waited_s = 0.0
    while state is not None:
      port.publish(state)
      received = port.receive(_RESEND_S)
      if received is not None:
        command, mode_machine = received
        if mode_machine != state.mode_machine:
          raise UserError(
            f"A command came for mode_machine {mode_machine}; this robot is "
            f"{state.mode_machine}."
          )
        on_command(command)
        robot.write(command)
        answered = True
        break
      waited_s += _RESEND_S
      if waited_s >= patience_s and (answered or until()):
        break
    robot.sleep_until(robot.now_s() + COMMAND_DT_S)
