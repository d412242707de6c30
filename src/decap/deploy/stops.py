"""What must stop a robot: pure checks of states, targets and deadlines.

Damping lets a walking humanoid fall, so what happens once on a healthy network, a
dropped, late, doubled or reordered state, is counted and tolerated. What lasts stops
the robot, with a sentence that says what was seen and what the limit is.
"""

from __future__ import annotations

import math
import operator
from collections import deque
from dataclasses import dataclass

import numpy as np

from decap.deploy.robot_io import COMMAND_DT_S, RobotState
from decap.robots.motors import RobotMotors


def measured_sizes(joints: int) -> dict[str, int]:
  """Fields of a state that hold measurements → values: of joints, then the pelvis."""
  names = ("q", "dq", "ddq", "tau_est", "temperature", "voltage")
  return {**dict.fromkeys(names, joints), "quat": 4, "rpy": 3, "gyro": 3, "acc": 3}


MEASURED = tuple(measured_sizes(0))
_measured = operator.attrgetter(*MEASURED)
_CYCLES = round(1.0 / COMMAND_DT_S)  # In a second.
_DRIFT = 6e-4
"""How fast a robot's clock may fall behind ours: crystals differ by 100 ppm at most, and
NTP may run the robot's up to 500 ppm slower."""
OF_JOINTS = ("q", "dq")
OF_IMU = ("gyro", "acc", "quat")


@dataclass(frozen=True)
class Limits:
  """When to stop."""

  stale_s: float = 0.05
  """Age of the newest valid state: time since it arrived, and its delay on the way."""
  frozen_s: float = 0.05
  """Time in which all that the joints measure, or all of the IMU, stays the same."""
  tilt_rad: float = 1.0
  """Angle between the pelvis and upright."""
  joint_margin_rad: float = 0.1
  """How far a joint may be beyond its range; models and robots differ a little."""
  joint_speed_share: float = 0.95
  """Joint speed as a share of the speed at which its motor has no torque left."""
  temperature_c: float = 90.0
  """Temperature of the hottest motor."""
  persistence: int = 3
  """States in a row that must be beyond a limit: one may be noise."""
  joint_persistence_s: float = 0.04
  """Time for which they must be so of a joint's range and speed, 20 states if none is
  lost: a foot that is caught at an edge bends its ankle beyond its range for 16 ms, and
  is that fast for 22 ms when it slips off."""
  lost_share: float = 0.75
  """Share of the cycles of a second that may be without a new state: a robot may send
  fewer than there are cycles."""
  target_jump_rad: float = 3.0
  """Change of a joint's target from one policy step to the next. Ankles on gravel reach 1.8;
  what targets may ask of the motors is limited elsewhere."""
  lag_s: float = 0.08
  """How late a single cycle may be, and its command."""
  missed_lag_s: float = 0.02
  """Lag from which a cycle counts as missed."""
  missed_per_s: int = 3
  """Missed cycles within a second."""
  skipped_per_s: int = 50
  """Cycles within a second that may be left out, because the ones before took too long:
  a tenth of them."""


@dataclass
class Tolerated:
  """What was seen and did not stop the robot."""

  missing: int = 0
  """Cycles without a new state."""
  duplicated: int = 0
  reordered: int = 0
  corrupted: int = 0
  """States with a wrong checksum."""
  missed: int = 0
  """Cycles of the controller that came late."""


@dataclass
class _Over:
  """A limit that all states of late were beyond."""

  since_s: float
  seen_s: float
  states: int
  sentence: str


class Monitor:
  """Watches the stream of states; says what is wrong, or nothing."""

  def __init__(
    self,
    motors: RobotMotors,
    limits: Limits,
    start_s: float,
    mode_machine: int | None = None,
  ):
    self.limits = limits
    self.tolerated = Tolerated()
    self._names = motors.joint_names
    span = motors.array("position_limits")
    self._middle = span.mean(axis=1)
    self._half = (span[:, 1] - span[:, 0]) / 2 + limits.joint_margin_rad
    self._speeds = motors.array("velocity_limit") * limits.joint_speed_share
    self._centre, self._room = self._spans()
    self._age_s = 0.0  # Of the last valid, new state at the last look.
    self._good_s = start_s  # When the last valid, new state arrived.
    self._delay_s = 0.0  # Of that one on its way, beyond that of the quickest.
    self._joints_s = self._imu_s = start_s  # When a value of theirs last changed.
    self._last: RobotState | None = None
    self._kind = mode_machine  # What the robot called itself first.
    self._arrivals = 0  # Old states that arrived since the last new one.
    self._rejected = 0
    self._rejected_at_good = 0
    self._over: dict[str, _Over] = {}
    # Of the cycles of a second, whether there was no new state, and how often so.
    self._gaps: deque[bool] = deque([False] * _CYCLES, _CYCLES)
    self._lost = 0
    self._broken = ""
    self._foreign = 0
    self._foreign_s = -np.inf  # When a command of somebody else was seen last.

  def update(
    self, state: RobotState | None, now_s: float, rejected: int, foreign: int
  ) -> RobotState | None:
    """Take in what was read; returns the state if it is new and usable.

    Args:
      rejected: States dropped so far because of their checksum.
      foreign: Commands of others seen so far.
    """
    self.tolerated.corrupted += rejected - self._rejected
    self._rejected = rejected
    if foreign > self._foreign:
      self._foreign, self._foreign_s = foreign, now_s
    accepted = self._judged(state, now_s)
    lost = accepted is None
    self.tolerated.missing += lost
    self._lost += lost - self._gaps[0]
    self._gaps.append(lost)
    return accepted

  def _judged(self, state: RobotState | None, now_s: float) -> RobotState | None:
    if state is None:
      return None
    ordinary = self._is_ordinary(state)
    if not ordinary and (place := _not_a_number(state, self._names)):
      self._broken = f"the state has a value that is not a number: {place}"
      return None
    if abs(math.sqrt(state.quat.dot(state.quat)) - 1.0) > 0.05:
      self._broken = f"the orientation {np.round(state.quat, 3)} is no rotation"
      return None
    self._broken = ""
    if self._last is not None and not self._is_newer(state.tick):
      return None
    self._accept(state, now_s)
    if not ordinary or self._over:
      self._count_over(state, now_s)
    return state

  @property
  def margins(self) -> dict[str, float]:
    """Share of each limit that is in use, 1 = stop."""
    found = {k: share for k, (share, _) in self._shares(self._last).items()}
    return {**found, "state age": self._age_s / self.limits.stale_s}

  def fault(self, now_s: float) -> str | None:
    """What is wrong now, most fundamental first; none if all is well."""
    limits = self.limits
    if self._broken:
      return self._broken
    silent_s = now_s - self._good_s
    self._age_s = silent_s + self._delay_s
    if silent_s > limits.stale_s:
      return self._silence(silent_s)
    if self._last is None:
      return "no state has arrived yet"
    if self._age_s > limits.stale_s:
      return f"states are delayed: the newest one is {self._age_s:.3f} s old"
    if self._lost > limits.lost_share * _CYCLES:
      return (
        f"states are lost: {self._lost} of the last {_CYCLES} cycles had no new one"
      )
    if frozen := self._frozen(now_s):
      return frozen
    if (kind := self._last.mode_machine) != self._kind:
      return f"the robot changed its mode_machine from {self._kind} to {kind}"
    if now_s - self._foreign_s < 1.0:
      return "another program sends commands to the robot"
    for kind, over in self._over.items():
      # At the full rate, a state stands for the time until the next one.
      lasted_s = over.seen_s - over.since_s + COMMAND_DT_S + 1e-9
      joint = kind in ("joint range", "joint speed")
      if over.states >= limits.persistence and (
        not joint or lasted_s >= limits.joint_persistence_s
      ):
        return over.sentence
    return None

  def _is_newer(self, tick: int) -> bool:
    """Whether a state continues the stream; counts what does not."""
    assert self._last is not None
    ahead = (tick - self._last.tick) % 2**32
    if ahead == 0:
      self.tolerated.duplicated += 1
    elif ahead >= 2**31:
      self.tolerated.reordered += 1
    if ahead == 0 or ahead >= 2**31:
      self._arrivals += 1
      return False
    return True

  def _accept(self, state: RobotState, now_s: float) -> None:
    last = self._last
    if last is not None:
      # Were all as quick, the robot's counter and our clock would go on alike. What is
      # quicker than all before becomes the measure; drift alone must not look like delay.
      passed_s = (1.0 - _DRIFT) * (state.stamp_s - last.stamp_s)
      counted_s = (state.tick - last.tick) % 2**32 / 1000.0
      self._delay_s = max(0.0, self._delay_s + passed_s - counted_s)
    if self._kind is None:
      self._kind = state.mode_machine
    if last is None or not _same(state, last, OF_JOINTS):
      self._joints_s = now_s
    if last is None or not _same(state, last, OF_IMU):
      self._imu_s = now_s
    self._good_s, self._last, self._arrivals = now_s, state, 0
    self._rejected_at_good = self._rejected

  def _frozen(self, now_s: float) -> str:
    """Which sensors do not measure any more, though states come; "" if all do."""
    joints_s, imu_s = now_s - self._joints_s, now_s - self._imu_s
    if min(joints_s, imu_s) > self.limits.frozen_s:
      return f"states are frozen: nothing changed for {min(joints_s, imu_s):.3f} s"
    if joints_s > self.limits.frozen_s:
      return f"joints are frozen: none of them changed for {joints_s:.3f} s"
    if imu_s > self.limits.frozen_s:
      return f"the IMU is frozen: nothing of it changed for {imu_s:.3f} s"
    return ""

  def _silence(self, age_s: float) -> str:
    """Why there is no new state: nothing comes, or what comes is of no use."""
    if self._rejected > self._rejected_at_good:
      return f"states are corrupted: none with a right checksum for {age_s:.3f} s"
    if self._arrivals:
      return f"states are frozen: the robot's counter stands for {age_s:.3f} s"
    return f"states are lost: none for {age_s:.3f} s"

  def _spans(self) -> tuple[np.ndarray, np.ndarray]:
    """Middle and half width of what each value of `MEASURED` may be, in a row."""
    joints = len(self._names)
    centre = {"q": self._middle}
    room = {"q": self._half, "dq": self._speeds}
    room["temperature"] = np.full(joints, self.limits.temperature_c)
    wide = {k: np.full(size, 1e300) for k, size in measured_sizes(joints).items()}
    return (
      np.concatenate([centre.get(name, 0.0 * wide[name]) for name in MEASURED]),
      np.concatenate([room.get(name, wide[name]) for name in MEASURED]),
    )

  def _is_ordinary(self, state: RobotState) -> bool:
    """Whether all values are numbers within their limits; one pass for all of them."""
    shares = np.concatenate(_measured(state))
    shares -= self._centre
    np.abs(shares, out=shares)
    shares /= self._room
    worst = shares.item(shares.argmax())  # What is not a number counts as the largest.
    return worst <= 1.0 and tilt(state.quat) <= self.limits.tilt_rad

  def _shares(self, state: RobotState | None) -> dict[str, tuple[float, int]]:
    """Kind of limit → share of it that is in use, and by which joint."""
    if state is None:
      return {}
    found = {"tilt": (tilt(state.quat) / self.limits.tilt_rad, 0)}
    shares = {
      "joint range": np.abs(state.q - self._middle) / self._half,
      "joint speed": np.abs(state.dq) / self._speeds,
      "temperature": state.temperature / self.limits.temperature_c,
    }
    for kind, share in shares.items():
      joint = int(share.argmax())
      found[kind] = (float(share[joint]), joint)
    return found

  def _count_over(self, state: RobotState, now_s: float) -> None:
    """Count in how many states in a row each limit was over, and for how long."""
    for kind, (share, joint) in self._shares(state).items():
      if share > 1.0:
        over = self._over.setdefault(kind, _Over(now_s, now_s, 0, ""))
        over.seen_s, over.states = now_s, over.states + 1
        over.sentence = self._sentence(kind, joint)
      else:
        self._over.pop(kind, None)

  def _sentence(self, kind: str, joint: int) -> str:
    name, middle, half = self._names[joint], self._middle[joint], self._half[joint]
    return {
      "tilt": f"tilt is above {self.limits.tilt_rad:g} rad",
      "joint range": f"{name} is outside {middle - half:.2f} … {middle + half:.2f} rad",
      "joint speed": f"{name} is faster than {self._speeds[joint]:.0f} rad/s",
      "temperature": f"{name} is hotter than {self.limits.temperature_c:g} °C",
    }[kind]


class Deadlines:
  """Counts late cycles; a laptop that cannot keep up must not drive a robot."""

  def __init__(self, limits: Limits, tolerated: Tolerated):
    self._limits = limits
    self._tolerated = tolerated
    self._missed: deque[float] = deque()
    self._skipped: deque[tuple[float, int]] = deque()

  def fault(self, now_s: float, lag_s: float) -> str | None:
    """What is wrong with the timing of a cycle that came `lag_s` late."""
    limits = self._limits
    if lag_s > limits.missed_lag_s:
      self._tolerated.missed += 1
      self._missed.append(now_s)
    while self._missed and self._missed[0] < now_s - 1.0:
      self._missed.popleft()
    if lag_s > limits.lag_s:
      return f"a cycle came {lag_s:.3f} s late"
    if lag_s >= COMMAND_DT_S:
      self._skipped.append((now_s, skipped_cycles(lag_s)))
    while self._skipped and self._skipped[0][0] < now_s - 1.0:
      self._skipped.popleft()
    if len(self._missed) >= limits.missed_per_s:
      return f"{len(self._missed)} cycles within a second came too late"
    skipped = sum(count for _, count in self._skipped)
    if skipped > limits.skipped_per_s:
      return (
        f"the loop is too slow: {skipped} of {_CYCLES} cycles within a second were left "
        "out"
      )
    return None


def skipped_cycles(lag_s: float) -> int:
  """Cycles that are left out because one comes `lag_s` late: their time is over."""
  return int(lag_s / COMMAND_DT_S)


def target_fault(
  target: np.ndarray, previous: np.ndarray, limits: Limits, names: tuple[str, ...]
) -> str | None:
  """What is wrong with the policy's targets [J], rad; none if they can be sent."""
  if not np.isfinite(target).all():
    return "the policy's output is not finite"
  jump = np.abs(target - previous)
  joint = int(jump.argmax())
  if jump[joint] > limits.target_jump_rad:
    return (
      f"the target of {names[joint]} jumps by {jump[joint]:.2f} rad "
      f"(at most {limits.target_jump_rad:g})"
    )
  return None


def tilt(quat: np.ndarray) -> float:
  """Angle between a pelvis of this orientation (wxyz) and upright, rad."""
  _, x, y, _ = quat.tolist()
  return math.acos(max(-1.0, min(1.0, 1.0 - 2.0 * (x * x + y * y))))


def _not_a_number(state: RobotState, names: tuple[str, ...]) -> str:
  """Which value of a state is none, for whoever has to look for it; "" if all are."""
  for part in MEASURED:
    values = getattr(state, part)
    for i in np.flatnonzero(~np.isfinite(values)):
      of = names[i] if len(values) == len(names) else f"entry {i}"
      return f"{part} of {of}"
  return ""


def _same(state: RobotState, last: RobotState, parts: tuple[str, ...]) -> bool:
  """Whether all of these have the very same bits."""
  return all(
    getattr(state, name).tobytes() == getattr(last, name).tobytes() for name in parts
  )
