"""The constants of an ONNX file, read without the package onnx.

A robot's computer has onnxruntime, which runs a network with NaN in its weights as
readily as any other. ONNX is a protobuf; finding the numbers takes the four fields below.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

# Field numbers of ModelProto, GraphProto and TensorProto.
_GRAPH, _INITIALIZER = 7, 5
_FLOATS, _DATA_TYPE, _NAME, _RAW, _DOUBLES = 4, 2, 8, 9, 10
_TYPES = {1: "<f4", 10: "<f2", 11: "<f8"}
"""TensorProto's floating-point types, as numpy names them."""


def not_finite(onnx: bytes) -> list[str]:
  """Names of the constants of a network that hold NaN or infinity.

  Raises:
    ValueError: The bytes are not a protobuf.
  """
  found = []
  for field, graph in _fields(onnx):
    if field == _GRAPH and isinstance(graph, bytes):
      for inner, tensor in _fields(graph):
        if inner == _INITIALIZER and isinstance(tensor, bytes):
          name, values = _tensor(tensor)
          if not np.isfinite(values).all():
            found.append(name)
  return found


def _tensor(message: bytes) -> tuple[str, np.ndarray]:
  """Name and numbers of a constant; none of other types than floating point."""
  fields = dict(_fields(message))
  name = fields.get(_NAME, b"?")
  kind = _TYPES.get(fields.get(_DATA_TYPE))  # ty: ignore[invalid-argument-type]
  if kind is None:
    return str(name), np.zeros(0)
  raw = fields.get(_RAW) or fields.get(_FLOATS) or fields.get(_DOUBLES) or b""
  assert isinstance(name, bytes)
  return name.decode(), np.frombuffer(raw, kind)  # ty: ignore[no-matching-overload]


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
  """(number, value) of each field of a protobuf message."""
  position = 0
  while position < len(message):
    key, position = _varint(message, position)
    number, wire = key >> 3, key & 7
    if wire == 0:
      value, position = _varint(message, position)
      yield number, value
      continue
    size = {1: 8, 5: 4}.get(wire)
    if wire == 2:
      size, position = _varint(message, position)
    if size is None or position + size > len(message):
      raise ValueError("not a protobuf")
    yield number, message[position : position + size]
    position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
  """A number of variable length, and where it ends."""
  value = shift = 0
  while position < len(message):
    byte = message[position]
    position += 1
    value |= (byte & 0x7F) << shift
    if byte < 0x80:
      return value, position
    shift += 7
  raise ValueError("not a protobuf")
