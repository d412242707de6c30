"""Policies in ONNX as torch modules: they run on a GPU, without a runtime of their own.

ONNX runtimes for GPUs are heavy and copy through the host; a policy is a few well-known
operators on an observation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from decap.errors import UserError

_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
  "Sub": torch.sub,
  "Add": torch.add,
  "Div": torch.div,
  "Mul": torch.mul,
  "Greater": torch.gt,
  "Elu": nn.functional.elu,
  "Relu": torch.relu,
  "Selu": torch.selu,
  "Sigmoid": torch.sigmoid,
  "Softplus": nn.functional.softplus,
  "Tanh": torch.tanh,
}
"""Operators without attributes."""


def torch_from_onnx(onnx: bytes) -> nn.Module:
  """The network of an ONNX file: observations [N, D] → actions [N, J]."""
  from onnx import load_model_from_string

  return OnnxNetwork(load_model_from_string(onnx).graph)


class OnnxNetwork(nn.Module):
  """Runs a graph node by node; constants are buffers, so that it moves to a device."""

  def __init__(self, graph: Any) -> None:
    from onnx import helper, numpy_helper

    super().__init__()
    self._input, self._output = graph.input[0].name, graph.output[0].name
    self._nodes: list[tuple[Callable[..., Tensor], list[str], str]] = []
    for constant in graph.initializer:
      value = torch.from_numpy(np.array(numpy_helper.to_array(constant)))
      self.register_buffer(f"c_{constant.name}", value)
    known = {self._input, *(c.name for c in graph.initializer)}
    for node in graph.node:
      attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
      missing = [name for name in node.input if name not in known]
      if missing:
        raise UserError(f"The ONNX policy uses '{missing[0]}' before it is computed.")
      function = _function(node.op_type, attributes)
      self._nodes.append((function, list(node.input), node.output[0]))
      known.add(node.output[0])

  def forward(self, obs: Tensor) -> Tensor:
    values = {name.removeprefix("c_"): value for name, value in self.named_buffers()}
    values[self._input] = obs
    for function, inputs, output in self._nodes:
      values[output] = function(*(values[name] for name in inputs))
    return values[self._output]


def _function(operator: str, attributes: dict[str, Any]) -> Callable[..., Tensor]:
  if operator in _FUNCTIONS and not attributes:
    return _FUNCTIONS[operator]
  if operator == "Gemm" and set(attributes) <= {"transB"}:
    turned = attributes.get("transB", 0)
    return lambda x, weight, bias: x @ (weight.T if turned else weight) + bias
  if operator == "Gather" and attributes.get("axis") == 1:
    return lambda x, columns: x.index_select(1, columns)
  if operator == "ReduceL2" and attributes.get("axes") == [1]:
    return lambda x: x.norm(dim=1, keepdim=True)
  if operator == "Cast":
    return lambda x: x.float()
  known = ", ".join((*_FUNCTIONS, "Gemm", "Gather", "ReduceL2", "Cast"))
  raise UserError(f"The ONNX policy has the operator {operator} (known: {known}).")
