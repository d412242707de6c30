"""The few calls of Cyclone DDS that a robot needs, on its C library.

The robot speaks Cyclone DDS 0.10.2; peers of later major versions can crash it. The
package that brings this version (`decap[robot]`) is the vendor's C++ SDK with a Python
face. That face hides the remote, bad checksums and other publishers, so only the C
library inside it is used here. Any other libddsc 0.10 does as well: name it in
`DECAP_LIBDDSC`.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import socket
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_uint32, c_void_p
from functools import lru_cache
from pathlib import Path

import numpy as np

from decap.errors import UserError

LIBRARY_VARIABLE = "DECAP_LIBDDSC"
VERSION = re.compile(rb"\x000\.10\.\d+\x00")
"""What the library tells others that it is; a path in it may say anything."""

_OP_ADR = 0x01 << 24
_OP_RTS = 0x00 << 24
_TYPE_ARR = 0x08
_TYPE_OF_SIZE = {1: 0x01, 2: 0x02, 4: 0x03, 8: 0x04}
_IGNORE_PARTICIPANT = 1
_BEST_EFFORT = 0
_ANY_STATE = 0
_LOG_FATAL, _LOG_ERROR = 1, 2


_configured: dict[int, str] = {}
"""Domain → network interface, in this program."""


class _Meta(ctypes.Structure):
  _fields_ = [("data", c_void_p), ("size", c_uint32)]


class _Descriptor(ctypes.Structure):
  """``dds_topic_descriptor`` of Cyclone DDS 0.10."""

  _fields_ = [
    ("size", c_uint32),
    ("align", c_uint32),
    ("flags", c_uint32),
    ("nkeys", c_uint32),
    ("typename", c_char_p),
    ("keys", c_void_p),
    ("nops", c_uint32),
    ("ops", POINTER(c_uint32)),
    ("meta", c_char_p),
    ("type_information", _Meta),
    ("type_mapping", _Meta),
    ("restrict_data_representation", c_uint32),
  ]


class _SampleInfo(ctypes.Structure):
  """``dds_sample_info``."""

  _fields_ = [
    ("sample_state", c_uint32),
    ("view_state", c_uint32),
    ("instance_state", c_uint32),
    ("valid_data", ctypes.c_bool),
    ("source_timestamp", c_int64),
    ("instance_handle", ctypes.c_uint64),
    ("publication_handle", ctypes.c_uint64),
    ("counts", c_uint32 * 5),
  ]


def find_shared_object() -> Path:
  """The libddsc to use, without loading it."""
  chosen = os.environ.get(LIBRARY_VARIABLE)
  if chosen:
    if not Path(chosen).is_file():
      raise UserError(f"{LIBRARY_VARIABLE} names {chosen}, which is no file.")
    return Path(chosen)
  # find_spec, not import: the wheel's Python part is not needed.
  spec = importlib.util.find_spec("unitree_interface")
  folders = (spec.submodule_search_locations or []) if spec else []
  for folder in folders:
    path = Path(folder) / "libddsc.so"
    if path.is_file():
      return path
  raise UserError(
    "There is no DDS to talk to a robot with: install it by "
    "pip install 'decap[robot]' (Python 3.10 to 3.12), or name a libddsc.so of "
    f"Cyclone DDS 0.10 in {LIBRARY_VARIABLE}"
  )


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
  path = find_shared_object()
  if not VERSION.search(path.read_bytes()):
    raise UserError(
      f"{path} is not Cyclone DDS 0.10: other versions can crash the robot's side."
    )
  try:
    lib = ctypes.CDLL(str(path))
  except OSError as error:
    raise UserError(f"Cannot load {path}: {error}.") from error
  entity = c_int32
  lib.dds_create_domain.argtypes = [c_uint32, c_char_p]
  lib.dds_create_participant.argtypes = [c_uint32, c_void_p, c_void_p]
  lib.dds_create_topic.argtypes = [
    entity,
    POINTER(_Descriptor),
    c_char_p,
    c_void_p,
    c_void_p,
  ]
  for name in ("dds_create_reader", "dds_create_writer"):
    getattr(lib, name).argtypes = [entity, entity, c_void_p, c_void_p]
  lib.dds_create_readcondition.argtypes = [entity, c_uint32]
  lib.dds_waitset_attach.argtypes = [entity, entity, ctypes.c_ssize_t]
  lib.dds_waitset_wait.argtypes = [entity, c_void_p, ctypes.c_size_t, c_int64]
  lib.dds_write.argtypes = [entity, c_void_p]
  lib.dds_take.argtypes = [
    entity,
    POINTER(c_void_p),
    POINTER(_SampleInfo),
    ctypes.c_size_t,
    c_uint32,
  ]
  lib.dds_create_qos.restype = c_void_p
  lib.dds_delete_qos.argtypes = [c_void_p]
  lib.dds_qset_history.argtypes = [c_void_p, c_int32, c_int32]
  lib.dds_qset_reliability.argtypes = [c_void_p, c_int32, c_int64]
  lib.dds_qset_ignorelocal.argtypes = [c_void_p, c_int32]
  lib.dds_strretcode.argtypes = [c_int32]
  lib.dds_strretcode.restype = c_char_p
  # Errors only: every start on the loopback would print that it has no multicast.
  lib.dds_set_log_mask(c_uint32(_LOG_FATAL | _LOG_ERROR))
  return lib


def _checked(code: int, action: str) -> int:
  if code < 0:
    reason = _library().dds_strretcode(-code).decode()
    raise UserError(f"DDS cannot {action}: {reason}.")
  return code


def _operations(layout: np.dtype, base: int = 0) -> list[int]:
  """Serialiser program of a record: an instruction per field, records spelled out."""
  ops: list[int] = []
  for field in layout.fields.values():
    kind, offset = field[0], base + field[1]
    element, shape = kind.subdtype if kind.subdtype else (kind, ())
    count = int(np.prod(shape)) if shape else 1
    if element.fields:
      for i in range(count):
        ops += _operations(element, offset + i * element.itemsize)
      continue
    code = _TYPE_OF_SIZE[element.itemsize]
    if shape:
      ops += [_OP_ADR | _TYPE_ARR << 16 | code << 8, offset, count]
    else:
      ops += [_OP_ADR | code << 16, offset]
  return ops


def check_interface(name: str) -> None:
  """Raise if this machine has no such network interface."""
  known = [found for _, found in socket.if_nameindex()]
  if name not in known:
    raise UserError(
      f"There is no network interface '{name}' (there are {', '.join(known)})."
    )


class Participant:
  """This program on the network of a robot."""

  def __init__(self, interface: str, domain: int):
    lib = _library()
    self._kept: list[object] = []
    check_interface(interface)
    config = (
      "<CycloneDDS><Domain Id='any'><General><Interfaces>"
      f"<NetworkInterface name='{interface}'/></Interfaces></General>"
      "</Domain></CycloneDDS>"
    )
    # A program configures a domain once, however many of its parts join it.
    if domain not in _configured:
      _checked(
        lib.dds_create_domain(domain, config.encode()),
        f"use the network interface '{interface}'",
      )
      _configured[domain] = interface
    elif _configured[domain] != interface:
      raise UserError(
        f"Domain {domain} is on '{_configured[domain]}' already, not on '{interface}'."
      )
    self.handle = _checked(
      lib.dds_create_participant(domain, None, None),
      f"join domain {domain} on '{interface}'",
    )

  def topic(self, name: str, type_name: str, layout: np.dtype) -> int:
    """A topic of messages that are plain records."""
    program = [*_operations(layout), _OP_RTS]
    ops = (c_uint32 * len(program))(*program)
    descriptor = _Descriptor(
      size=layout.itemsize,
      align=4,
      typename=type_name.encode(),
      nops=len(program),
      ops=ops,
      meta=b"",
    )
    self._kept += [ops, descriptor]
    return _checked(
      _library().dds_create_topic(
        self.handle, byref(descriptor), name.encode(), None, None
      ),
      f"open the topic {name}",
    )

  def close(self) -> None:
    """Leave the network."""
    _library().dds_delete(self.handle)


class Writer:
  """Sends messages of one topic."""

  def __init__(self, participant: Participant, topic: int):
    self._handle = _checked(
      _library().dds_create_writer(participant.handle, topic, None, None), "publish"
    )

  def write(self, data: bytes) -> None:
    """Send one message."""
    _checked(_library().dds_write(self._handle, data), "send a message")


class Reader:
  """Receives messages of one topic from everybody else."""

  def __init__(
    self, participant: Participant, topic: int, layout: np.dtype, depth: int = 1
  ):
    lib = _library()
    qos = c_void_p(lib.dds_create_qos())
    lib.dds_qset_ignorelocal(qos, _IGNORE_PARTICIPANT)
    lib.dds_qset_reliability(qos, _BEST_EFFORT, 0)
    lib.dds_qset_history(qos, 0, depth)
    self._handle = _checked(
      lib.dds_create_reader(participant.handle, topic, qos, None), "subscribe"
    )
    lib.dds_delete_qos(qos)
    condition = lib.dds_create_readcondition(self._handle, _ANY_STATE)
    self._waitset = lib.dds_create_waitset(participant.handle)
    lib.dds_waitset_attach(self._waitset, condition, 0)
    self._memory = ctypes.create_string_buffer(layout.itemsize)
    self._pointer = c_void_p(ctypes.addressof(self._memory))
    self._info = _SampleInfo()

  def take(self) -> bytes | None:
    """The oldest message that waits, or none."""
    pointer = c_void_p(self._pointer.value)
    count = _library().dds_take(self._handle, byref(pointer), byref(self._info), 1, 1)
    if _checked(count, "receive a message") == 0 or not self._info.valid_data:
      return None
    return self._memory.raw

  def wait(self, seconds: float) -> bool:
    """Wait for a message; false if none came in time."""
    ready = _library().dds_waitset_wait(self._waitset, None, 0, int(seconds * 1e9))
    return _checked(ready, "wait for messages") > 0
