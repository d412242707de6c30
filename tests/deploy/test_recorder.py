"""The flight recorder: complete, bounded, whole after a kill, and never in the way."""

import copy
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from decap.cli import main
from decap.deploy.recorder import (
  HEADER_BYTES,
  MAGIC,
  Recorder,
  read_events,
  read_flight,
)
from decap.deploy.states import Mode
from decap.deploy.stops import MEASURED
from decap.errors import UserError

from .robots import J, released
from .test_controller import SCRIPT, Driven


def _flight(folder, seconds=0.8, **options) -> Driven:
  recorder = Recorder(folder, **options)
  driven = Driven(SCRIPT + "0.7 stop\n")
  driven.controller.observers.append(recorder)
  driven.run(seconds)
  recorder.close()
  assert recorder.dropped == 0
  return driven


def test_everything_read_and_sent_is_there(tmp_path):
  driven = _flight(tmp_path, max_mb=4)
  header, records = read_flight(tmp_path)
  assert len(records) == len(driven.cycles) == 400
  assert tuple(header["joint_names"]) == driven.controller.motors.joint_names
  for record, cycle in zip(records, driven.cycles, strict=True):
    assert record["time_s"] == cycle.now_s
    assert header["modes"][record["mode"]] == cycle.mode.value
    for name in MEASURED:
      expected = np.float32(getattr(cycle.state, name))
      np.testing.assert_array_equal(record[name], expected)
    np.testing.assert_array_equal(record["kp"], np.float32(cycle.command.kp))
    np.testing.assert_array_equal(
      record["q_target"], np.float32(cycle.command.q_target)
    )
  driving = records[records["mode"] == list(Mode).index(Mode.POLICY)]
  assert (driving["latency_ms"][:, 2] > 0).all() and driving["observation"].any()
  texts = [event["event"] for event in read_events(tmp_path)]
  assert texts == driven.events
  assert "stop: stopped by the operator" in texts


def test_actions_are_in_the_robot_s_order_whatever_the_policy_s(tmp_path):
  policy = copy.copy(released())
  per_joint = ("joint_names", "default_joint_pos", "action_scale", "stiffness")
  backwards = {name: policy.info[name][::-1] for name in (*per_joint, "damping")}
  policy.info = {**policy.info, **backwards}
  actions = 0.01 * np.arange(J, dtype=np.float32)
  policy.act = lambda obs: actions[None]
  driven, recorder = Driven(bundles=[policy]), Recorder(tmp_path, max_mb=4)
  driven.controller.observers.append(recorder)
  driven.run(0.8)
  recorder.close()
  assert driven.modes[-1] is Mode.POLICY
  _, records = read_flight(tmp_path)
  np.testing.assert_array_equal(records["action"][-1], actions[::-1])


def test_a_policy_with_fewer_observations_leaves_none_of_another_s(tmp_path):
  driven, recorder = Driven(bundles=[released()] * 2), Recorder(tmp_path, max_mb=4)
  wide, narrow = driven.controller.policies
  narrow.observation = narrow.observation[:-5]
  driven.controller.observers.append(recorder)
  driven.run(0.8)
  wide.observation[:], narrow.observation[:] = 1.0, 2.0
  for driven.controller.machine.policy in (0, 1):
    recorder(driven.controller, driven.cycles[-1])
  recorder.close()
  before, after = read_flight(tmp_path)[1]["observation"][-2:]
  assert (before == 1.0).all() and (after[:-5] == 2.0).all()
  np.testing.assert_array_equal(after[-5:], 0.0)


def test_the_ring_is_bounded_and_keeps_the_newest(tmp_path):
  driven = _flight(tmp_path, max_mb=0.3)
  header, records = read_flight(tmp_path)
  assert (tmp_path / "flight.bin").stat().st_size <= 300_000
  assert len(records) == header["capacity"] < 400
  assert records["time_s"][-1] == driven.cycles[-1].now_s
  assert (np.diff(records["number"]) == 1).all()


def test_records_cut_in_half_are_left_out(tmp_path):
  _flight(tmp_path, max_mb=4)
  path = tmp_path / "flight.bin"
  size = read_flight(tmp_path)[1].dtype.itemsize
  data = bytearray(path.read_bytes())
  data[HEADER_BYTES + 5 * size + 100] ^= 0xFF
  path.write_bytes(data[: HEADER_BYTES + 10 * size + 7])
  _, records = read_flight(tmp_path)
  assert records["number"].tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9]
  with (tmp_path / "events.jsonl").open("a") as file:
    file.write('{"time_s": 1')
  assert len(read_events(tmp_path)) == 4


def test_a_killed_controller_leaves_a_readable_flight(tmp_path):
  code = f"""
import os, signal, time
from decap.deploy.recorder import Recorder
from tests.deploy.test_controller import Driven
driven, recorder = Driven(), Recorder({str(tmp_path)!r}, max_mb=4)
driven.controller.observers.append(recorder)
driven.run(0.4)
while recorder._waiting.qsize():
  time.sleep(0.01)
time.sleep(0.05)
os.kill(os.getpid(), signal.SIGKILL)
"""
  folder = Path(__file__).parents[2]
  done = subprocess.run([sys.executable, "-c", code], cwd=folder, check=False)
  assert done.returncode == -signal.SIGKILL
  _, records = read_flight(tmp_path)
  assert len(records) == 200
  assert read_events(tmp_path)[0]["event"] == "passive → stand"


def test_a_full_disk_ends_the_recording_not_the_drive(tmp_path, monkeypatch):
  def full(*_):
    raise OSError(28, "No space left on device")

  recorder = Recorder(tmp_path, max_mb=4)
  driven = Driven()
  driven.controller.observers.append(recorder)
  driven.run(0.2)
  monkeypatch.setattr(os, "pwrite", full)
  driven.run(0.6)
  recorder.close()
  assert recorder.problem == "recording ended: No space left on device"
  assert driven.modes[-1] is Mode.POLICY and len(driven.cycles) == 400


def test_a_disk_that_is_full_at_the_start_is_a_remark_too():
  recorder = Recorder("/proc/decap")
  driven = Driven()
  driven.controller.observers.append(recorder)
  driven.run(0.1)
  recorder.close()
  assert recorder.problem.startswith("recording ended: ")
  assert len(driven.cycles) == 50


def test_a_stuck_disk_never_delays_the_drive(tmp_path, monkeypatch):
  import threading

  stuck = threading.Event()
  monkeypatch.setattr(os, "pwrite", lambda *_: stuck.wait())
  recorder = Recorder(tmp_path, max_mb=4)
  recorder._waiting.maxsize = 100
  driven = Driven()
  monkeypatch.undo()
  recorder.start(driven.controller)
  monkeypatch.setattr(os, "pwrite", lambda *_: stuck.wait())
  driven.controller.observers.append(recorder)
  driven.run(0.4)
  assert len(driven.cycles) == 200 and recorder.dropped >= 99
  stuck.set()
  recorder.close()


@pytest.mark.parametrize("waiting", [0, 5])
def test_a_stuck_disk_never_keeps_the_end_waiting(tmp_path, monkeypatch, waiting):
  import threading

  stuck = threading.Event()
  recorder = Recorder(tmp_path, max_mb=4)
  recorder._waiting.maxsize = 5  # Full, and room for the last word.
  recorder.start(Driven().controller)
  monkeypatch.setattr(os, "write", lambda *_: stuck.wait())
  for _ in range(1 + waiting):
    recorder.event(0.0, "something")
    time.sleep(0.05)
  handles = recorder._file, recorder._events
  monkeypatch.setattr("decap.deploy.recorder.CLOSE_S", 0.3, raising=False)
  closing = threading.Thread(target=recorder.close, daemon=True)
  closing.start()
  closing.join(timeout=5.0)
  ended = not closing.is_alive()
  still_open = [os.path.exists(f"/proc/self/fd/{handle}") for handle in handles]
  stuck.set()
  assert ended and all(still_open)
  assert recorder.problem == "recording ended: the disk is stuck"


def test_flights_are_shown_and_written_as_a_table(tmp_path, capsys):
  _flight(tmp_path / "flight", max_mb=4)
  table = tmp_path / "flight.csv"
  assert main(["flight", str(tmp_path / "flight"), "--csv", str(table)]) == 0
  out = capsys.readouterr().out
  assert "stop: stopped by the operator" in out
  assert "400 records over 0.80 s" in out
  lines = table.read_text().splitlines()
  assert len(lines) == 401
  columns = lines[0].split(",")
  assert columns.count("q.left_knee_joint") == 1
  assert sum(c.startswith("q_target.") for c in columns) == J
  assert len(lines[7].split(",")) == len(columns)


def test_what_is_no_flight_gets_a_sentence(tmp_path):
  with pytest.raises(UserError, match="Cannot read the flight"):
    read_flight(tmp_path)
  (tmp_path / "flight.bin").write_bytes(b"hello")
  with pytest.raises(UserError, match="is not a flight of this decap"):
    read_flight(tmp_path)
  (tmp_path / "flight.bin").write_bytes(MAGIC + b"{")
  with pytest.raises(UserError, match="damaged header"):
    read_flight(tmp_path)
  with pytest.raises(UserError, match="Cannot read the events"):
    read_events(tmp_path)


@pytest.mark.parametrize(
  "change",
  [
    lambda header: [header],
    lambda header: None,
    lambda header: {**header, "joint_names": 29},
    lambda header: {**header, "joint_names": [1] * J},
    lambda header: {**header, "observations": "many"},
    lambda header: {**header, "observations": -5},
    lambda header: {**header, "stages": ["read"]},
    lambda header: {**header, "started": None},
  ],
)
def test_a_foreign_header_gets_a_sentence(tmp_path, capsys, change):
  _flight(tmp_path, max_mb=4)
  path = tmp_path / "flight.bin"
  data = path.read_bytes()
  header = json.dumps(change(json.loads(data[len(MAGIC) : HEADER_BYTES]))).encode()
  path.write_bytes((MAGIC + header).ljust(HEADER_BYTES) + data[HEADER_BYTES:])
  assert main(["flight", str(tmp_path)]) == 2
  assert capsys.readouterr().err == f"decap: {path} has a damaged header.\n"


@pytest.mark.parametrize(
  "line",
  [
    "5",
    "[]",
    "{}",
    "[" * 100_000,
    '{"time_s": "1", "event": "x"}',
    '{"time_s": 1, "event": 2}',
  ],
)
def test_a_foreign_event_gets_a_sentence(tmp_path, capsys, line):
  _flight(tmp_path, max_mb=4)
  path = tmp_path / "events.jsonl"
  path.write_text(f"{line}\n")
  assert main(["flight", str(tmp_path)]) == 2
  error = f"decap: {path}, line 1: this is no event of a flight.\n"
  assert capsys.readouterr().err == error
