"""Faults on purpose: what can go wrong around a walking robot, and how it must end.

A fault sits between the simulated robot and the controller. States pass through the
vendor's messages there, so that a flipped bit meets the real checksum. Each class says
what must happen: tolerated, the walk goes on; or damping within 100 ms, with its reason
in the log.
"""

from __future__ import annotations

import contextlib
import copy
import math
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from decap.deploy.bundle import Bundle
from decap.deploy.controller import Controller, Cycle
from decap.deploy.messages import BadMessage, Codec
from decap.deploy.operator import Script
from decap.deploy.recorder import Recorder, read_events
from decap.deploy.robot_io import COMMAND_DT_S, Robot, RobotCommand, RobotState
from decap.deploy.robots import motors_for
from decap.deploy.simulation import SimCfg, SimulatedRobot
from decap.deploy.states import Mode
from decap.deploy.stops import MEASURED, OF_IMU, OF_JOINTS

DAMPING_S = 0.1
"""Time from a fault to damping, at most."""
STAND_S = 0.4
RELEASE_S = 1.0
WALK_S = 1.6
"""When the robot walks on its own; faults come within a second after it."""
AFTER_S = 1.5
"""How long a tolerated fault is watched for consequences."""
COMMAND = "0.4 0 0"


@dataclass
class FaultPlan:
  """One fault of one seed."""

  kind: str
  seed: int
  random: np.random.Generator
  start_s: float
  """When it happens, in simulated time."""


class Damping:
  """When commands became damping, and whether they stayed so."""

  first_s: float | None = None
  undamped_after = 0
  """Commands with stiffness after the first damping."""

  def see(self, command: RobotCommand, now_s: float) -> None:
    damped = not command.kp.any()
    if damped and self.first_s is None:
      self.first_s = now_s
    self.undamped_after += self.first_s is not None and not damped


class FaultyRobot(Robot):
  """A simulated robot behind messages, on which a fault can be played."""

  def __init__(self, robot: SimulatedRobot, plan: FaultPlan):
    self.robot = robot
    self.joint_names = robot.joint_names
    self.plan = plan
    self.damping = Damping()
    self._codec = Codec(robot.motors)
    self._spoil = _SPOILERS.get(plan.kind, lambda robot, state, message: message)
    self._rejected = self._foreign = 0
    self.held: bytes | None = None
    self.waiting: list[bytes] = []
    """States on a way that takes longer and longer."""
    self.paused_s: float | None = None
    """For how long the controller was kept from its next cycle."""
    self.count = 0
    """States since the fault began."""

  @property
  def faulty(self) -> bool:
    return self.now_s() >= self.plan.start_s - 1e-9

  def read(self) -> RobotState | None:
    state = self.robot.read()
    if state is None:
      return None
    message: bytes | None = self._codec.encode_state(state)
    if self.faulty:
      message = self._spoil(self, state, message)
      self.count += 1
    else:
      self.held = message
    if message is None:
      return None
    try:
      return self._codec.decode_state(message, self.now_s())
    except BadMessage:
      self._rejected += 1
      return None

  def write(self, command: RobotCommand) -> None:
    if self.faulty:
      self.damping.see(command, self.now_s())
    message = self._codec.encode_command(command, self.robot.motors.mode_machines[1])
    self.robot.write(self._codec.decode_command(message)[0])

  def now_s(self) -> float:
    return self.robot.now_s()

  def sleep_until(self, time_s: float) -> None:
    pause_s = _PAUSES.get(self.plan.kind)
    if pause_s and self.paused_s is None and time_s >= self.plan.start_s:
      # The robot goes on while the controller's process does not.
      self.paused_s = self.plan.random.uniform(*pause_s)
      time_s += self.paused_s
    self.robot.sleep_until(time_s)

  def rejected_states(self) -> int:
    return self._rejected

  def foreign_commands(self) -> int:
    if self.faulty and self.plan.kind == "second publisher":
      self._foreign += 1
    return self._foreign

  def encode(self, state: RobotState) -> bytes:
    return self._codec.encode_state(state)

  def decode_held(self, state: RobotState) -> RobotState:
    """The last state before the fault, as if it came now."""
    assert self.held is not None
    return self._codec.decode_state(self.held, state.stamp_s)


Spoiler = Callable[[FaultyRobot, RobotState, bytes], bytes | None]


def _late(robot: FaultyRobot, state: RobotState, message: bytes) -> bytes | None:
  """States are held back for up to 30 ms; then the newest arrives."""
  cycles = 2 + robot.plan.seed % 14
  return None if robot.count < cycles else message


def _reordered(robot: FaultyRobot, state: RobotState, message: bytes) -> bytes | None:
  """A state overtakes the one before it."""
  if robot.count == 0:
    robot.held = message
    return None
  return robot.held if robot.count == 2 else message


def _frozen(robot: FaultyRobot, state: RobotState, message: bytes) -> bytes | None:
  """By seed: the same message again, only the counter goes on, or flipped bits."""
  kind = robot.plan.seed % 3
  if kind == 0:
    return robot.held
  if kind == 1:
    old = robot.decode_held(state)
    old.tick = state.tick
    return robot.encode(old)
  spoilt = bytearray(message)
  bit = int(robot.plan.random.integers(8 * len(message)))
  spoilt[bit // 8] ^= 1 << bit % 8
  return bytes(spoilt)


def _nan(robot: FaultyRobot, state: RobotState, message: bytes) -> bytes:
  """A value that is no number, in a field by seed, under a right checksum."""
  del message
  fields = [name for name in MEASURED if name != "temperature"]  # That is an integer.
  values = getattr(state, fields[robot.plan.seed % len(fields)])
  spoilt = (np.nan, np.inf, -np.inf)[robot.plan.seed // len(fields) % 3]
  values[robot.plan.random.integers(len(values))] = spoilt
  return robot.encode(state)


def _frozen_sensor(robot: FaultyRobot, state: RobotState, message: bytes) -> bytes:
  """By seed, all joints or the IMU report what they did last; the rest goes on."""
  del message
  old = robot.decode_held(state)
  for name in (OF_JOINTS, OF_IMU)[robot.plan.seed % 2]:
    setattr(state, name, getattr(old, name))
  return robot.encode(state)


def _growing_delay(robot: FaultyRobot, state: RobotState, message: bytes) -> bytes:
  """Of three to five states one comes through, and the others queue up."""
  robot.waiting.append(message)
  return robot.waiting[robot.count // (3 + robot.plan.seed % 3)]


def _another_kind(robot: FaultyRobot, state: RobotState, message: bytes) -> bytes:
  """The robot says that it is another one."""
  del message
  state.mode_machine += 1 + robot.plan.seed % 3
  return robot.encode(state)


_SPOILERS: dict[str, Spoiler] = {
  "dropped state": lambda robot, state, message: message if robot.count else None,
  "late state": _late,
  "duplicated state": lambda robot, state, message: (
    message if robot.count else robot.held
  ),
  "reordered state": _reordered,
  "sustained loss": lambda robot, state, message: None,
  "frozen or corrupted states": _frozen,
  "frozen sensor": _frozen_sensor,
  "NaN in a field": _nan,
  "another robot": _another_kind,
  "growing delay": _growing_delay,
}

_PAUSES = {"late cycle": (0.02, 0.07), "stalled controller": (0.081, 0.098)}
"""Class → for how long the controller is kept from its next cycle, s."""


def garbage(bundle: Bundle, plan: FaultPlan) -> Bundle:
  """The bundle with a network that goes wrong at the time of the plan."""
  steps = math.ceil((plan.start_s - STAND_S) / bundle.control_dt_s)
  spoilt, good, calls = copy.copy(bundle), bundle.act, [0]

  def act(obs: np.ndarray) -> np.ndarray:
    calls[0] += 1
    actions = good(obs)
    if calls[0] <= steps:
      return actions
    kind = plan.seed % 4
    if kind < 3:
      return np.full_like(actions, (np.nan, np.inf, 1e6)[kind])
    return plan.random.normal(size=actions.shape).astype(np.float32) * 100.0

  spoilt.act = act  # type: ignore[method-assign]
  return spoilt


@contextlib.contextmanager
def _full_disk(
  plan: FaultPlan, now_s: Callable[[], float]
) -> Iterator[Callable[[], None]]:
  """Files of this program cannot grow or be written beyond a few kilobytes.

  The kernel refuses the writes themselves, as it does on a full disk.
  """
  old = resource.getrlimit(resource.RLIMIT_FSIZE)

  def check() -> None:
    if now_s() >= plan.start_s or plan.seed % 2 == 0:  # Even seeds: from the start.
      resource.setrlimit(resource.RLIMIT_FSIZE, (4096, old[1]))

  try:
    check()
    yield check
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, old)


@contextlib.contextmanager
def _wall_clock(
  plan: FaultPlan, now_s: Callable[[], float]
) -> Iterator[Callable[[], None]]:
  """The wall clock as programs read it jumps by up to a day, back or forth."""
  real, jump = time.time, float(plan.random.uniform(-86400.0, 86400.0))

  def check() -> None:
    if now_s() >= plan.start_s:
      setattr(time, "time", lambda: real() + jump)  # noqa: B010

  try:
    yield check
  finally:
    setattr(time, "time", real)  # noqa: B010


TOLERATED = {
  "dropped state": "missing",
  "late state": "missing",
  "duplicated state": "duplicated",
  "reordered state": "reordered",
  "late cycle": "missed",
  "full disk": "",
  "wall clock jump": "",
}
"""Class → what the log counts."""

STOPPED = {
  "sustained loss": ("states are lost",),
  "frozen or corrupted states": ("states are frozen", "states are corrupted"),
  "frozen sensor": ("joints are frozen", "the IMU is frozen"),
  "NaN in a field": ("the state has a value that is not a number",),
  "another robot": ("the robot changed its mode_machine",),
  "stalled controller": ("a cycle came",),
  "killed controller": ("death of the controller",),
  "second publisher": ("another program sends commands",),
  "garbage from the policy": ("the policy's output is not finite", "jumps by"),
  "growing delay": ("states are delayed",),
}
"""Class → sentences of which the log must have one."""

KINDS = (*TOLERATED, *STOPPED)


@dataclass
class Outcome:
  """How one run ended."""

  kind: str
  seed: int
  passed: bool
  detail: str
  reaction_s: float | None = None
  """From the fault to damping, simulated time."""


def make_plan(kind: str, seed: int) -> FaultPlan:
  """When and how a fault happens; depends on class and seed only."""
  random = np.random.default_rng([KINDS.index(kind), seed])
  cycles = round(random.uniform(0.0, 1.0) / COMMAND_DT_S)
  return FaultPlan(kind, seed, random, WALK_S + cycles * COMMAND_DT_S)


def play(kind: str, seed: int, bundle: Bundle) -> Outcome:
  """One run of a class that happens around one process."""
  plan = make_plan(kind, seed)
  sim = SimulatedRobot(motors_for(bundle.joint_names), SimCfg(seed=seed))
  robot = FaultyRobot(sim, plan)
  policy = garbage(bundle, plan) if kind == "garbage from the policy" else bundle
  worlds = {"full disk": _full_disk, "wall clock jump": _wall_clock}
  world = worlds.get(kind, lambda *_: contextlib.nullcontext(lambda: None))
  with tempfile.TemporaryDirectory(prefix="decap-faults-") as folder:
    log = Path(folder) / "flight"
    script = Script(f"0 stand\n{STAND_S} policy\n{RELEASE_S} {COMMAND}")
    controller = Controller(robot, sim.motors, [policy], script, stand_s=STAND_S)
    recorder = Recorder(log, max_mb=12)
    with world(plan, sim.now_s) as check:

      def watch(_: Controller, cycle: Cycle) -> None:
        check()
        if sim.held and cycle.now_s >= RELEASE_S:
          sim.release()

      controller.observers += [recorder, watch]
      controller.run_for(plan.start_s + AFTER_S)
      recorder.event(sim.now_s(), "ended", **vars(controller.monitor.tolerated))
      recorder.close()
    events = [] if recorder.problem else read_events(log)
  if kind in TOLERATED:
    return _judge_tolerated(plan, controller, recorder, events, sim)
  reason = controller.machine.stop_reason
  expected = any(sentence in reason for sentence in STOPPED[kind])
  logged = any(e["event"] == f"stop: {reason}" for e in events)
  latched = controller.machine.mode is Mode.DAMPING
  return judge_stop(plan, robot.damping, reason, expected and logged and latched)


def _judge_tolerated(
  plan: FaultPlan,
  controller: Controller,
  recorder: Recorder,
  events: list[dict],
  sim: SimulatedRobot,
) -> Outcome:
  def outcome(passed: bool, detail: str) -> Outcome:
    return Outcome(plan.kind, plan.seed, passed, detail)

  if controller.machine.mode is not Mode.POLICY:
    return outcome(False, f"stopped: {controller.machine.stop_reason}")
  if sim.fallen():
    return outcome(False, "fell")
  if plan.kind == "full disk":
    return outcome(bool(recorder.problem), recorder.problem or "nothing was noticed")
  counted = TOLERATED[plan.kind]
  if not events or (counted and not events[-1].get(counted)):
    return outcome(False, f"the log counts nothing that is {counted}")
  return outcome(True, f"{counted} {events[-1][counted]}" if counted else "walks on")


def judge_stop(
  plan: FaultPlan, damping: Damping, reason: str, told_and_latched: bool
) -> Outcome:
  """A stop passes in time, for the right reason, and for good."""
  if damping.first_s is None:
    return Outcome(plan.kind, plan.seed, False, "was never damped")
  reaction_s = damping.first_s - plan.start_s
  stayed = told_and_latched and not damping.undamped_after
  passed = reaction_s <= DAMPING_S and stayed
  return Outcome(plan.kind, plan.seed, passed, reason, reaction_s)
