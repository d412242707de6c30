"""Policies to evaluate: a run, a checkpoint, a bundle, or the action zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from decap.errors import UserError

STAND = "stand"
"""Name of the policy that always returns the action zero: the default pose."""

Act = Callable[[Mapping[str, torch.Tensor]], torch.Tensor]
"""From observation groups to actions [B, J]."""

_COMPARED = ("joint_names", "default_joint_pos", "action_scale", "stiffness", "damping")


@dataclass
class Policy:
  """A deterministic policy and where it comes from."""

  act: Act | None
  """None: the action zero."""
  info: dict[str, Any]
  """`source`, `name`, `method`, `seed`, `task`, `iteration` and `options`: what a
  metrics file says about it."""
  description: dict[str, Any] | None = None
  """What a bundle says of robot and observations; None for the action zero."""

  def check(self, expected: Mapping[str, Any]) -> None:
    """Refuse a robot or an observation layout other than the environment's.

    Args:
      expected: The environment's description, of the same form as a bundle's.
    """
    if self.description is None:
      return
    differences = describe_differences(self.description, expected)
    if differences:
      raise UserError(
        f"{self.info['source']} was not made for this task: {'; '.join(differences)}."
      )


def load_policy(source: str, device: str = "cpu") -> Policy:
  """Load `stand`, a run folder, a checkpoint or a bundle folder."""
  from decap.deploy.bundle import JSON_FILE
  from decap.rl import checkpoint_files

  path = Path(source)
  if source == STAND:
    info = {"name": STAND, "source": STAND, "method": STAND, "seed": None}
    return Policy(None, {**info, "task": None, "iteration": None, "options": {}})
  if path.is_file():
    return _from_checkpoint(path, source, device)
  if not path.is_dir():
    raise UserError(
      f"There is no run folder, checkpoint or bundle {source} (and it is not '{STAND}')."
    )
  if (path / JSON_FILE).is_file():
    return _from_bundle(path, source, device)
  checkpoints = checkpoint_files.list_checkpoints(path)
  if checkpoints:
    return _from_checkpoint(checkpoints[-1][1], source, device)
  if (path / "policy" / JSON_FILE).is_file():
    return _from_bundle(path / "policy", source, device)
  raise UserError(
    f"{source} has no policy: neither checkpoints/model_*.pt nor policy/{JSON_FILE}."
  )


def describe_differences(
  found: Mapping[str, Any], expected: Mapping[str, Any]
) -> list[str]:
  """What differs between two descriptions of robot, action and observation."""
  differences = []
  joints, wanted = list(found["joint_names"]), list(expected["joint_names"])
  if joints != wanted:
    odd = sorted(set(joints) ^ set(wanted))
    what = f" ({', '.join(odd)})" if odd else " in another order"
    differences.append(f"its robot has {len(joints)} joints, not {len(wanted)}{what}")
  else:
    for name in _COMPARED[1:]:
      differences += _value_differences(name, joints, found[name], expected[name])
  if not math.isclose(found["control_dt_s"], expected["control_dt_s"], rel_tol=1e-6):
    differences.append(
      f"control_dt_s is {found['control_dt_s']}, not {expected['control_dt_s']}"
    )
  return differences + _observation_differences(
    found["observations"], expected["observations"]
  )


def torch_from_onnx(onnx: bytes) -> nn.Module:
  """A chain of normaliser, linear layers and activations as a torch module.

  ONNX runtimes for GPUs are heavy and copy through the host; a policy is a short chain
  of well-known operators.
  """
  from onnx import load_model_from_string, numpy_helper

  graph = load_model_from_string(onnx).graph
  constants = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
  layers = []
  flowing = graph.input[0].name
  for node in graph.node:
    if node.input[0] != flowing:
      raise UserError(f"The ONNX policy is not a chain: {node.op_type} branches off.")
    layers.append(_layer(node, [constants[name] for name in node.input[1:]]))
    flowing = node.output[0]
  return nn.Sequential(*layers)


# Sources.


def _from_checkpoint(path: Path, source: str, device: str) -> Policy:
  from decap.rl import checkpoint
  from decap.rl.inference import policy_from_state

  state = checkpoint.load(path)
  description = {**state["policy"], "iteration": state["iter"]}
  run = state.get("run", {})
  return Policy(
    policy_from_state(state, device), _info(source, description, run), description
  )


def _from_bundle(path: Path, source: str, device: str) -> Policy:
  from decap.deploy.bundle import ONNX_FILE, load_bundle

  description = load_bundle(path).info
  network = torch_from_onnx((path / ONNX_FILE).read_bytes()).to(device).eval()

  def act(obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return network(obs["actor"])

  return Policy(act, _info(source, description, {}), description)


def _info(
  source: str, description: Mapping[str, Any], run: Mapping[str, Any]
) -> dict[str, Any]:
  return {
    "name": Path(source).name or source,
    "source": source,
    "method": description["method"],
    "seed": description.get("seed"),
    "task": description["task"],
    "iteration": description.get("iteration"),
    "options": _options(description, run),
  }


def _options(description: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, str]:
  """What sets a run apart from its method's defaults, for the label of its row."""
  options = {}
  constraints = description["constraints"]
  if str(description["method"]).startswith("decap"):
    defaults = {"rho": ("ρ", 0.7), "kappa": ("κ", 2.0)}
    for key, (symbol, default) in defaults.items():
      if constraints.get(key, default) != default:
        options[symbol] = f"{constraints[key]:g}"
  tokens = iter(run.get("overrides", ()))
  for token in tokens:
    name, _, value = token.removeprefix("--").partition("=")
    value = value or next(tokens, "")
    if not name.startswith("env.termination."):
      options[name.split(".")[-1]] = value
  if run.get("blind"):
    options["blind"] = "yes"
  if run.get("limits"):
    options["limits"] = "own"
  return options


# Comparison with the environment.


def _value_differences(
  name: str, joints: list[str], found: list[float], expected: list[float]
) -> list[str]:
  for joint, a, b in zip(joints, found, expected, strict=True):
    if not math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-6):
      return [f"{name} of {joint} is {a:g}, not {b:g}"]
  return []


def _observation_differences(
  found: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> list[str]:
  def shape(terms: list[dict[str, Any]]) -> str:
    return ", ".join(f"{term['name']} {term['dim']}" for term in terms)

  if shape(found) != shape(expected):
    return [f"it observes [{shape(found)}], not [{shape(expected)}]"]
  differences = []
  for mine, yours in zip(found, expected, strict=True):
    for key in ("scale", "clip"):
      if not _same(mine[key], yours[key]):
        differences.append(
          f"{key} of observation {mine['name']} is {mine[key]}, not {yours[key]}"
        )
  return differences


def _same(a: Any, b: Any) -> bool:
  return (a is None) == (b is None) and (a is None or np.allclose(a, b))


# ONNX.


class _Affine(nn.Module):
  """An element-wise operation with a constant, as normalisers have."""

  value: torch.Tensor

  def __init__(self, operator: str, value: np.ndarray) -> None:
    super().__init__()
    self._operator = operator  # ty: ignore[unresolved-attribute]
    self.register_buffer("value", torch.from_numpy(value.copy()))

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    return getattr(torch, self._operator)(x, self.value)


_ELEMENTWISE = {"Sub": "sub", "Add": "add", "Div": "div", "Mul": "mul"}
_ACTIVATIONS: dict[str, type[nn.Module]] = {
  "Elu": nn.ELU,
  "Relu": nn.ReLU,
  "Selu": nn.SELU,
  "Sigmoid": nn.Sigmoid,
  "Softplus": nn.Softplus,
  "Tanh": nn.Tanh,
}


def _layer(node: Any, constants: list[np.ndarray]) -> nn.Module:
  if node.op_type in _ELEMENTWISE:
    return _Affine(_ELEMENTWISE[node.op_type], constants[0])
  if node.op_type in _ACTIVATIONS and not node.attribute:
    return _ACTIVATIONS[node.op_type]()
  if node.op_type == "Gemm":
    attributes = {a.name: a for a in node.attribute}
    transposed = "transB" in attributes and attributes["transB"].i
    weight = constants[0] if transposed else constants[0].T
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
      layer.weight.copy_(torch.from_numpy(weight.copy()))
      layer.bias.copy_(torch.from_numpy(constants[1].copy()))
    return layer
  known = ", ".join((*_ELEMENTWISE, *_ACTIVATIONS, "Gemm"))
  raise UserError(f"The ONNX policy has the operator {node.op_type} (known: {known}).")
