"""The controller on a robot without physics: what is sent in which state."""

import copy
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decap.deploy.controller import BLEND_S, EFFORT_SHARE, Controller, clip_targets
from decap.deploy.operator import Script
from decap.deploy.policy import RunningPolicy, check_fits
from decap.deploy.robot_io import COMMAND_DT_S
from decap.deploy.states import Mode
from decap.errors import UserError

from .robots import CYCLES_PER_S, MOTORS, IdealRobot, J, released

SCRIPT = "0.1 stand\n0.5 policy\n1.3 0.3 0 0\n"


STAND_S = 0.3


class Driven:
  """A controller, its robot and all cycles so far."""

  def __init__(self, script=SCRIPT, bundles=None, **options):
    self.robot = IdealRobot()
    self.cycles = []
    self.controller = Controller(
      self.robot,
      MOTORS,
      bundles or [released()],
      Script(script),
      stand_s=STAND_S,
      observers=[lambda _, cycle: self.cycles.append(cycle)],
      **options,
    )

  def run(self, seconds):
    for _ in range(round(seconds * CYCLES_PER_S)):
      self.controller.step()
      self.robot.sleep_until(self.controller.next_s)
    return self

  @property
  def modes(self):
    return [cycle.mode for cycle in self.cycles]

  @property
  def events(self):
    return [event for cycle in self.cycles for event in cycle.events]


def is_damping(command) -> bool:
  return not command.kp.any() and (command.kd > 0).all() and command.mode == 1


def test_the_way_to_the_policy():
  driven = Driven().run(1.8)
  assert driven.events == ["passive → stand", "stand → policy"]
  passive = [c for c in driven.cycles if c.mode is Mode.PASSIVE]
  assert len(passive) == 50 and all(is_damping(c.command) for c in passive)
  standing = [c for c in driven.cycles if c.mode is Mode.STAND]
  # It starts where the joints are and ends at the pose that the policy starts from.
  targets = np.array([c.command.q_target for c in standing])
  default = driven.controller.policy.default_pos
  np.testing.assert_allclose(targets[0], default + 0.3, atol=1e-3)
  np.testing.assert_allclose(targets[-1], default, atol=1e-9)
  assert np.abs(np.diff(targets, axis=0)).max() < 0.3 * 1.6 / STAND_S * COMMAND_DT_S
  assert len(driven.robot.written) == len(driven.cycles)


def test_the_policy_is_asked_at_50_hz_and_takes_over_within_half_a_second():
  driven = Driven().run(1.8)
  driving = [c for c in driven.cycles if c.mode is Mode.POLICY]
  assert driven.controller.policy.steps == -(-len(driving) // 10)
  first, default = driving[0].command, driven.controller.policy.default_pos
  np.testing.assert_allclose(first.q_target, default, atol=1e-6)
  targets = np.array([c.command.q_target for c in driving])
  # Half a second later, targets are the policy's own: they change at 50 Hz only.
  blended = round(BLEND_S * CYCLES_PER_S)
  moves = np.abs(np.diff(targets[blended + 10 :], axis=0)).max(axis=1) > 1e-12
  assert 0 < moves.sum() <= len(moves) // 10 + 1
  np.testing.assert_array_equal(driving[-1].command.kp, driven.controller.policy.kp)


def test_commands_are_those_of_the_script_within_the_policy_s_range():
  driven = Driven("0.1 stand\n0.5 policy\n0.7 9 -9 0.1").run(0.9)
  low, high = driven.controller.policy.command_range
  np.testing.assert_allclose(driven.cycles[-1].velocity_command, [high[0], low[1], 0.1])
  policy = driven.controller.policy
  np.testing.assert_allclose(
    policy.command(np.array([-0.5, 0.5, 0.0]), exact=False),
    [0.5 * low[0], 0.5 * high[1], 0.0],
  )


def _driving() -> Driven:
  driven = Driven().run(1.3)
  assert driven.modes[-1] is Mode.POLICY
  return driven


@pytest.mark.parametrize(
  "spoil, reason, cycles",
  [
    (lambda r: setattr(r, "silent", True), "states are lost", 26),
    (lambda r: r.changes.update(tick=1), "the robot's counter stands", 26),
    (lambda r: r.changes.update(gyro=np.full(3, np.nan)), "not a number", 1),
    (lambda r: r.changes.update(quat=np.array([0, 1.0, 0, 0])), "tilt is above", 3),
    (lambda r: r.changes.update(dq=np.full(J, 40.0)), "is faster than", 20),
    (lambda r: r.changes.update(temperature=np.full(J, 99.0)), "is hotter than", 3),
    (lambda r: r.changes.update(q=r.q - 0.9 * np.eye(J)[3]), "knee_joint is outs", 20),
    (lambda r: setattr(r, "foreign", 1), "another program sends commands", 1),
    (lambda r: setattr(r, "time_s", r.time_s + 0.2), "s late", 1),
  ],
)
def test_each_fault_ends_in_damping_and_stays_there(spoil, reason, cycles):
  driven = _driving()
  before = len(driven.cycles)
  spoil(driven.robot)
  driven.run(0.2)
  after = driven.cycles[before:]
  stopped = next(i for i, c in enumerate(after) if c.mode is Mode.DAMPING)
  assert stopped <= cycles
  assert all(is_damping(c.command) for c in after[stopped:])
  assert all(c.mode is Mode.DAMPING for c in after[stopped:])
  assert reason in driven.controller.machine.stop_reason
  assert [e for e in driven.events if "stop:" in e][0].endswith(
    driven.controller.machine.stop_reason
  )


@pytest.mark.parametrize("cycle_s", [0.0021, 0.0025, 0.007, 0.0195])
def test_a_slow_loop_asks_the_policy_at_50_hz_until_it_is_stopped(cycle_s):
  driven = _driving()
  robot, policy = driven.robot, driven.controller.policy
  began_s, steps, asked_s = robot.time_s, policy.steps, []
  while robot.time_s < began_s + 2.0 and driven.modes[-1] is Mode.POLICY:
    before = policy.steps
    driven.controller.step()
    if policy.steps > before:
      asked_s.append(robot.time_s)
    robot.time_s = max(robot.time_s + cycle_s, driven.controller.next_s)
  expected = (robot.time_s - began_s) / 0.02
  assert policy.steps - steps == pytest.approx(expected, abs=1.5 + 0.05 * expected)
  if cycle_s == 0.0021:  # 24 of 500 cycles are left out.
    assert driven.modes[-1] is Mode.POLICY and np.diff(asked_s).max() < 0.0231
  else:
    assert "the loop is too slow" in driven.controller.machine.stop_reason
    assert robot.time_s - began_s < 1.0


class Garbage:
  """A bundle whose network goes wrong after a while."""

  def __new__(cls, value, after):
    bundle = copy.copy(released())
    good, calls = bundle.act, []

    def act(obs):
      calls.append(1)
      actions = good(obs)
      return actions if len(calls) <= after else actions * 0 + np.float32(value)

    bundle.act = act
    return bundle


@pytest.mark.parametrize(
  "value, reason",
  [
    (np.nan, "not finite"),
    (np.inf, "not finite"),
    (300.0, "jumps by"),
    (-1e30, "jumps by"),
    (np.zeros((2, 7)), "the policy failed"),
  ],
)
def test_garbage_from_the_policy_never_reaches_the_motors(value, reason):
  driven = Driven(bundles=[Garbage(value, after=20)]).run(1.3)
  assert driven.modes[-1] is Mode.DAMPING
  assert reason in driven.controller.machine.stop_reason
  targets = np.array([c.q_target for c in driven.robot.written])
  assert np.isfinite(targets).all() and np.abs(targets).max() < 5.0
  first = driven.modes.index(Mode.DAMPING)
  assert is_damping(driven.cycles[first].command)


@pytest.mark.parametrize("shape", [(1, 1), (2, J), (J,), (1, J + 1), (1,), ()])
def test_actions_of_another_shape_never_reach_motors_or_log(shape):
  bundle, calls = copy.copy(released()), []

  def act(obs):
    calls.append(1)
    return np.zeros(shape, np.float32) if len(calls) == 5 else released().act(obs)

  bundle.act = act
  driven, seen = Driven(bundles=[bundle]), set()
  driven.controller.observers.append(lambda c, _: seen.add(c.policy.action.shape))
  driven.run(0.8)
  assert driven.modes[-1] is Mode.DAMPING and is_damping(driven.robot.written[-1])
  reason = driven.controller.machine.stop_reason
  assert reason.startswith("the policy failed: ") and seen == {(J,)}
  assert f"actions of shape {shape}, not (1, 29)" in reason


def test_a_policy_that_failed_once_can_be_reset():
  bundle = copy.copy(released())
  calls = []

  def act(obs):
    calls.append(1)
    return released().act(obs) * (np.nan if len(calls) == 5 else 1.0)

  bundle.act = act
  script = "0.1 stand\n0.5 policy\n0.9 reset\n1.0 stand\n1.4 policy"
  driven = Driven(script, bundles=[bundle]).run(1.8)
  assert "stop: the policy's output is not finite" in driven.events
  assert driven.events[-3:] == [
    "damping → passive",
    "passive → stand",
    "stand → policy",
  ]
  assert sum(c.fault is not None for c in driven.cycles) == 1
  assert driven.modes[-1] is Mode.POLICY


def test_a_stop_is_left_by_hand_only():
  driven = Driven(SCRIPT + "1.4 stop\n1.5 policy\n1.6 stand\n1.8 reset\n1.9 stand")
  driven.run(2.1)
  assert driven.modes[-1] is Mode.STAND
  assert "refused policy: reset first (stopped by the operator)" in driven.events
  index = driven.events.index
  assert index("damping → passive") > index("stop: stopped by the operator")


def _other(stiffer=2):
  other = copy.copy(released())
  other.info = {
    **other.info,
    "default_joint_pos": (other.default_joint_pos + 0.2).tolist(),
    "stiffness": (stiffer * other.stiffness).tolist(),
    "damping": (stiffer * other.damping).tolist(),
  }
  return other


def test_policies_are_switched_without_a_jump_while_standing():
  driven = Driven("0.1 stand\n0.6 next\n0.8 policy", bundles=[released(), _other()])
  driven.run(1.1)
  assert driven.modes[-1] is Mode.STAND
  assert "refused policy: still standing up for 0.1 s" in driven.events
  targets = np.array([c.command.q_target for c in driven.cycles[51:]])
  assert np.abs(np.diff(targets, axis=0)).max() < 0.3 * 1.6 / STAND_S * COMMAND_DT_S
  np.testing.assert_allclose(
    targets[-1], driven.controller.policies[1].default_pos, atol=1e-9
  )


def test_the_command_is_within_the_range_of_the_policy_that_gets_it():
  narrow, seen = copy.copy(_other()), []
  ranges = {"lin_vel_x": [-0.1, 0.1], "lin_vel_y": [0.0, 0.0], "ang_vel_z": [0.0, 0.0]}
  narrow.info = {**narrow.info, "command_ranges": {"twist": ranges}}
  driven = Driven(SCRIPT + "1.5 next\n", bundles=[released(), narrow])
  controller = driven.controller
  controller.observers.append(
    lambda c, cycle: seen.append((c.machine.policy, cycle.velocity_command[0]))
  )
  driven.run(1.6)
  assert {command for policy, command in seen if policy == 1} == {0.1}
  assert (0, 0.3) in seen


def test_gains_are_switched_without_a_jump_while_standing():
  driven = Driven("0.1 stand\n0.6 next", bundles=[released(), _other(3)]).run(1.1)
  first, second = driven.controller.policies
  standing = [c.command for c in driven.cycles if c.mode is Mode.STAND]
  for name in ("kp", "kd"):
    gains = np.array([getattr(command, name) for command in standing])
    old, new = getattr(first, name), getattr(second, name)
    # Its own from the first cycle on, as nothing stiff was there before.
    np.testing.assert_array_equal(gains[:250], np.tile(old, (250, 1)))
    steps = np.diff(gains, axis=0) / (new - old)
    assert 0.0 <= steps.min() and steps.max() < 1.6 / STAND_S * COMMAND_DT_S
    np.testing.assert_allclose(gains[-1], new, rtol=1e-12)


def test_policies_are_switched_without_a_jump():
  other = _other()
  driven = Driven(SCRIPT + "1.5 next\n", bundles=[released(), other]).run(2.2)
  assert "policy 2 of 2" in driven.events
  switch = next(i for i, c in enumerate(driven.cycles) if "policy 2 of 2" in c.events)
  before, after = (driven.cycles[switch + i].command for i in (-1, 0))
  np.testing.assert_allclose(after.q_target, before.q_target, atol=1e-9)
  np.testing.assert_allclose(after.kp, before.kp)
  assert driven.controller._sent.kp == pytest.approx(2 * before.kp)


def test_the_robot_is_left_in_damping_even_by_an_exception():
  driven = _driving()
  driven.controller.observers.append(lambda *_: 1 / 0)
  with pytest.raises(ZeroDivisionError):
    driven.controller.run_for(1.0)
  assert all(is_damping(c) for c in driven.robot.written[-5:])


def test_what_fails_once_is_tried_again_at_the_end():
  driven = _driving()
  write, failures = driven.robot.write, [2]

  def fail_twice(command):
    if failures[0]:
      failures[0] -= 1
      raise UserError("DDS cannot send a message.")
    write(command)

  before, driven.robot.write = len(driven.robot.written), fail_twice
  with pytest.raises(UserError, match="DDS cannot send"):
    driven.controller.run_for(1.0)
  assert len(driven.robot.written) - before == 4  # One of five failed, too.
  assert all(is_damping(c) for c in driven.robot.written[before:])


@pytest.mark.parametrize("took_s, damped", [(0.079, False), (0.081, True), (9.0, True)])
def test_what_was_decided_long_ago_is_not_sent(took_s, damped):
  bundle, calls = copy.copy(released()), []
  driven = Driven(bundles=[bundle])

  def act(obs):
    calls.append(1)
    if len(calls) == 5:
      driven.robot.time_s += took_s  # Stuck, or stopped by Ctrl-Z, or in standby.
    return released().act(obs)

  bundle.act = act
  while len(calls) < 5:
    driven.run(COMMAND_DT_S)
  assert is_damping(driven.robot.written[-1]) == damped
  assert (driven.modes[-1] is Mode.DAMPING) == damped
  if damped:
    assert (
      driven.controller.machine.stop_reason == f"a command came {took_s:.3f} s late"
    )
    assert driven.events[-1].startswith("stop: ") and driven.cycles[-1].fault


def test_what_comes_long_after_the_last_command_is_not_sent():
  """A cycle that is late and slow: the watchdog damps after 0.1 s, and we must not."""
  bundle, calls = copy.copy(released()), []
  driven = Driven(bundles=[bundle])

  def act(obs):
    calls.append(1)
    if len(calls) == 5:
      driven.robot.time_s += 0.06
    return released().act(obs)

  bundle.act = act
  while len(calls) < 4 or driven.controller._countdown:
    driven.run(COMMAND_DT_S)
  driven.robot.time_s += 0.06
  driven.run(COMMAND_DT_S)
  assert len(calls) == 5 and is_damping(driven.robot.written[-1])
  assert driven.controller.machine.stop_reason == "a command came 0.120 s late"


def test_the_robot_is_the_one_that_was_connected():
  """Not the one whose state comes first, a second later."""
  robot = IdealRobot()
  robot.mode_machine = 5
  robot.changes["mode_machine"] = 4
  controller = Controller(robot, MOTORS, [released()], Script("0 stand"))
  expected = "the robot changed its mode_machine from 5 to 4"
  assert controller.step().events == [f"refused stand: {expected}"]


finite = st.floats(-30.0, 30.0)


@given(
  q_target=finite,
  q=st.floats(-3.0, 3.0),
  dq=finite,
  kp=st.floats(1.0, 200.0),
  kd=st.floats(0.0, 10.0),
  effort=st.floats(5.0, 139.0),
)
def test_targets_never_ask_for_more_than_the_motor_has(q_target, q, dq, kp, kd, effort):
  values = (np.array([v]) for v in (q_target, q, dq, kp, kd, effort))
  (clipped,) = clip_targets(*values)
  torque = kp * (clipped - q) - kd * dq
  assert abs(torque) <= effort * (1 + 1e-9) + 1e-6
  if abs(kp * (q_target - q) - kd * dq) <= effort:
    assert clipped == pytest.approx(q_target)


def test_every_command_keeps_to_the_share_of_the_motors():
  driven = Driven().run(1.8)
  for cycle, previous in zip(driven.cycles[1:], driven.robot.written, strict=False):
    if cycle.command.kp.any() and cycle.state is not None:
      torque = cycle.command.kp * (cycle.command.q_target - cycle.state.q)
      torque -= cycle.command.kd * cycle.state.dq
      limit = EFFORT_SHARE * MOTORS.array("effort_limit")
      assert (np.abs(torque) <= limit + 1e-6).all()
    assert previous.mode == 1


def test_joints_are_mapped_by_name():
  backwards = copy.copy(released())
  flipped = ("joint_names", "default_joint_pos", "stiffness", "damping", "action_scale")
  backwards.info = {
    **backwards.info,
    **{key: backwards.info[key][::-1] for key in flipped},
  }
  plain = RunningPolicy(released(), MOTORS.joint_names)
  turned = RunningPolicy(backwards, MOTORS.joint_names)
  np.testing.assert_array_equal(turned.default_pos, plain.default_pos)
  np.testing.assert_array_equal(turned.kp, plain.kp)
  turned.start(plain.default_pos + 0.1)
  plain.start(plain.default_pos + 0.1)
  np.testing.assert_allclose(turned.action, plain.action[::-1])


@pytest.mark.parametrize("other_s", [0.8, 0.5])
def test_the_gait_s_clock_starts_with_the_policy_and_goes_on_over_a_switch(other_s):
  seen, steps = [], []

  def walking(period_s):
    bundle = copy.copy(released())
    clock = {"name": "clock", "dim": 2, "scale": [1.0, 1.0], "clip": None}
    others = [t for t in bundle.info["observations"] if t["name"] != "clock"]
    terms = [*others, {**clock, "meaning": "", "period_s": period_s}]
    bundle.info = {**bundle.info, "schema": 2, "observations": terms}

    def act(obs):
      seen.append(obs[0, -2:].copy())
      steps.append(0.02 / period_s)
      return np.zeros((1, J), np.float32)

    bundle.act = act
    return bundle

  bundles = [walking(0.8), walking(other_s)]
  driven = Driven(SCRIPT + "1.1 next", bundles=bundles).run(1.5)
  assert driven.modes[-1] is Mode.POLICY
  assert "policy 2 of 2" in driven.events and len(seen) > 45
  angle = 2 * np.pi * np.cumsum([0.0, *steps[:-1]])
  expected = np.stack((np.sin(angle), np.cos(angle)), axis=1)
  np.testing.assert_allclose(seen, expected, atol=1e-5)


def _changed(**changes):
  bundle = copy.copy(released())
  bundle.info = {**bundle.info, **changes}
  return bundle


@pytest.mark.parametrize(
  "changes, message",
  [
    ({"joint_names": released().info["joint_names"][:23]}, "drives 23 joints; the ro"),
    (
      {"joint_names": ["left_hip_joint", *released().info["joint_names"][1:]]},
      "drives left_hip_joint; the robot has left_hip_pitch_joint instead",
    ),
    ({"control_dt_s": 0.01}, "a step of 0.01 s; the controller asks .* 0.02 s"),
    ({"control_dt_s": 0.04}, "a step of 0.04 s"),
    ({"control_dt_s": 0.0}, "a step of 0 s"),
    ({"control_dt_s": math.nan}, "a step of nan s"),
    ({"stiffness": [-1.0] * J}, "a stiffness of -1 for left_hip_pitch_joint"),
    ({"stiffness": [0.0] * J, "damping": [0.0] * J}, "a stiffness of 0 for left_hip"),
    ({"damping": [0.0] * J}, "a damping of 0 for left_hip_pitch_joint"),
    ({"stiffness": [1e6] * J}, "a stiffness of 1e.06 for left_hip_pitch_joint"),
    ({"damping": [math.nan] * J}, "a damping of nan for left_hip_pitch_joint"),
    (
      {"stiffness": (np.eye(J)[5] * 999 + released().stiffness).tolist()},
      "of 1027.5 for left_ankle_roll_joint, whose motor has 28.5 .a tenth to ten times",
    ),
    (
      {"default_joint_pos": (10 * np.eye(J)[3]).tolist()},
      "stands with left_knee_joint at 10 rad, outside its range of -0.087.* to 2.8",
    ),
    ({"action_scale": [0.0] * J}, "action scale of zero"),
  ],
)
def test_bundles_for_other_robots_are_refused(changes, message):
  with pytest.raises(UserError, match=message):
    check_fits(_changed(**changes), MOTORS.joint_names)


@pytest.mark.parametrize("bound", [1e9, -1e9, 11.0])
def test_commands_that_no_robot_can_follow_are_refused(bound):
  ranges = {"lin_vel_x": sorted([0.0, bound]), "lin_vel_y": [0, 0], "ang_vel_z": [0, 0]}
  with pytest.raises(UserError, match="was trained for a lin_vel_x of .* at most 10"):
    RunningPolicy(_changed(command_ranges={"twist": ranges}), MOTORS.joint_names)


def test_a_bundle_without_ranges_of_commands_is_refused():
  with pytest.raises(UserError, match="names no range of commands"):
    RunningPolicy(_changed(command_ranges={}), MOTORS.joint_names)
