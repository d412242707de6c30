"""What each class of faults does: to states, to time, to the policy, or to the program.

`faults` says when they begin, and how each must end.
"""

from __future__ import annotations

import contextlib
import copy
import math
import resource
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from decap.deploy.bundle import Bundle
from decap.deploy.robot_io import RobotState
from decap.deploy.stops import MEASURED, OF_IMU, OF_JOINTS, Limits

if TYPE_CHECKING:
  from decap.deploy.faults import FaultPlan, FaultyRobot

LIMITS = Limits()

Spoiler = Callable[["FaultyRobot", RobotState, bytes], "bytes | None"]


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


def _no_rotation(robot: FaultyRobot, state: RobotState, message: bytes) -> bytes:
  """By seed, an orientation of nothing but zeros, or one that is too short or long."""
  del message
  state.quat *= (0.0, 0.9, 1.1)[robot.plan.seed % 3]
  return robot.encode(state)


def _one_joint(name: str) -> Spoiler:
  """A joint by seed reports what is beyond its limit, and goes on doing so."""

  def spoil(robot: FaultyRobot, state: RobotState, message: bytes) -> bytes:
    del message
    motors, seed = robot.robot.motors, robot.plan.seed
    joint, up = 7 * seed % len(motors.motors), seed % 2
    beyond = {
      "temperature": LIMITS.temperature_c + 1.0,
      "q": motors.array("position_limits")[joint, up] + (0.4 * up - 0.2),
      "dq": motors.array("velocity_limit")[joint] * (2.0 * up - 1.0),
    }
    getattr(state, name)[joint] = beyond[name]
    return robot.encode(state)

  return spoil


def _tipped_over(robot: FaultyRobot, state: RobotState, message: bytes) -> bytes:
  """Somebody throws the robot over, towards a side by seed; 1 rad is when it must stop."""
  del state
  sim, angle = robot.robot, 2.4 * robot.plan.seed
  up = sim.tilt() <= LIMITS.tilt_rad
  torque = 150.0 * up * np.array([math.cos(angle), math.sin(angle), 0.0])
  sim.data.body("pelvis").xfrc_applied[3:] = torque
  if up:
    robot.plan.start_s = robot.now_s()
  return message


def _few_states(robot: FaultyRobot, state: RobotState, message: bytes) -> bytes | None:
  """Of five to eight states one comes through, at once."""
  return None if robot.count % (5 + robot.plan.seed % 4) else message


SPOILERS: dict[str, Spoiler] = {
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
  "no rotation": _no_rotation,
  "hot motor": _one_joint("temperature"),
  "tipped over": _tipped_over,
  "joint out of range": _one_joint("q"),
  "joint too fast": _one_joint("dq"),
  "few states": _few_states,
}

PAUSES = {
  "late cycle": (0.02, 0.07, 1.0),
  "stalled controller": (0.081, 0.098, 1.0),
  "missed cycles": (0.021, 0.026, 3.0),
  "slow loop": (0.006, 0.018, math.inf),
}
"""Class → for how long the controller is kept from a cycle, s, and from how many."""


def _garbage(robot: FaultyRobot, good: np.ndarray) -> np.ndarray:
  kind = robot.plan.seed % 4
  if kind < 3:
    return np.full_like(good, (np.nan, np.inf, 1e6)[kind])
  return robot.plan.random.normal(size=good.shape).astype(np.float32) * 100.0


def _failing(robot: FaultyRobot, good: np.ndarray) -> np.ndarray:
  raise RuntimeError("the network cannot be run")


def _stuck(robot: FaultyRobot, good: np.ndarray) -> np.ndarray:
  """Thinks for longer than a command may be late; the robot goes on meanwhile."""
  robot.robot.sleep_until(robot.now_s() + robot.plan.random.uniform(0.083, 0.095))
  return good


_POLICIES = {
  "garbage from the policy": _garbage,
  "failing policy": _failing,
  "stuck policy": _stuck,
}


def spoilt_policy(bundle: Bundle, robot: FaultyRobot) -> Bundle:
  """The bundle with a network that goes wrong once the fault has begun, if it does."""
  spoil = _POLICIES.get(robot.plan.kind)
  if spoil is None:
    return bundle
  spoilt, good = copy.copy(bundle), bundle.act

  def act(obs: np.ndarray) -> np.ndarray:
    return spoil(robot, good(obs)) if robot.faulty else good(obs)

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


WORLDS = {"full disk": _full_disk, "wall clock jump": _wall_clock}
"""Class → what happens around the program; to be called in each cycle."""
