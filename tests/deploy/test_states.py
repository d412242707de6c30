"""The state machine: the only ways in and out, for any sequence of events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decap.deploy.states import NONE, STAND_S, Machine, Mode, Requests

STAND, POLICY = Requests(stand=True), Requests(policy=True)
STOP, RESET = Requests(stop=True), Requests(reset=True)
NEXT = Requests(next_policy=True)

requests = st.sampled_from(
  [NONE, STAND, POLICY, STOP, RESET, NEXT, STAND | RESET, STOP | RESET]
)
faults = st.sampled_from([None, None, None, "a fault"])


def _driving(num_policies: int = 1) -> Machine:
  machine = Machine(num_policies)
  machine.step(0.0, STAND, None)
  machine.step(STAND_S, POLICY, None)
  assert machine.mode is Mode.POLICY
  return machine


def test_the_way_to_a_policy_and_back():
  machine = Machine()
  machine.step(0.0, POLICY, None)
  assert machine.mode is Mode.PASSIVE and machine.events == [
    "refused policy: stand first"
  ]
  machine.step(1.0, STAND, None)
  assert machine.mode is Mode.STAND
  machine.step(1.5, POLICY, None)
  assert machine.mode is Mode.STAND
  assert machine.events == ["refused policy: still standing up for 2.5 s"]
  machine.step(1.0 + STAND_S, POLICY, None)
  assert machine.mode is Mode.POLICY
  machine.step(9.0, STOP, None)
  assert machine.mode is Mode.DAMPING
  assert machine.stop_reason == "stopped by the operator"
  for request in (STAND, POLICY, NEXT):
    machine.step(10.0, request, None)
    assert machine.mode is Mode.DAMPING and "reset first" in machine.events[0]
  machine.step(11.0, RESET, "tilt")
  assert machine.mode is Mode.DAMPING and machine.events == ["refused reset: tilt"]
  machine.step(12.0, RESET, None)
  assert machine.mode is Mode.PASSIVE
  assert machine.stop_reason == "stopped by the operator"


def test_a_fault_stops_what_is_driven_and_keeps_the_rest_from_starting():
  machine = _driving()
  machine.step(5.0, NONE, "lost")
  assert machine.mode is Mode.DAMPING and machine.stop_reason == "lost"
  assert machine.events == ["policy → damping", "stop: lost"]
  machine = Machine()
  machine.step(0.0, STAND, "lost")
  assert machine.mode is Mode.PASSIVE and machine.events == ["refused stand: lost"]


def test_a_stop_wins_over_a_reset_in_the_same_cycle():
  machine = _driving()
  for now_s in (5.0, 6.0, 7.0):
    machine.step(now_s, STOP | RESET, None)
    assert machine.mode is Mode.DAMPING and machine.since_s == 5.0
  machine.step(8.0, RESET, None)
  assert machine.mode is Mode.PASSIVE


def test_policies_take_turns():
  machine = _driving(num_policies=3)
  seen = []
  for _ in range(4):
    assert machine.step(9.0, NEXT, None)
    seen.append(machine.policy)
  assert seen == [1, 2, 0, 1] and machine.mode is Mode.POLICY
  alone = _driving()
  assert not alone.step(9.0, NEXT, None)
  assert alone.events == ["refused next policy: there is only one policy"]


@given(st.lists(st.tuples(requests, faults, st.floats(0.0, 4.0)), max_size=40))
def test_no_sequence_breaks_the_rules(steps):
  machine, now_s, standing_since = Machine(num_policies=2), 0.0, None
  for request, fault, dt_s in steps:
    before = machine.mode
    now_s += dt_s
    machine.step(now_s, request, fault)
    after = machine.mode
    if request.stop or (fault and before in (Mode.STAND, Mode.POLICY)):
      assert after is Mode.DAMPING
    elif before is Mode.DAMPING:
      assert after is (Mode.PASSIVE if request.reset and not fault else Mode.DAMPING)
    elif after is not before:
      assert (before, after) in [
        (Mode.PASSIVE, Mode.STAND),
        (Mode.STAND, Mode.POLICY),
      ]
      assert not fault
    if after is Mode.POLICY and before is Mode.STAND:
      assert standing_since is not None
      assert now_s - standing_since >= STAND_S - 1e-6
    if after is Mode.STAND and before is not Mode.STAND:
      standing_since = now_s


@pytest.mark.parametrize("field", ["stand", "policy", "stop", "reset", "next_policy"])
def test_requests_add_up(field):
  assert getattr(NONE | Requests(**{field: True}), field)
  assert (STAND | STOP) == Requests(stand=True, stop=True)


def test_of_two_requests_the_second_is_refused_aloud():
  machine = Machine(num_policies=2)
  machine.step(0.0, STAND | POLICY | NEXT, None)
  assert machine.mode is Mode.STAND and machine.policy == 0
  assert machine.events == [
    "passive → stand",
    "refused policy: stand was asked for in the same cycle",
    "refused next policy: stand was asked for in the same cycle",
  ]
