"""DDS for real: two processes that exchange states and commands over the loopback."""

import contextlib
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from decap.deploy import dds
from decap.deploy.controller import Controller, damping_of
from decap.deploy.messages import Codec
from decap.deploy.operator import Script
from decap.deploy.robot_io import RobotCommand
from decap.deploy.session import open_robot
from decap.deploy.simulation import SimCfg, SimulatedRobot
from decap.deploy.states import Mode
from decap.deploy.stops import Limits, Monitor
from decap.deploy.unitree import SimulatorPort, UnitreeRobot
from decap.deploy.watchdog import Watchdog
from decap.errors import UserError
from decap.robots.g1_motors import g1_motors

from .network import needs_dds, peer
from .robots import MOTORS, J, released, state

pytestmark = needs_dds

SCRIPT = "0 stand\n0.35 policy"
SECONDS = 0.8


def _drive(robot, motors, bundle) -> Controller:
  controller = Controller(robot, motors, [bundle], Script(SCRIPT), stand_s=0.3)
  controller.run_for(SECONDS)
  return controller


def test_controller_and_simulator_run_in_lockstep(domain):
  with peer("simulator", domain, 29, SECONDS) as result:
    robot = UnitreeRobot(MOTORS, "lo", domain, lockstep=True)
    robot.connect(30.0)
    controller = _drive(robot, MOTORS, released())
    found = result()
  assert controller.machine.mode is Mode.POLICY
  assert controller.monitor.tolerated.missing == 0
  assert found["rejected"] == robot.rejected_states() == robot.foreign_commands() == 0
  robot.close()
  # One state in, one command out: 500 Hz of simulated time, none lost.
  assert len(found["gains"]) == pytest.approx(SECONDS * 500, abs=3)
  # The same drive without a network in between ends in the same pose; the messages
  # round to single precision.
  alone = SimulatedRobot(MOTORS, SimCfg(noise=0.1))
  _drive(alone, MOTORS, released())
  np.testing.assert_allclose(found["q"], alone.data.qpos[7:], atol=0.02)


def test_a_simulator_that_ends_is_noticed_and_the_drive_comes_to_its_end(domain):
  with peer("simulator", domain, 29, 0.2):
    robot = UnitreeRobot(MOTORS, "lo", domain, lockstep=True)
    robot.connect(30.0)
    script = Script("0 stand")
    controller = Controller(robot, MOTORS, [released()], script, stand_s=0.1)
    began = time.monotonic()
    controller.run_for(0.8)
  # A second of patience, then simulated time goes as fast as the clock on the wall.
  assert time.monotonic() - began < 20.0
  assert controller.machine.mode is Mode.DAMPING
  assert "states are lost" in controller.machine.stop_reason
  robot.close()


def test_a_simulator_that_repeats_itself_does_not_keep_the_drive(domain):
  """One that was restarted, say: its counter is behind ours."""

  class States:
    message = Codec(MOTORS).encode_state(state(tick=1000))
    waiting = False

    def wait(self, seconds):
      time.sleep(0.01)
      self.waiting = True
      return True

    def take(self):
      waited, self.waiting = self.waiting, False
      return self.message if waited else None

  robot = UnitreeRobot(MOTORS, "lo", domain, lockstep=True)
  robot._states = States()
  robot.connect(30.0)
  thread = threading.Thread(target=robot.sleep_until, args=[1.002], daemon=True)
  thread.start()
  thread.join(timeout=10.0)
  ended = not thread.is_alive()
  robot._time_s = 2.0  # Whatever it waits for.
  thread.join()
  assert ended
  robot.close()


def test_a_simulator_that_paused_delays_no_state(domain):
  """Time went on alone meanwhile; a drive can be reset all the same."""

  class States:
    def take(self):
      waited, self.message = self.message, None
      return waited

  robot = UnitreeRobot(MOTORS, "lo", domain, lockstep=True)
  robot._states, codec = States(), Codec(MOTORS)
  monitor = Monitor(MOTORS, Limits(), 0.0)
  for i in range(20):
    if i == 10:
      robot._time_s += 3.0
    robot._states.message = codec.encode_state(state(0.002 * i))
    assert monitor.update(robot.read(), robot.now_s(), 0, 0) is not None
    assert monitor.fault(robot.now_s()) is None
  robot.close()


def test_a_machine_in_standby_is_late_when_it_wakes_up(domain, monkeypatch):
  robot, real = UnitreeRobot(MOTORS, "lo", domain), time.clock_gettime
  before_s = robot.now_s()
  slept_s = {time.CLOCK_BOOTTIME: 30.0}  # The only clock that goes on.
  monkeypatch.setattr(time, "clock_gettime", lambda k: real(k) + slept_s.get(k, 0.0))
  assert 30.0 <= robot.now_s() - before_s < 40.0
  robot.close()


def test_a_clock_that_is_put_right_in_a_hurry_delays_no_state(domain, monkeypatch):
  """chrony runs a clock up to 8 % faster or slower until it is right."""

  class States:
    def take(self):
      waited, self.waiting = self.waiting, False
      return Codec(MOTORS).encode_state(state(passed_s)) if waited else None

  robot, passed_s = UnitreeRobot(MOTORS, "lo", domain), 0.0
  robot._states = States()
  put_right = (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)
  rate = {**dict.fromkeys(put_right, 1.08), time.CLOCK_MONOTONIC_RAW: 1.0}
  monkeypatch.setattr(time, "clock_gettime", lambda k: rate[k] * passed_s)
  monitor = Monitor(MOTORS, Limits(), robot.now_s())
  for i in range(500):
    passed_s, robot._states.waiting = 0.002 * i, True
    assert monitor.update(robot.read(), robot.now_s(), 0, 0) is not None
    assert monitor.fault(robot.now_s()) is None
  robot.close()


def test_the_small_robot_echoes_its_own_mode_machine(domain):
  small = g1_motors(23)
  with peer("simulator", domain, 23, 0.1) as result:
    with pytest.raises(UserError, match="calls itself mode_machine 4; the policy is f"):
      UnitreeRobot(MOTORS, "lo", domain, lockstep=True).connect(30.0)
    robot = UnitreeRobot(small, "lo", domain, lockstep=True)
    assert robot.connect(30.0).mode_machine == 4
    for _ in range(60):
      robot.read()
      # The simulator refuses commands for another mode_machine.
      robot.write(RobotCommand(np.zeros(23), np.full(23, 7.0), np.ones(23)))
      robot.sleep_until(robot.now_s() + 0.002)
      if robot.now_s() >= 0.099:
        break
    found = result()
  robot.close()
  assert found["gains"][0] == 7.0


@pytest.mark.skipif(
  importlib.util.find_spec("unitree_interface") is None, reason="no vendor's SDK"
)
def test_the_vendor_s_sdk_understands_us_and_we_it():
  rng = np.random.default_rng(0)
  values = rng.uniform(0.5, 1.0, (5, J)).astype(np.float32).astype(float)
  command = RobotCommand(*values)
  with peer("vendor", 0) as result:
    robot = UnitreeRobot(MOTORS, "lo", 0)
    state = robot.connect(30.0)
    np.testing.assert_allclose(state.q, 0.01 * np.arange(29), rtol=1e-6)
    assert state.mode_machine == 5
    ticks = set()
    end = time.monotonic() + 5.0
    while time.monotonic() < end and len(ticks) < 10:
      robot.write(command)
      robot.sleep_until(robot.now_s() + 0.005)
      if (state := robot.read()) is not None:
        ticks.add(state.tick)
    assert len(ticks) > 3 and robot.rejected_states() == 0
    found = result()
  robot.close()
  for name in ("q_target", "dq_target", "kp", "kd", "tau_ff"):
    np.testing.assert_array_equal(found[name], getattr(command, name))


def test_commands_are_for_the_robot_that_was_connected(domain):
  port, robot = (make(MOTORS, "lo", domain) for make in (SimulatorPort, UnitreeRobot))
  with _published(domain):
    robot.connect(30.0)
  port.publish(state(mode_machine=4))
  assert robot._states.wait(5.0)
  found = robot.read()
  assert found is not None and found.mode_machine == 4
  robot.write(damping_of(MOTORS))
  received = port.receive(5.0)
  assert received is not None and received[1] == 5
  robot.close()
  port.close()


def test_nothing_is_sent_to_a_robot_of_another_kind(domain):
  port, robot = (make(MOTORS, "lo", domain) for make in (SimulatorPort, UnitreeRobot))
  with _published(domain, mode_machine=4), pytest.raises(UserError, match="machine 4"):
    robot.connect(30.0)
  robot.write(damping_of(MOTORS))
  assert port.receive(0.2) is None
  robot.close()
  port.close()


def test_wrong_checksums_are_dropped_and_said(domain):
  with peer("corrupted", domain):
    robot = UnitreeRobot(MOTORS, "lo", domain)
    end = time.monotonic() + 30.0
    while robot.rejected_states() == 0 and time.monotonic() < end:
      assert robot.read() is None
      time.sleep(0.05)
    with pytest.raises(UserError, match="states have a wrong checksum"):
      robot.connect(0.3)
  robot.close()


def test_nobody_there_gets_a_sentence_and_no_command(domain):
  port = SimulatorPort(MOTORS, "lo", domain)
  robot = UnitreeRobot(MOTORS, "lo", domain)
  with pytest.raises(UserError, match="No robot on the network: no state arrived"):
    robot.connect(0.3)
  robot.write(damping_of(MOTORS))
  assert port.receive(0.2) is None
  robot.close()
  port.close()


def test_a_second_publisher_is_seen_and_oneself_is_not(domain):
  robot = UnitreeRobot(MOTORS, "lo", domain)
  robot.mode_machine = 5
  for _ in range(20):
    robot.write(damping_of(MOTORS))
  time.sleep(0.1)
  assert robot.foreign_commands() == 0
  with peer("intruder", domain):
    end = time.monotonic() + 30.0
    while robot.foreign_commands() == 0 and time.monotonic() < end:
      time.sleep(0.02)
    assert robot.foreign_commands() > 0
    with _published(domain), pytest.raises(UserError, match="Another program sends"):
      open_robot(MOTORS, "lo", domain, lockstep=True, timeout_s=2.0)
  robot.close()


@contextlib.contextmanager
def _published(domain: int, **changes):
  """Somebody who looks like a robot: states without end."""
  port, over = SimulatorPort(MOTORS, "lo", domain), threading.Event()

  def publish():
    while not over.wait(0.01):
      port.publish(state(**changes))

  thread = threading.Thread(target=publish)
  thread.start()
  try:
    yield
  finally:
    over.set()
    thread.join()
    port.close()


def _damped(port: SimulatorPort, seconds: float) -> int:
  """Damping commands that arrive within a time; others fail the test."""
  count, end = 0, time.monotonic() + seconds
  while time.monotonic() < end:
    received = port.receive(0.02)
    if received is not None:
      command, mode_machine = received
      assert not command.kp.any() and (command.kd > 0).all() and mode_machine == 5
      count += 1
  return count


@pytest.mark.parametrize("how", ["death", "hang", "goodbye"])
def test_the_watchdog_damps_when_the_controller_cannot(domain, how):
  port = SimulatorPort(MOTORS, "lo", domain)
  port.publish(state())
  watchdog = Watchdog("lo", domain, MOTORS.name, mode_machine=5, hang_s=0.3)
  for _ in range(50):
    watchdog.beat()
    time.sleep(0.01)
  assert _damped(port, 0.05) == 0 and watchdog.alive()
  if how == "goodbye":
    watchdog.goodbye()
    watchdog.close()
    assert _damped(port, 0.6) == 0
  else:
    if how == "death":
      os.close(watchdog._pipe)
    assert _damped(port, 1.0) > 50
    watchdog._process.kill()
    watchdog._process.wait()
  port.close()


@pytest.mark.parametrize("stuck", ["terminal", "disk"])
def test_a_stuck_terminal_or_disk_does_not_keep_damping_back(
  domain, stuck, tmp_path, monkeypatch
):
  port = SimulatorPort(MOTORS, "lo", domain)
  port.publish(state())
  events = tmp_path / "events.jsonl"
  read_end, terminal = os.pipe()
  if stuck == "terminal":
    os.set_blocking(terminal, False)
    with contextlib.suppress(BlockingIOError):
      while os.write(terminal, bytes(4096)):
        pass
    os.set_blocking(terminal, True)
  else:
    os.mkfifo(events)  # Nobody reads: it does not even open.
  popen = functools.partial(subprocess.Popen, stderr=terminal)
  monkeypatch.setattr(subprocess, "Popen", popen)
  watchdog = Watchdog("lo", domain, MOTORS.name, 5, hang_s=0.3, events=events)
  watchdog.beat()
  assert _damped(port, 1.0) > 50
  if stuck == "terminal":
    assert "hang of the controller" in events.read_text()
  else:
    assert (
      os.read(read_end, 4096) == b"decap watchdog: hang of the controller: damping\n"
    )
  watchdog._process.kill()
  watchdog._process.wait()
  port.close()


def test_the_watchdog_runs_nothing_from_the_current_folder(
  domain, tmp_path, monkeypatch
):
  ran = tmp_path / "ran"
  for name in ("numpy", "json", "decap"):
    (tmp_path / f"{name}.py").write_text(f"open({str(ran)!r}, 'w')\n")
  monkeypatch.chdir(tmp_path)
  watchdog = Watchdog("lo", domain, MOTORS.name, mode_machine=5, hang_s=0.3)
  watchdog.goodbye()
  watchdog.close()
  assert not ran.exists()


@pytest.mark.parametrize("executable", [shutil.which("true"), "/no/python"])
def test_nothing_moves_without_a_watchdog(domain, monkeypatch, executable):
  monkeypatch.setattr(sys, "executable", executable)
  with pytest.raises(UserError, match="The watchdog did not start"):
    Watchdog("lo", domain, MOTORS.name, mode_machine=5, hang_s=0.3)


def test_interfaces_and_libraries_that_are_not_there(tmp_path, monkeypatch):
  with pytest.raises(UserError, match="no network interface 'eth9' .there are lo"):
    dds.Participant("eth9", 1)
  monkeypatch.setenv(dds.LIBRARY_VARIABLE, str(tmp_path / "no.so"))
  with pytest.raises(UserError, match="DECAP_LIBDDSC names .* which is no file"):
    dds.find_shared_object()
  monkeypatch.delenv(dds.LIBRARY_VARIABLE)
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  with pytest.raises(UserError, match=r"pip install 'decap\[robot\]'"):
    dds.find_shared_object()


def test_a_domain_that_could_not_be_configured_is_not_taken_for_one(monkeypatch):
  """Its participants would be on whatever interface the library finds."""
  configs = []

  class Library:
    def dds_create_domain(self, domain, config):
      configs.append(config)
      return -1

    def dds_strretcode(self, code):
      return b"no"

  monkeypatch.setattr(dds, "_library", Library)
  for _ in range(2):
    with pytest.raises(UserError, match="DDS cannot use the network interface 'lo': n"):
      dds.Participant("lo", 231)
  assert len(configs) == 2


def test_a_library_is_what_it_says_itself_not_its_folder(tmp_path, monkeypatch):
  folder = tmp_path / "cyclonedds-0.10.2"
  folder.mkdir()
  other = folder / "libddsc.so.0.10.2"
  other.write_bytes(b"/home/me/0.10.2/dds_init.c\x00" + b"Linux\x0011.0.1\x00")
  monkeypatch.setenv(dds.LIBRARY_VARIABLE, str(other))
  with pytest.raises(UserError, match="is not Cyclone DDS 0.10: other versions"):
    dds._library.__wrapped__()
