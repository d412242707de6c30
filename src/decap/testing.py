"""Checks that users may run on their own environments and algorithms."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_WAITING = {
  "aten.nonzero.default": "nonzero",
  "aten._local_scalar_dense.default": ".item() or a Python branch on a tensor",
  "aten.masked_select.default": "masked_select",
  "aten._unique2.default": "unique",
  "aten.normal.Tensor_Tensor": "normal with tensor parameters",
  "aten.normal.Tensor_float": "normal with tensor parameters",
  "aten.normal.float_Tensor": "normal with tensor parameters",
  "aten.lift_fresh.default": "a tensor made from host values",
  # These read their result back below what a mode sees.
  "aten.equal.default": "equal",
  "aten.allclose.default": "allclose",
  "aten.bincount.default": "bincount",
  "aten.repeat_interleave.Tensor": "repeat_interleave by a tensor",
  "aten.unique_consecutive.default": "unique_consecutive",
  "aten.unique_dim.default": "unique",
}
_COPIED = {"aten._to_copy.default": 0, "aten.copy_.default": 1}
"""Operators that copy, and which argument."""
_INDEXED = ("aten.index.Tensor", "aten.index_put_.default", "aten.index_put.default")


class _Waits(TorchDispatchMode):
  def __init__(self) -> None:
    super().__init__()
    self.found: list[str] = []

  def __torch_dispatch__(
    self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
  ) -> Any:
    del types
    name = str(func)
    if name == "aten.lift_fresh.default" and args[0].dim() == 0:
      pass  # x[:] = c does that on a CPU, and fills on a GPU.
    elif name in _WAITING:
      self.found.append(f"{_WAITING[name]} in {_caller()}")
    elif name in _INDEXED and any(
      i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]
    ):
      self.found.append(f"boolean indexing in {_caller()}")
    out = func(*args, **(kwargs or {}))
    if name in _COPIED and args[_COPIED[name]].device.type != out.device.type:
      self.found.append(f"a copy between devices in {_caller()}")
    return out


class _Reads(TorchFunctionMode):
  """What copies to the host, and on a CPU is no operator at all."""

  def __init__(self, found: list[str]) -> None:
    super().__init__()
    self._found = found

  def __torch_function__(
    self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
  ) -> Any:
    del types
    if func in (torch.Tensor.cpu, torch.Tensor.tolist):
      self._found.append(f".{func.__name__}() in {_caller()}")
    return func(*args, **(kwargs or {}))


def _caller() -> str:
  """The innermost frame outside torch and this file."""
  frame = sys._getframe(1)
  while frame.f_back is not None:
    file = frame.f_code.co_filename
    if file != __file__ and "/torch/" not in file:
      break
    frame = frame.f_back
  return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def waits(call: Callable[[], Any]) -> list[str]:
  """What in ``call`` would make the host wait for a GPU; empty if nothing does.

  It watches the operators, so it works on a CPU too; scalars written through index
  tensors escape it there.
  """
  with _Waits() as mode, _Reads(mode.found):
    call()
  return mode.found
