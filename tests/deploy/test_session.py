"""A whole drive from the command line, and what is refused before anything moves."""

import copy
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import numpy as np
import pytest

from decap.cli import main
from decap.deploy import session
from decap.deploy.dry_run import measure
from decap.deploy.operator import Script
from decap.deploy.recorder import read_events, read_flight
from decap.deploy.screen import Screen
from decap.deploy.session import drive, load_policies, real_time, stopped_by_fault
from decap.deploy.states import Mode
from decap.errors import UserError

from .network import needs_dds, peer
from .robots import MOTORS, POLICY, IdealRobot, plain_onnx, released
from .test_controller import Driven

ROOT = Path(__file__).parents[2]


def _fails(capsys, *argv: str) -> str:
  assert main(argv) == 2
  captured = capsys.readouterr()
  lines = captured.err.splitlines()
  assert captured.out == "" and len(lines) == 1
  return lines[0]


@pytest.fixture
def bundle(tmp_path):
  """A copy of the released bundle that can be edited without a contradiction."""
  folder, onnx = Path(shutil.copytree(POLICY, tmp_path / "bundle")), plain_onnx()
  (folder / "policy.onnx").write_bytes(onnx)
  _edit(folder, onnx_sha256=hashlib.sha256(onnx).hexdigest())
  return folder


def _edit(bundle, **changes):
  path = bundle / "policy.json"
  path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
  "argv, message",
  [
    ([], "--interface is missing"),
    (["--interface", "eth9"], "There is no network interface 'eth9' (there are lo"),
    (["--interface", "lo", "--domain", "-1"], "--domain must be between 0 and 232"),
    (["--simulator", "--interface", "lo"], "--simulator is on this machine"),
    (["--interface", "lo", "--seconds", "0"], "--seconds must be above 0"),
    (["--interface", "lo", "--wait", "0"], "--wait must be above 0"),
    (["--interface", "lo", "--log-mb", "0"], "--log-mb must be between"),
    (["--interface", "lo", "--input", "no.txt"], "Cannot read the script no.txt"),
    (["--interface", "lo", "--input", "keyboard"], "The keyboard needs a terminal"),
  ],
)
def test_wrong_options_get_a_sentence(capsys, argv, message, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with open(os.devnull) as nothing:
    monkeypatch.setattr(sys, "stdin", nothing)
    assert message in _fails(capsys, "deploy", str(POLICY), *argv)
  assert not list(tmp_path.iterdir())


def test_bad_bundles_are_refused_before_the_network_is_touched(capsys, bundle):
  def refused():
    return _fails(capsys, "deploy", str(bundle), "--interface", "lo", "--no-log")

  info = json.loads((bundle / "policy.json").read_text())
  names = info["joint_names"]
  _edit(bundle, joint_names=["left_hip_joint", *names[1:]])
  assert (
    "known (g1_29dof, g1_23dof): unlike one for g1_29dof, it drives left_h" in refused()
  )
  _edit(bundle, joint_names=names, control_dt_s=0.04)
  assert "was trained for a step of 0.04 s" in refused()
  _edit(bundle, control_dt_s=0.02, joint_names=names[:-1])
  assert "'default_joint_pos' has 29 values for 28 joints" in refused()
  _edit(bundle, **info)
  onnx = (bundle / "policy.onnx").read_bytes()
  (bundle / "policy.onnx").write_bytes(onnx[:-100])
  assert "does not match the checksum" in refused()
  (bundle / "policy.json").write_text((bundle / "policy.json").read_text()[:500])
  assert "is not valid JSON" in refused()
  shutil.rmtree(bundle)
  assert "is not a policy bundle" in refused()


def test_a_run_s_own_bundle_is_found(bundle, tmp_path):
  run = tmp_path / "run"
  shutil.move(bundle, run / "policy")
  (found,), motors = load_policies([str(run)])
  assert found.folder == run / "policy" and len(motors.motors) == 29


@needs_dds
def test_no_robot_on_the_network(capsys, domain):
  argv = ["deploy", str(POLICY), "--interface", "lo", "--domain", str(domain)]
  message = _fails(capsys, *argv, "--wait", "0.3", "--no-log")
  assert "No robot on the network: no state arrived within 0.3 s" in message


@needs_dds
def test_a_drive_over_dds_from_the_command_line(tmp_path, domain):
  script, log = tmp_path / "walk.txt", tmp_path / "flight"
  script.write_text("0 stand\n0.2 policy\n")
  command = [sys.executable, "-m", "decap", "deploy", str(POLICY), "--simulator"]
  command += ["--domain", str(domain), "--input", str(script), "--log", str(log)]
  command += ["--wait", "30", "--log-mb", "10"]
  with peer("simulator", domain, 29, 60.0):
    process = subprocess.Popen(
      command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    end = time.monotonic() + 60.0
    while time.monotonic() < end and not (
      (log / "events.jsonl").exists() and read_events(log)
    ):
      time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
  assert process.returncode == 0, err
  assert "Last stop: stopped by the operator." in out
  texts = [event["event"] for event in read_events(log)]
  assert texts[0] == "passive → stand"
  assert "refused policy: still standing up" in texts[1] or "stop:" in texts[2]
  assert texts[-1] == "ended" and "stop: stopped by the operator" in texts
  # Two seconds of damping are the last thing that the robot got.
  header, records = read_flight(log)
  damped = records[records["mode"] == list(Mode).index(Mode.DAMPING)]
  assert damped["time_s"][-1] - damped["time_s"][0] == pytest.approx(2.0, abs=0.02)
  assert not damped["kp"].any() and (damped["kd"] > 0).all()
  assert header["policies"] == [str(POLICY)]


def test_this_machine_is_measured_without_a_robot(capsys):
  assert main(["deploy", str(POLICY), "--dry-run"]) == 0
  out = capsys.readouterr().out
  assert "29 joints, 50 Hz, fits the robot" in out
  assert "Observation, network and command:" in out


def test_a_policy_that_is_stopped_at_once_is_not_measured():
  useless = copy.copy(released())
  useless.act = lambda obs: np.full((1, 29), np.nan, np.float32)
  with pytest.raises(UserError, match="g1-flat-cat cannot be measured: the policy's o"):
    measure(useless, MOTORS)


class Terminal:
  """A terminal that remembers what was written to it."""

  def __init__(self):
    self.text = ""

  def isatty(self):
    return True

  def write(self, text):
    self.text += text

  def flush(self):
    pass


def test_the_screen_shows_state_command_margins_and_the_last_stop():
  terminal = Terminal()
  screen = Screen("buttons", terminal)
  screen.remarks = lambda: ["recording ended: full"]
  driven = Driven("0.1 stand\n0.5 policy\n0.6 0.3 0 0\n1.0 stop")
  driven.controller.observers.append(screen)
  driven.run(1.3)
  screen.close()
  last = terminal.text.split("\x1b[H")[-1].replace("\x1b[K", "")
  for part in (
    "DAMPING",
    f"policy 1 of 1: {POLICY.name}",
    "vx +0.30 m/s",
    "last stop      stopped by the operator",
    "tilt",
    "joint speed",
    "infer",
    "stand → policy",
    "buttons",
    "recording ended: full",
  ):
    assert part in last
  assert max(len(line) for line in last.splitlines()) <= 100


def test_without_a_terminal_remarks_are_on_standard_error_once(capsys):
  screen, remarks = Screen("buttons"), ["no real-time priority"]
  screen.remarks = lambda: remarks
  driven = Driven("0.1 stand")
  driven.controller.observers.append(screen)
  driven.run(0.5)
  remarks.append("the disk is full")
  driven.run(0.5)
  screen.close()
  captured = capsys.readouterr()
  assert captured.err == "decap: no real-time priority\ndecap: the disk is full\n"
  assert captured.out == "     0.10 s  passive → stand\n"


class Guard:
  """A watchdog that ends when it is told to, and remembers what it hears."""

  def __init__(self, ends_s: float = float("inf")):
    self.robot, self.ends_s = IdealRobot(), ends_s
    self.heard: list[str] = []

  def alive(self):
    return self.robot.time_s < self.ends_s

  def beat(self):
    self.heard.append("beat")

  def goodbye(self):
    self.heard.append("goodbye")

  def close(self):
    self.heard.append("let go")


def _drive(script, watchdog=None, recorder=None, screen=None, seconds=5.0):
  """A drive of the ideal robot with stand-ins; returns its controller."""
  watchdog = watchdog or Guard()
  events = []
  controller = drive(
    watchdog.robot,
    MOTORS,
    [released()],
    Script(script),
    watchdog=watchdog,
    recorder=recorder,
    screen=screen or (lambda _, cycle: events.extend(cycle.events)),
    seconds=seconds,
  )
  return controller, events


def test_a_watchdog_that_ends_stops_the_drive_for_good():
  script = "0 stand\n3.1 policy\n4.5 reset\n4.6 stand"
  controller, events = _drive(script, Guard(ends_s=4.0))
  gone = "the watchdog has ended or hangs: a dead controller would not be noticed"
  assert events[2:] == [
    *("policy → damping", f"stop: {gone}", f"refused reset: {gone}"),
    f"refused stand: reset first ({gone})",
  ]
  assert controller.machine.mode is Mode.DAMPING and stopped_by_fault(controller)


class Records:
  """A recorder that takes its time, and fails on request."""

  def __init__(self, guard: Guard, fails: str = "", late_s: float = 0.0):
    self.guard, self.fails, self.late_s = guard, fails, late_s
    self.problem, self.dropped = "", 0

  def start(self, controller):
    self._do("start")
    self.guard.robot.time_s += self.late_s

  def __call__(self, controller, cycle):
    self._do("cycle")

  def event(self, time_s, text, **extra):
    self._do("event")

  def close(self):
    self._do("close")
    self.guard.heard.append("closed")

  def _do(self, what):
    if what == self.fails:
      raise ValueError("no such thing")


def test_the_watchdog_hears_of_the_end_before_anything_that_takes_time():
  guard = Guard()
  _drive("0 stand", guard, Records(guard), seconds=0.1)
  assert guard.heard[-3:] == ["beat", "goodbye", "closed"]


def test_after_an_error_the_watchdog_damps():
  guard = Guard()
  guard.robot.write = None  # type: ignore[assignment]
  with pytest.raises(TypeError):
    _drive("0 stand", guard, Records(guard))
  assert guard.heard == ["closed"]


@pytest.mark.parametrize("fails", ["start", "cycle", "event", "close"])
def test_a_recorder_that_fails_is_a_remark(fails):
  guard = Guard()
  recorder = Records(guard, fails)
  _, events = _drive("0 stand", guard, recorder, seconds=0.2)
  assert events[0] == "passive → stand" and "goodbye" in guard.heard
  assert guard.robot.time_s == pytest.approx(2.2, abs=0.01)
  assert recorder.problem == "recording ended: ValueError: no such thing"


def test_a_screen_that_fails_is_a_remark(capsys):
  controller, _ = _drive("0 stand", screen=Records(Guard(), "cycle"), seconds=0.2)
  assert controller.cycles == pytest.approx(1100, abs=5)
  error = "decap: the screen ended: ValueError: no such thing\n"
  assert capsys.readouterr().err == error


def test_a_recording_that_takes_its_time_to_begin_makes_no_cycle_late():
  guard = Guard()
  _, events = _drive("0 stand", guard, Records(guard, late_s=0.5), seconds=1.0)
  assert events[0] == "passive → stand"


@pytest.mark.parametrize("works", [True, False])
def test_a_recording_that_failed_is_not_called_one(
  capsys, monkeypatch, tmp_path, works
):
  guard, script = Guard(), tmp_path / "walk.txt"
  script.write_text("0 stand\n")
  monkeypatch.setattr(session, "open_robot", lambda *_: guard.robot)
  monkeypatch.setattr(session, "start_watchdog", lambda *_: guard)
  log = str(tmp_path / "flight") if works else "/proc/decap"
  options = ["--interface", "lo", "--input", str(script), "--log", log]
  assert main(["deploy", str(POLICY), *options, "--seconds", "0.1"]) == 0
  captured = capsys.readouterr()
  assert (f"Recorded in {log}" in captured.out) == works
  assert (f"Not all of it is in {log}: recording ended: " in captured.out) != works
  assert ("decap: recording ended: " in captured.err) != works
  assert guard.heard[-2:] == ["goodbye", "let go"]


def test_nothing_stands_up_without_a_watchdog():
  controller, events = _drive("1 stand", Guard(ends_s=0.5))
  assert events[0].startswith("refused stand: the watchdog has ended or hangs")


def test_real_time_priority_is_given_back_or_its_lack_is_said(monkeypatch):
  def scheduler():
    return os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK

  before = scheduler()
  with real_time(True) as note:
    assert (scheduler() == os.SCHED_FIFO) == (note == "")
  assert scheduler() == before

  def refuse(*_):
    raise PermissionError

  monkeypatch.setattr(os, "sched_setscheduler", refuse)
  with real_time(True) as note:
    assert "limits.conf" in note
  with real_time(False) as note:
    assert note == ""


def test_real_time_priority_is_given_back_without_privileges(monkeypatch):
  # The kernel's rule: who has no CAP_SYS_NICE may not clear SCHED_RESET_ON_FORK.
  policies = [os.SCHED_OTHER]

  def unprivileged(_, policy, param):
    if policies[-1] & os.SCHED_RESET_ON_FORK and not policy & os.SCHED_RESET_ON_FORK:
      raise PermissionError(1, "Operation not permitted")
    policies.append(policy)

  monkeypatch.setattr(os, "sched_setscheduler", unprivileged)
  with real_time(True) as note:
    assert note == ""
  assert policies[-1] == os.SCHED_OTHER | os.SCHED_RESET_ON_FORK


@pytest.mark.parametrize("name", ["flight.bin", "events.jsonl"])
def test_a_flight_is_not_overwritten(capsys, monkeypatch, tmp_path, name):
  opened = []
  monkeypatch.setattr(session, "open_robot", lambda *_: opened.append(1))
  flight = tmp_path / name
  flight.write_text("the only one")
  argv = ["deploy", str(POLICY), "--interface", "lo", "--log", str(tmp_path)]
  expected = f"There is a flight in {tmp_path} already: give --log another folder."
  assert _fails(capsys, *argv) == f"decap: {expected}"
  assert not opened and os.listdir(tmp_path) == [name]
  assert flight.read_text() == "the only one"


WAITING = f"""
import sys, time
from decap.cli import main
from decap.deploy import session
def open_robot(*_):
  print("waiting", flush=True)
  time.sleep(60.0)
session.open_robot = open_robot
argv = ["deploy", {str(POLICY)!r}, "--interface", "lo", "--input", "keyboard"]
sys.exit(main([*argv, "--no-log"]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_drive_gives_the_terminal_back(number):
  leader, follower = os.openpty()
  before = termios.tcgetattr(follower)
  process = subprocess.Popen(
    [sys.executable, "-c", WAITING],
    stdin=follower,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    cwd=ROOT,
  )
  assert process.stdout is not None and process.stdout.readline() == b"waiting\n"
  assert termios.tcgetattr(follower) != before and not os.get_blocking(follower)
  process.send_signal(number)
  _, err = process.communicate(timeout=30)
  assert termios.tcgetattr(follower) == before and os.get_blocking(follower)
  assert process.returncode == 128 + number and not err
  os.close(leader)
  os.close(follower)
