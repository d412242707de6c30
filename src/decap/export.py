"""From a trained policy to a bundle: the network as ONNX and back, its description.

The ONNX graph is built by hand: a normaliser and an MLP are Sub, Div, Gemm and an
activation, so neither a tracer nor mjlab is needed, and a checkpoint alone is enough.
mjlab's way, torch.onnx.export of rsl_rl's model, gives the same numbers while walking,
but not what stops the gait's clock; it takes one robot at a time, 25 times as long, and
puts the weights into a second file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional

from decap import collective
from decap.deploy import unitree_format
from decap.deploy.bundle import write_bundle
from decap.deploy.mjlab_format import metadata
from decap.errors import UserError
from decap.provenance import versions
from decap.rl.checkpoint_files import WEIGHTS_FILE
from decap.rl.modules import deterministic_weights

if TYPE_CHECKING:
  from decap.rl.config import AgentCfg
  from decap.runs import RunSpec

OPSET = 17
IR_VERSION = 8  # What runtimes from 2022 on can read.

ACTIVATIONS = {
  "elu": "Elu",
  "relu": "Relu",
  "selu": "Selu",
  "sigmoid": "Sigmoid",
  "softplus": "Softplus",
  "tanh": "Tanh",
}
"""rsl_rl's activation → ONNX operator."""

MEANINGS = {
  "base_ang_vel": "angular velocity of the base in its own frame, rad/s",
  "projected_gravity": "unit vector of gravity in the frame of the base",
  "generated_commands": "commanded vx, vy in m/s and yaw rate in rad/s",
  "joint_pos_rel": "joint positions minus default pose, rad, in joint order",
  "joint_vel_rel": "joint velocities, rad/s, in joint order",
  "last_action": "previous action, before scaling, in joint order",
  "gait_clock": "sin and cos of 2π times the gait's phase, which is 0 when the policy "
  "starts and grows by control_dt_s / period_s per step; the network itself takes zeros "
  "while the norm of the command is at most command_threshold",
}
"""What the terms that robots know mean; others are described by their docstring."""


RUN = ("overrides", "limits", "blind", "init_sha256")
"""What a bundle tells of its run's options; places of files stay where they are."""

CLOCK_PARAMS = ("period_s", "command_threshold")
"""What a robot has to know of a gait's clock."""


def export_checkpoint(
  checkpoint: Path, folder: Path, weights: bool = False
) -> dict[str, Any]:
  """Write the policy of a checkpoint as a bundle; returns its description.

  With `weights`, networks and description go beside it, to continue from: without
  state of optimiser and environment, and the critic's layers in half precision, since
  they are where it starts to learn from, and no more.
  """
  from decap.rl import checkpoint as checkpoints

  state = checkpoints.load(checkpoint)
  description = state["policy"]
  network = description["network"]
  onnx = actor_to_onnx(
    state["actor_state_dict"],
    network["activation"],
    network["normalizer_eps"],
    description["observations"],
  )
  info = {**description, "iteration": state["iter"]}
  run = state.get("run", {})
  info["run"] = state["run"] = {key: run[key] for key in RUN if key in run}
  others = {}
  if unitree_format.is_expressible(info):
    others[unitree_format.FILE] = unitree_format.deploy_yaml(info)
  write_bundle(folder, with_metadata(onnx, info), info, others)
  if weights:
    kept = ("actor_state_dict", "critic_state_dict", "iter", "policy", "run")
    state["critic_state_dict"] = {
      name: value.half() if name.startswith("mlp.") else value
      for name, value in state["critic_state_dict"].items()
    }
    checkpoints.save(folder / WEIGHTS_FILE, {k: state[k] for k in kept if k in state})
  return info


def with_metadata(onnx: bytes, info: dict[str, Any]) -> bytes:
  """The ONNX model with mjlab's properties in it."""
  from onnx import helper, load_from_string

  model = load_from_string(onnx)
  helper.set_model_props(model, metadata(info))
  return model.SerializeToString()


def actor_to_onnx(
  weights: dict[str, torch.Tensor],
  activation: str,
  normalizer_eps: float,
  observations: Sequence[Mapping[str, Any]] = (),
) -> bytes:
  """The deterministic policy as ONNX: obs [N, D] → actions [N, J].

  Args:
    weights: State dict of the actor, with rsl_rl's names.
    activation: rsl_rl's name of the activation between layers.
    normalizer_eps: What the normaliser adds to the standard deviation.
    observations: What policy.json says of the terms. Where a clock is among them, the
      network stops it itself when told to stand: a robot may leave it running.
  """
  from onnx import TensorProto, checker, helper, numpy_helper

  weights = deterministic_weights(weights)
  for name, value in weights.items():
    if not bool(value.isfinite().all()):
      raise UserError(f"A policy that diverged is not exported: {name} is not finite.")
  if activation not in ACTIVATIONS:
    raise UserError(
      f"Activation '{activation}' cannot be exported "
      f"(there are {', '.join(ACTIVATIONS)})."
    )
  nodes, constants = [], []

  def constant(name: str, value: torch.Tensor) -> str:
    array = np.ascontiguousarray(value.detach().cpu().numpy())
    array = array.astype(np.int64 if array.dtype == np.int64 else np.float32)
    constants.append(numpy_helper.from_array(array, name))
    return name

  def add(operator: str, *inputs: str, **attributes) -> str:
    output = f"{operator.lower()}_{len(nodes)}"
    nodes.append(helper.make_node(operator, inputs, [output], **attributes))
    return output

  value = "obs"
  if gate := _clock_gate(observations):
    command, keeps, threshold = gate
    asked = add("Gather", value, constant("command_columns", command), axis=1)
    asked = add("ReduceL2", asked, axes=[1], keepdims=1)
    moves = add("Greater", asked, constant("command_threshold", threshold))
    moves = add("Cast", moves, to=TensorProto.FLOAT)
    ticks = add("Mul", moves, constant("clock_columns", 1.0 - keeps))
    value = add("Mul", value, add("Add", ticks, constant("other_columns", keeps)))
  if "obs_normalizer._mean" in weights:
    mean, std = (weights[f"obs_normalizer.{name}"] for name in ("_mean", "_std"))
    value = add("Sub", value, constant("obs_mean", mean))
    value = add("Div", value, constant("obs_std", std + normalizer_eps))
  layers = sorted(int(k.split(".")[1]) for k in weights if k.endswith(".weight"))
  for layer in layers:
    weight = constant(f"w{layer}", weights[f"mlp.{layer}.weight"])
    bias = constant(f"b{layer}", weights[f"mlp.{layer}.bias"])
    value = add("Gemm", value, weight, bias, transB=1)
    if layer != layers[-1]:
      value = add(ACTIVATIONS[activation], value)
  nodes[-1].output[0] = "actions"
  sizes = {
    "obs": weights[f"mlp.{layers[0]}.weight"].shape[1],
    "actions": weights[f"mlp.{layers[-1]}.weight"].shape[0],
  }
  ends = {
    name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", size])
    for name, size in sizes.items()
  }
  graph = helper.make_graph(
    nodes, "policy", [ends["obs"]], [ends["actions"]], constants
  )
  model = helper.make_model(
    graph,
    producer_name="decap",
    opset_imports=[helper.make_opsetid("", OPSET)],
    ir_version=IR_VERSION,
  )
  checker.check_model(model)
  return model.SerializeToString()


def _clock_gate(
  observations: Sequence[Mapping[str, Any]],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
  """Columns of the command, all columns but the clock's [1, D], and the threshold."""
  columns, start = {}, 0
  for term in observations:
    columns[term["name"]] = torch.arange(start, start + term["dim"])
    start += term["dim"]
  if "clock" not in columns or "command" not in columns:
    return None
  keeps = torch.ones(1, start)
  keeps[0, columns["clock"]] = 0.0
  (clock,) = (term for term in observations if term["name"] == "clock")
  return columns["command"], keeps, torch.tensor([clock["command_threshold"]])


# ONNX runtimes for GPUs are heavy and copy through the host; a policy is a few
# well-known operators on an observation, which torch has, too.

_FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
  "Sub": torch.sub,
  "Add": torch.add,
  "Div": torch.div,
  "Mul": torch.mul,
  "Greater": torch.gt,
  **{operator: getattr(functional, name) for name, operator in ACTIVATIONS.items()},
}
"""Operators of ONNX without attributes, as torch has them."""


def torch_from_onnx(
  onnx: bytes, device: str = "cpu"
) -> Callable[[torch.Tensor], torch.Tensor]:
  """The network of an ONNX file, node by node: observations [N, D] → actions [N, J]."""
  from onnx import helper, load_model_from_string, numpy_helper

  graph = load_model_from_string(onnx).graph
  constants = {
    c.name: torch.from_numpy(np.array(numpy_helper.to_array(c))).to(device)
    for c in graph.initializer
  }
  nodes = []
  for node in graph.node:
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    function = _function(node.op_type, attributes)
    nodes.append((function, list(node.input), node.output[0]))

  def network(obs: torch.Tensor) -> torch.Tensor:
    values = {**constants, graph.input[0].name: obs}
    for function, inputs, output in nodes:
      values[output] = function(*(values[name] for name in inputs))
    return values[graph.output[0].name]

  return network


def _function(operator: str, attributes: dict[str, Any]) -> Callable[..., torch.Tensor]:
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


def describe(env: Any, spec: RunSpec, agent: AgentCfg) -> dict[str, Any]:
  """Everything in ``policy.json`` that is known before training, at full precision.

  Args:
    env: The ConstrainedEnv that the policy is trained in.
  """
  action = joint_action(env)
  joints = list(action.target_names)
  return {
    "task": spec.task,
    "method": spec.method,
    "seed": spec.seed,
    "samples_per_iteration": env.num_envs * agent.num_steps_per_env * collective.size(),
    "robot": _robot(env),
    "joint_names": joints,
    "default_joint_pos": _per_joint(action.offset, len(joints)),
    **_gains(env, joints),
    "action_scale": _per_joint(action.scale, len(joints)),
    "observations": _observations(env),
    "control_dt_s": env.step_dt,
    "physics_dt_s": env.physics_dt,
    "command_ranges": _command_ranges(env),
    "constraints": _constraints(env),
    "network": {
      "hidden_dims": list(agent.policy.hidden_dims),
      "activation": agent.policy.activation,
      "normalizer_eps": 1e-2,
    },
    "versions": versions(),
  }


def joint_action(env: Any) -> Any:
  """The one joint-position action that moves the robot."""
  from mjlab.envs.mdp.actions import JointPositionAction

  terms = [env.action_manager.get_term(n) for n in env.action_manager.active_terms]
  if len(terms) != 1 or not isinstance(terms[0], JointPositionAction):
    raise UserError(
      "The task must have one joint-position action, not "
      f"{[type(term).__name__ for term in terms]}."
    )
  return terms[0]


def _per_joint(value: Any, num_joints: int) -> list[float]:
  if isinstance(value, torch.Tensor):
    return value[0].double().cpu().tolist()
  return [float(value)] * num_joints


def _robot(env: Any) -> dict[str, Any]:
  entity = env.scene[env.cfg.constrained_entity]
  mass = float(env.sim.mj_model.body_subtreemass[entity.indexing.root_body_id])
  return {
    "name": entity.spec.modelname,
    "dof": len(entity.joint_names),
    "mass_kg": mass,
  }


def _gains(env: Any, joints: list[str]) -> dict[str, list[float]]:
  """Gains and torque limits by joint; the actuators' own order is another one."""
  model = env.sim.mj_model
  actuators = {}
  for index in range(model.nu):
    joint = model.joint(model.actuator_trnid[index, 0]).name.split("/")[-1]
    actuators[joint] = index
  ids = [actuators[name] for name in joints]
  return {
    "stiffness": model.actuator_gainprm[ids, 0].tolist(),
    "damping": (-model.actuator_biasprm[ids, 2]).tolist(),
    "effort_limit": model.actuator_forcerange[ids, 1].tolist(),
  }


def _observations(env: Any) -> list[dict[str, Any]]:
  """Terms of the actor's observation, as the policy expects them without noise."""
  manager = env.observation_manager
  described = []
  for name, shape in zip(
    manager.active_terms["actor"], manager.group_obs_term_dim["actor"], strict=True
  ):
    cfg = manager.get_term_cfg("actor", name)
    if cfg.history_length > 1:
      raise UserError(f"Observation '{name}' has a history, which bundles cannot say.")
    dim = int(np.prod(shape))
    one = 1.0 if cfg.scale is None else cfg.scale
    scale = torch.as_tensor(one, dtype=torch.float64, device="cpu").expand(dim)
    func = getattr(cfg.func, "__name__", type(cfg.func).__name__)
    doc = (cfg.func.__doc__ or name).strip().splitlines()[0]
    described.append(
      {
        "name": name,
        "dim": dim,
        "scale": scale.tolist(),
        "clip": list(cfg.clip) if cfg.clip is not None else None,
        "function": func,
        "meaning": MEANINGS.get(name) or MEANINGS.get(func, doc),
        **{k: cfg.params[k] for k in CLOCK_PARAMS if func == "gait_clock"},
      }
    )
  return described


def _command_ranges(env: Any) -> dict[str, dict[str, list[float]]]:
  found: dict[str, dict[str, list[float]]] = {}
  for name, cfg in env.cfg.commands.items():
    ranges = getattr(cfg, "ranges", None)
    fields = vars(ranges) if ranges is not None else {}
    found[name] = {
      key: [float(v) for v in value] for key, value in fields.items() if value
    }
  return found


def _constraints(env: Any) -> dict[str, Any]:
  """Limits, groups and rule that the policy was trained with."""
  from decap.constraints.groups import resolve_groups

  cfg, manager = env.cfg, env.constraint_manager
  joints = list(env.scene[cfg.constrained_entity].joint_names)
  resolved = resolve_groups(cfg.groups, joints) if cfg.groups else {}
  return {
    "groups": {
      name: {"joint_names": [joints[i] for i in ids], "p_max": cfg.groups[name].p_max}
      for name, ids in resolved.items()
    },
    "limits": {name: term.limits for name, term in manager.cfg.items()},
    "rule": cfg.termination.rule,
    "rho": cfg.termination.rho,
    "kappa": cfg.termination.kappa,
    "barrier": cfg.termination.barrier,
  }
