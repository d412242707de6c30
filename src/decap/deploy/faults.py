"""Faults on purpose: what can go wrong around a walking robot, and how it must end.

A fault sits between the simulated robot and the controller. States pass through the
vendor's messages there, so that a flipped bit meets the real checksum. Each class says
what must happen: tolerated, the walk goes on; or damping within 100 ms, with its reason
in the log.
"""

from __future__ import annotations

import contextlib
import tempfile
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
from decap.deploy.spoilers import PAUSES, SPOILERS, WORLDS, spoilt_policy
from decap.deploy.states import Mode

DAMPING_S = 0.1
"""Time from a fault to damping, at most."""
STAND_S = 0.4
RELEASE_S = 1.0
WALK_S = 1.6
"""When the robot walks on its own; faults come within a second after it."""
AFTER_S = 1.5
"""How long a tolerated fault is watched for consequences."""
COMMAND = "0.4 0 0"


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

STOPPED: dict[str, tuple[str, ...]] = {
  "sustained loss": ("states are lost: none",),
  "frozen or corrupted states": (
    "states are frozen: the robot's counter stands",
    "states are frozen: nothing changed",
    "states are corrupted",
  ),
  "frozen sensor": ("joints are frozen", "the IMU is frozen"),
  "NaN in a field": ("the state has a value that is not a number",),
  "another robot": ("the robot changed its mode_machine",),
  "stalled controller": ("a cycle came",),
  "killed controller": ("watchdog: death of the controller",),
  "second publisher": ("another program sends commands",),
  "garbage from the policy": (
    "the policy's output is not finite",
    "the policy's output is not finite",
    "jumps by",
    "jumps by",
  ),
  "growing delay": ("states are delayed",),
  "no rotation": ("is no rotation",),
  "hot motor": ("is hotter than",),
  "tipped over": ("tilt is above",),
  "joint out of range": ("is outside",),
  "joint too fast": ("is faster than",),
  "few states": ("of the last 500 cycles had no new one",),
  "missed cycles": ("cycles within a second came too late",),
  "slow loop": ("the loop is too slow",),
  "failing policy": ("the policy failed: ",),
  "stuck policy": ("a command came",),
  "dead watchdog": ("the watchdog has ended",),
}
"""Class → what the log must give as the reason; of several, the one of the seed: a stop
for another reason would hide that this one is dead."""

KINDS = (*TOLERATED, *STOPPED)
WITHIN_S = {"few states": 1.0, "slow loop": 0.2, "stuck policy": 0.12}
"""Class → time to damping where it is not `DAMPING_S`: two limits count what happens in a
second, and a policy is asked up to 20 ms after its fault begins."""


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
    self._spoil = SPOILERS.get(plan.kind, lambda robot, state, message: message)
    self._rejected = self._foreign = 0
    self.held: bytes | None = None
    self.waiting: list[bytes] = []
    """States on a way that takes longer and longer."""
    self._pauses = 0
    """Cycles from which the controller was kept."""
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
    least_s, most_s, cycles = PAUSES.get(self.plan.kind, (0.0, 0.0, 0.0))
    if self._pauses < cycles and time_s >= self.plan.start_s:
      # The robot goes on while the controller's process does not.
      self._pauses += 1
      time_s += self.plan.random.uniform(least_s, most_s)
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
  policy = spoilt_policy(bundle, robot)
  world = WORLDS.get(kind, lambda *_: contextlib.nullcontext(lambda: None))
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
  logged = any(e["event"] == f"stop: {reason}" for e in events)
  latched = controller.machine.mode is Mode.DAMPING
  return judge_stop(plan, robot.damping, reason, logged and latched)


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


def expected_reason(kind: str, seed: int) -> str:
  """What the log must say of a stop."""
  return STOPPED[kind][seed % len(STOPPED[kind])]


def within_s(kind: str) -> float:
  """Time from a fault to damping, at most."""
  return WITHIN_S.get(kind, DAMPING_S)


def judge_stop(
  plan: FaultPlan, damping: Damping, reason: str, told_and_latched: bool
) -> Outcome:
  """A stop passes in time, for the right reason, and for good."""
  if damping.first_s is None:
    return Outcome(plan.kind, plan.seed, False, "was never damped")
  reaction_s = damping.first_s - plan.start_s
  expected = expected_reason(plan.kind, plan.seed)
  if expected not in reason:
    said = f"stopped for another reason than '{expected}': {reason or 'none'}"
    return Outcome(plan.kind, plan.seed, False, said, reaction_s)
  stayed = told_and_latched and not damping.undamped_after
  passed = reaction_s <= within_s(plan.kind) and stayed
  return Outcome(plan.kind, plan.seed, passed, reason, reaction_s)
