"""The flight recorder: everything read and sent, bounded, readable after a kill.

A flight is a folder: `flight.bin`, a ring of fixed-size records in a file that is
allocated before the robot moves, and `events.jsonl`, a line per event. Records go to
the operating system as they come, so they survive the death of the program. A thread
writes them: a slow disk delays the log, never the robot, and a full one ends the log
with a remark. Records carry a number and a checksum, so that one cut in half is found.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import threading
import time
import zlib
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from decap.deploy.latency import STAGES
from decap.deploy.robot_io import REMOTE_BYTES
from decap.deploy.states import Mode
from decap.deploy.stops import MEASURED, measured_sizes
from decap.errors import UserError

if TYPE_CHECKING:
  from decap.deploy.controller import Controller, Cycle

MAGIC = b"DECAPFLIGHT2\n"
FLIGHT_FILE = "flight.bin"
EVENTS_FILE = "events.jsonl"
HEADER_BYTES = 65536
DEFAULT_MB = 256
"""About five minutes at 500 Hz; older records are overwritten."""
MAX_EVENTS = 10_000
QUEUE = 2000
"""Records that wait for the disk at most: four seconds."""
CLOSE_S = 10.0
"""How long the end waits for the disk."""

# Appended to by the watchdog too.
_EVENT_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_MODES = list(Mode)


def record_layout(num_joints: int, num_obs: int) -> np.dtype:
  """One cycle."""
  j = (num_joints,)
  return np.dtype(
    [
      ("number", "<u8"),
      ("time_s", "<f8"),
      ("mode", "u1"),
      ("policy", "u1"),
      ("fresh", "u1"),
      ("mode_machine", "u1"),
      ("tick", "<u4"),
      *((k, "<f4", (size,)) for k, size in measured_sizes(num_joints).items()),
      ("remote", "u1", (REMOTE_BYTES,)),
      ("velocity_command", "<f4", (3,)),
      ("observation", "<f4", (num_obs,)),
      ("action", "<f4", j),
      ("q_target", "<f4", j),
      ("kp", "<f4", j),
      ("kd", "<f4", j),
      ("latency_ms", "<f4", (len(STAGES),)),
      ("checksum", "<u4"),
    ]
  )


class Recorder:
  """An observer of a controller that writes a flight."""

  def __init__(self, folder: str | Path, max_mb: float = DEFAULT_MB):
    self.folder = Path(folder)
    self.problem = ""
    """Why recording ended early; empty while it works."""
    self.dropped = 0
    """Records that the disk was too slow for."""
    self._max_bytes = int(max_mb * 1e6)
    self._record: np.ndarray | None = None
    self._orders: list[list[int]] = []
    """Each policy's joints among the robot's, whose order all records have."""
    self._file = self._events = -1
    self._capacity = self._number = self._num_events = 0
    self._waiting: queue.Queue = queue.Queue(QUEUE)
    self._thread: threading.Thread | None = None

  def start(self, controller: Controller) -> None:
    """Allocate the files; a disk that is full or read-only is a remark, not a stop."""
    widest = max(len(p.observation) for p in controller.policies)
    layout = record_layout(len(controller.motors.motors), widest)
    self._record = np.zeros((), layout)
    robot = controller.motors.joint_names
    self._orders = [
      [robot.index(name) for name in p.bundle.joint_names] for p in controller.policies
    ]
    self._capacity = max(2, (self._max_bytes - HEADER_BYTES) // layout.itemsize)
    header = {
      "joint_names": controller.motors.joint_names,
      "observations": widest,
      "capacity": self._capacity,
      "stages": STAGES,
      "modes": [m.value for m in _MODES],
      "policies": [str(p.bundle.folder) for p in controller.policies],
      "onnx_sha256": [p.bundle.info["onnx_sha256"] for p in controller.policies],
      "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    try:
      self.folder.mkdir(parents=True, exist_ok=True)
      self._file = os.open(
        self.folder / FLIGHT_FILE, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644
      )
      # All of the space now: a disk that fills up later does not matter then.
      os.posix_fallocate(self._file, 0, HEADER_BYTES + self._capacity * layout.itemsize)
      text = MAGIC + json.dumps(header).encode()
      os.pwrite(self._file, text.ljust(HEADER_BYTES), 0)
      self._events = os.open(self.folder / EVENTS_FILE, _EVENT_FLAGS, 0o644)
    except OSError as error:
      self._fail(error)
    self._thread = threading.Thread(target=self._work, daemon=True)
    self._thread.start()

  def __call__(self, controller: Controller, cycle: Cycle) -> None:
    """Take in one cycle; returns at once."""
    if self._record is None:
      self.start(controller)
    if cycle.events:
      self.event(cycle.now_s, *cycle.events, mode=cycle.mode.value)
    if not self.problem:
      self._put(self._fill(controller, cycle))

  def event(self, time_s: float, *texts: str, **extra: Any) -> None:
    """Note something that happened."""
    self._num_events += len(texts)
    if self._num_events <= MAX_EVENTS:
      for text in texts:
        line = {"time_s": round(time_s, 4), "event": text, **extra}
        self._put(json.dumps(line, ensure_ascii=False) + "\n")

  def close(self) -> None:
    """Write what waits and close the files; a disk that is stuck is given up."""
    if self._thread is None:
      return
    thread, self._thread = self._thread, None
    end_s = time.monotonic() + CLOSE_S
    with contextlib.suppress(queue.Full):
      self._waiting.put(None, timeout=CLOSE_S)
    thread.join(timeout=max(0.0, end_s - time.monotonic()))
    if thread.is_alive():
      # Its files stay open: their numbers could be another file's when it wakes up.
      self.problem = self.problem or "recording ended: the disk is stuck"
      return
    for handle in (self._file, self._events):
      if handle >= 0:
        os.close(handle)
    self._file = self._events = -1

  def _put(self, item: bytes | str) -> None:
    try:
      self._waiting.put_nowait(item)
    except queue.Full:
      self.dropped += 1

  def _fill(self, controller: Controller, cycle: Cycle) -> bytes:
    record, policy = self._record, controller.policy
    assert record is not None
    record["number"] = self._number
    self._number += 1
    record["time_s"] = cycle.now_s
    record["mode"] = _MODES.index(cycle.mode)
    record["policy"] = controller.machine.policy
    record["fresh"] = cycle.state is not None
    state = cycle.state
    if state is not None:
      for name in MEASURED:
        record[name] = getattr(state, name)
      record["mode_machine"], record["tick"] = state.mode_machine, state.tick
      record["remote"] = np.frombuffer(state.remote, np.uint8)
    record["velocity_command"] = cycle.velocity_command
    size = len(policy.observation)
    record["observation"][:size] = policy.observation
    record["observation"][size:] = 0.0  # Another policy may have more.
    record["action"][self._orders[controller.machine.policy]] = policy.action
    for name in ("q_target", "kp", "kd"):
      record[name] = getattr(cycle.command, name)
    record["latency_ms"] = [1e3 * controller.latency.last_s[s] for s in STAGES]
    data = record.tobytes()[:-4]
    return data + zlib.crc32(data).to_bytes(4, "little")

  def _work(self) -> None:
    """The thread: from the queue to the files."""
    while (item := self._waiting.get()) is not None:
      if self.problem:
        continue
      try:
        self._write(item)
      except Exception as error:
        self._fail(error)

  def _write(self, item: bytes | str) -> None:
    if isinstance(item, str):
      os.write(self._events, item.encode())
      return
    slot = int.from_bytes(item[:8], "little") % self._capacity
    os.pwrite(self._file, item, HEADER_BYTES + slot * len(item))

  def _fail(self, error: Exception) -> None:
    self.problem = f"recording ended: {getattr(error, 'strerror', None) or error}"


def is_flight(folder: Path) -> bool:
  """Whether something was recorded there, which a new flight would overwrite."""
  return any((folder / name).exists() for name in (FLIGHT_FILE, EVENTS_FILE))


def read_flight(folder: str | Path) -> tuple[dict[str, Any], np.ndarray]:
  """Header and records of a flight, oldest first; damaged records are left out."""
  path = Path(folder) / FLIGHT_FILE
  try:
    data = path.read_bytes()
  except OSError as error:
    raise UserError(f"Cannot read the flight {path}: {error.strerror}.") from error
  if not data.startswith(MAGIC):
    raise UserError(f"{path} is not a flight of this decap.")
  try:
    header = _header(json.loads(data[len(MAGIC) : HEADER_BYTES]))
    layout = record_layout(len(header["joint_names"]), header["observations"])
  except (ValueError, KeyError, TypeError, RecursionError) as error:
    raise UserError(f"{path} has a damaged header.") from error
  body = data[HEADER_BYTES:]
  body = body[: len(body) // layout.itemsize * layout.itemsize]
  records = np.frombuffer(body, layout)
  whole = [
    zlib.crc32(body[i : i + layout.itemsize - 4]) == checksum
    for i, checksum in zip(
      range(0, len(body), layout.itemsize), records["checksum"], strict=True
    )
  ]
  # An empty slot is all zeros, and has the checksum of that only by accident: never.
  records = records[np.array(whole, bool)]
  return header, records[np.argsort(records["number"])]


def _header(found: Any) -> dict[str, Any]:
  """A header whose entries have the types that readers count on."""
  texts = [*found["joint_names"], *found["stages"], found["started"]]
  known = len(found["stages"]) == len(STAGES) and isinstance(found["observations"], int)
  if not known or not all(isinstance(text, str) for text in texts):
    raise ValueError("other types than a recorder writes")
  return found


def read_events(folder: str | Path) -> list[dict[str, Any]]:
  """Events of a flight in order; a last line cut in half is left out."""
  path = Path(folder) / EVENTS_FILE
  try:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
  except OSError as error:
    raise UserError(f"Cannot read the events {path}: {error.strerror}.") from error
  events = []
  for number, line in enumerate(lines, start=1):
    try:
      event = json.loads(line)
    except ValueError:
      continue
    except RecursionError:
      event = None
    if not _is_event(event):
      raise UserError(f"{path}, line {number}: this is no event of a flight.")
    events.append(event)
  return events


def _is_event(found: Any) -> bool:
  return (
    isinstance(found, dict)
    and isinstance(found.get("time_s"), (int, float))
    and isinstance(found.get("event"), str)
  )
