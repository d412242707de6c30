"""Stops: what is tolerated, what is not, and the sentence that says so."""

import numpy as np
import pytest

from decap.deploy.robot_io import COMMAND_DT_S
from decap.deploy.stops import (
  MEASURED,
  Deadlines,
  Limits,
  Monitor,
  Tolerated,
  target_fault,
)

from .robots import MOTORS, J, state

DT = COMMAND_DT_S


def _monitor() -> Monitor:
  monitor = Monitor(MOTORS, Limits(), start_s=0.0)
  assert monitor.update(state(0.0), 0.0, 0, 0) is not None
  return monitor


def _feed(monitor, make, cycles=60, start=1) -> tuple[str | None, float]:
  """First fault while `make(i, now_s)` supplies states, and when it came."""
  for i in range(start, start + cycles):
    now_s = i * DT
    monitor.update(*make(i, now_s))
    fault = monitor.fault(now_s)
    if fault:
      return fault, now_s
  return None, 0.0


def test_a_healthy_stream_has_no_fault():
  monitor = _monitor()
  fault, _ = _feed(monitor, lambda i, t: (state(t), t, 0, 0), cycles=2000)
  assert fault is None and monitor.tolerated == Tolerated()
  assert 0.0 < monitor.margins["joint range"] < 1.0


def test_before_the_first_state_there_is_a_fault():
  monitor = Monitor(MOTORS, Limits(), start_s=0.0)
  assert monitor.fault(0.0) == "no state has arrived yet"
  assert "states are lost" in monitor.fault(0.1)


@pytest.mark.parametrize(
  "make, expected",
  [
    (lambda i, t: (None, t, 0, 0), "states are lost"),
    (lambda i, t: (None, t, i, 0), "states are corrupted"),
    (lambda i, t: (state(0.0), t, 0, 0), "the robot's counter stands"),
    (lambda i, t: (state(0.0, tick=2 * i), t, 0, 0), "nothing changed for"),
    (lambda i, t: (state(0.0, tick=-2 * i), t, 0, 0), "the robot's counter stands"),
  ],
)
def test_a_stream_that_ends_stops_after_50_ms(make, expected):
  fault, now_s = _feed(_monitor(), make)
  assert expected in fault
  assert 0.05 < now_s < 0.055


@pytest.mark.parametrize(
  "frozen, expected",
  [
    (("gyro", "acc", "quat"), "the IMU is frozen: nothing of it changed for 0.052 s"),
    (("q", "dq"), "joints are frozen: none of them changed for 0.052 s"),
    (("gyro", "acc", "quat", "q", "dq"), "states are frozen: nothing changed for 0.05"),
  ],
)
def test_half_of_a_state_can_freeze(frozen, expected):
  def make(i, t):
    held = {name: getattr(state(0.0), name) for name in frozen}
    return state(t, **held), t, 0, 0

  fault, now_s = _feed(_monitor(), make)
  assert fault.startswith(expected) and now_s == pytest.approx(0.052)
  # One of its values is enough to show that a sensor is alive.
  some = frozen[1:] if len(frozen) < 5 else ("acc", "quat", "dq")

  def alive(i, t):
    held = {name: getattr(state(0.0), name) for name in some}
    return state(t, **held), t, 0, 0

  assert _feed(_monitor(), alive, cycles=500)[0] is None


@pytest.mark.parametrize(
  "changes, states, expected",
  [
    ({"quat": np.array([0.8, 0.6, 0.0, 0.0])}, 3, "tilt is above 1 rad"),
    (
      {"q": MOTORS.array("default_pos") - 0.5 * np.eye(J)[3]},
      20,
      "left_knee_joint is outside -0.19 … 2.98 rad",
    ),
    ({"dq": np.eye(J)[3] * -19.5}, 20, "left_knee_joint is faster than 19 rad/s"),
    ({"temperature": np.full(J, 91.0)}, 3, "left_hip_pitch_joint is hotter than 90 °C"),
  ],
)
def test_values_beyond_their_limits_stop_when_they_stay(changes, states, expected):
  def always(i, t):
    return state(t, **changes), t, 0, 0

  def once(i, t):
    return always(i, t) if i == 5 else (state(t), t, 0, 0)

  assert _feed(_monitor(), always) == (expected, pytest.approx(states * DT))
  assert _feed(_monitor(), once)[0] is None  # One such state alone is noise.


def test_few_states_count_for_the_time_between_them():
  """One state in 24 cycles, 48 ms: three of them say what twenty say at the full rate."""

  def sparse(i, t):
    fast = state(t, dq=np.eye(J)[3] * -19.5)
    return (fast if i % 24 == 0 else None), t, 0, 0

  fault, now_s = _feed(_monitor(), sparse, cycles=400)
  assert "is faster than" in fault and now_s == pytest.approx(3 * 24 * DT)

  def early(i, t):
    """Three in a row, then none: too short to be more than a stumble."""
    fast = state(t, dq=np.eye(J)[3] * -19.5)
    return (fast if i < 4 else None), t, 0, 0

  assert _feed(_monitor(), early, cycles=25)[0] is None


def test_three_of_four_states_of_a_second_may_be_lost():
  def some(i, t):
    return (state(t) if i % 4 == 1 else None), t, 0, 0

  def fewer(i, t):
    return (state(t) if i % 4 == 1 and i % 500 != 1 else None), t, 0, 0

  assert _feed(_monitor(), some, cycles=2000)[0] is None
  fault, now_s = _feed(_monitor(), fewer, cycles=2000)
  assert fault == "states are lost: 376 of the last 500 cycles had no new one"
  assert now_s < 1.01
  monitor = _monitor()
  assert _feed(monitor, fewer, cycles=600)[0]
  # It is over when enough have come again.
  for i in range(600, 650):
    monitor.update(state(i * DT), i * DT, 0, 0)
  assert _feed(monitor, lambda i, t: (state(t), t, 0, 0), start=650)[0] is None


@pytest.mark.parametrize("field", MEASURED)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_value_that_is_no_number_stops_at_once(field, value):
  broken = state(DT)
  getattr(broken, field)[-1] = value
  monitor = _monitor()
  assert monitor.update(broken, DT, 0, 0) is None
  fault = "the state has a value that is not a number: "
  of_joint = len(getattr(broken, field)) == J
  place = MOTORS.joint_names[-1] if of_joint else f"entry {3 if field == 'quat' else 2}"
  assert monitor.fault(DT) == f"{fault}{field} of {place}"


def test_an_orientation_that_is_no_rotation_stops_at_once():
  monitor = _monitor()
  assert monitor.update(state(DT, quat=np.zeros(4)), DT, 0, 0) is None
  assert "is no rotation" in monitor.fault(DT)


def test_a_second_publisher_stops_at_once_and_is_forgotten_after_a_second():
  monitor = _monitor()
  monitor.update(state(DT), DT, 0, 1)
  assert monitor.fault(DT) == "another program sends commands to the robot"
  fault, _ = _feed(monitor, lambda i, t: (state(t), t, 0, 1), start=600)
  assert fault is None


def test_another_robot_under_the_same_name_stops_at_once():
  monitor = _monitor()

  def make(i, t):
    return state(t, mode_machine=4 if i >= 10 else 5), t, 0, 0

  expected = "the robot changed its mode_machine from 5 to 4"
  assert _feed(monitor, make) == (expected, pytest.approx(10 * DT))
  assert _feed(monitor, lambda i, t: (state(t), t, 0, 0), start=61)[0] is None


def test_what_happens_once_is_counted_and_tolerated():
  monitor = _monitor()

  def make(i, t):
    if i == 10:  # Dropped, and the next ones late.
      return None, t, 0, 0
    if 20 <= i < 30:
      return None, t, 0, 0
    if i == 40:
      return state(t - DT), t, 0, 0  # Doubled.
    if i == 50:
      return state(t - 3 * DT), t, 0, 0  # Reordered.
    return state(t), t, int(i >= 55), 0  # One with a wrong checksum.

  assert _feed(monitor, make, cycles=100)[0] is None
  assert monitor.tolerated == Tolerated(
    missing=13, duplicated=1, reordered=1, corrupted=1, missed=0
  )


def test_a_counter_that_wraps_goes_on():
  monitor = Monitor(MOTORS, Limits(), start_s=0.0)
  monitor.update(state(0.0, tick=2**32 - 1), 0.0, 0, 0)
  assert monitor.update(state(DT, tick=1), DT, 0, 0) is not None


def _delayed(delay_s, clock=1.0, first=0):
  """States that arrive so long after they were measured; ticks wrap early on."""

  def make(i, t):
    sent_s = t - delay_s(t)
    if sent_s < 0.0 and i > 1:
      return None, t, 0, 0
    tick = (first + round(1e3 * clock * sent_s)) % 2**32
    return state(t, tick=tick), t, 0, 0

  return make


@pytest.mark.parametrize("first", [0, 2**32 - 500])
def test_a_delay_that_grows_is_seen_by_the_robot_s_counter(first):
  """Every cycle has a new state, which says what was half a second ago."""

  def growing(t):
    return 0.1 * max(0.0, t - 1.0)  # 52 ms after 1.52 s.

  monitor = Monitor(MOTORS, Limits(), start_s=0.0)
  fault, now_s = _feed(monitor, _delayed(growing, first=first), 1000, start=0)
  assert fault == "states are delayed: the newest one is 0.051 s old"
  assert now_s == pytest.approx(1.51, abs=0.02)
  assert monitor.margins["state age"] > 1.0
  # It lasts as long as the delay does.
  make = _delayed(lambda t: 0.1, first=first)
  for i in range(1000, 1010):
    monitor.update(*make(i, i * DT))
    assert "states are delayed" in monitor.fault(i * DT)
  fault, _ = _feed(monitor, _delayed(lambda t: 0.0, first=first), 500, start=1010)
  assert fault is None


@pytest.mark.parametrize(
  "delay_s, clock",
  [
    (lambda t: 0.0, 1 + 5e-4),  # The robot's clock is fast, or slow.
    (lambda t: 0.0, 1 - 5e-4),
    (lambda t: 0.3, 1.0),  # Of unknown origin, but always the same.
    (lambda t: 0.3 - 0.004 * t, 1.0),
    (lambda t: 0.04 * (int(t * 500) % 7 == 3), 1.0),  # Single late ones.
    (lambda t: max(0.0, 0.04 - t % 30.0), 1.0),  # 40 ms of silence, then a burst.
  ],
)
def test_a_delay_that_does_not_grow_is_none(delay_s, clock):
  make = _delayed(delay_s, clock)
  # Two and a half minutes, of whose cycles one in ten has a state.
  monitor = Monitor(MOTORS, Limits(lost_share=1.0), start_s=0.0)
  for i in range(0, 75_000, 10):
    monitor.update(*make(i, i * DT))
    fault = monitor.fault(i * DT)
    assert fault is None or i < 200, (i * DT, fault)


def test_a_counter_that_jumps_ahead_makes_nothing_old():
  """A robot that starts anew while its counter was in the upper half."""
  monitor = Monitor(MOTORS, Limits(), start_s=0.0)

  def make(i, t):
    tick = round(1e3 * t) + (3 * 2**30 if i < 100 else 0)
    return state(t, tick=tick), t, 0, 0

  assert _feed(monitor, make, cycles=500, start=0)[0] is None


def test_deadlines():
  tolerated = Tolerated()
  deadlines = Deadlines(Limits(), tolerated)
  assert deadlines.fault(0.0, 0.0) is None
  assert deadlines.fault(0.1, 0.03) is None
  assert deadlines.fault(0.2, 0.03) is None
  assert "3 cycles within a second" in deadlines.fault(0.3, 0.03)
  assert deadlines.fault(1.25, 0.01) is None
  assert "0.090 s late" in deadlines.fault(9.0, 0.09)
  assert tolerated.missed == 4


def test_a_tenth_of_the_cycles_of_a_second_may_be_left_out():
  tolerated = Tolerated()
  deadlines = Deadlines(Limits(), tolerated)
  for i in range(50):
    assert deadlines.fault(i * 0.01, 0.002) is None
  assert deadlines.fault(0.5, 0.0019) is None  # Late, but nothing was left out.
  fault = deadlines.fault(0.51, 0.0021)
  assert fault == "the loop is too slow: 51 of 500 cycles within a second were left out"
  assert deadlines.fault(1.015, 0.0) is None
  assert tolerated.missed == 0
  # What stops by itself is not held against the second after it.
  assert "s late" in deadlines.fault(9.0, 5.0) and deadlines.fault(9.002, 0.0) is None


def test_targets_must_be_numbers_and_must_not_jump():
  zero, names = np.zeros(J), MOTORS.joint_names
  assert target_fault(zero + 2.9, zero, Limits(), names) is None
  jump = np.eye(J)[4] * 3.1
  assert (
    target_fault(jump, zero, Limits(), names)
    == "the target of left_ankle_pitch_joint jumps by 3.10 rad (at most 3)"
  )
  assert target_fault(zero * np.nan, zero, Limits(), names) == (
    "the policy's output is not finite"
  )
