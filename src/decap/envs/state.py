"""Saves and restores everything an environment needs to go on where it stopped."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from mjlab.utils.buffers import CircularBuffer

from decap import mjlab_private

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnv

_MANAGERS = (
  "action_manager",
  "command_manager",
  "constraint_manager",
  "curriculum_manager",
  "event_manager",
  "metrics_manager",
  "observation_manager",
  "reward_manager",
  "termination_manager",
)
_OPAQUE_MODULES = ("mujoco", "warp", "numpy", "torch", "mujoco_warp", "viser", "typing")
# Back references, fixed indices, and what is derived from other state.
_OPAQUE_ATTRIBUTES = {
  "cfg",
  "spec",
  "indexing",
  "data_view",
  *mjlab_private.NOT_STATE,
}


def state_dict(env: ConstrainedEnv) -> dict[str, Any]:
  """Tensors by path, the simulation's state and the counters."""
  tensors, rings = _parts(env)
  return {
    "tensors": {path: t.detach().cpu().clone() for path, t in tensors.items()},
    "pointers": {path: mjlab_private.ring_pointer(r) for path, r in rings.items()},
    "model": {name: _field(env, name).cpu().clone() for name in _fields(env)},
    "sim": env.sim.state_dict(),
    "counters": {
      "common_step_counter": env.common_step_counter,
      "sim_step_counter": mjlab_private.substeps_done(env),
    },
  }


def load_state_dict(env: ConstrainedEnv, saved: dict[str, Any]) -> None:
  """Writes a saved state into an environment built from the same config."""
  tensors, rings = _parts(env)
  values = saved["tensors"]
  if tensors.keys() != values.keys():
    odd = sorted(tensors.keys() ^ values.keys())
    raise ValueError(
      f"the saved environment has other state than this one: {', '.join(odd[:5])}"
    )
  for path, tensor in tensors.items():
    value = values[path]
    if value.shape != tensor.shape:
      raise ValueError(
        f"the saved environment has {path} of shape {tuple(value.shape)}, "
        f"this one {tuple(tensor.shape)}"
      )
    tensor.copy_(value)
  for path, ring in rings.items():
    mjlab_private.set_ring_pointer(ring, saved["pointers"][path])
  for name, value in saved["model"].items():
    _field(env, name)[:] = value.to(env.device)
  env.common_step_counter = saved["counters"]["common_step_counter"]
  mjlab_private.set_substeps_done(env, saved["counters"]["sim_step_counter"])
  env.sim.load_state_dict(saved["sim"])
  for sensor in env.scene.sensors.values():
    mjlab_private.invalidate(sensor)
  mjlab_private.forget_observations(env.observation_manager)


def _fields(env: ConstrainedEnv) -> list[str]:
  return sorted(env.sim.expanded_fields)


def _field(env: ConstrainedEnv, name: str) -> torch.Tensor:
  return getattr(env.sim.model, name)[:]


def _parts(
  env: ConstrainedEnv,
) -> tuple[dict[str, torch.Tensor], dict[str, CircularBuffer]]:
  """All state tensors of managers, entities and sensors by path, and ring buffers."""
  seen: set[int] = {id(env), id(env.sim), id(env.scene)}
  roots = {name: getattr(env, name) for name in _MANAGERS}
  roots |= {f"entity/{name}": entity for name, entity in env.scene.entities.items()}
  roots |= {f"sensor/{name}": sensor for name, sensor in env.scene.sensors.items()}
  tensors = {"episode_length_buf": env.episode_length_buf}
  rings: dict[str, CircularBuffer] = {}
  for name, root in roots.items():
    for path, part in _walk(root, name, seen):
      if isinstance(part, torch.Tensor):
        tensors[path] = part
      else:
        rings[path] = part
  return tensors, rings


def _walk(
  thing: Any, path: str, seen: set[int]
) -> Iterator[tuple[str, torch.Tensor | CircularBuffer]]:
  if id(thing) in seen:
    return
  if isinstance(thing, torch.Tensor):
    seen.add(id(thing))
    yield path, thing
    return
  children = _children(thing)
  if children is None:
    return
  seen.add(id(thing))
  if isinstance(thing, CircularBuffer):
    yield path, thing
  for key, child in children:
    yield from _walk(child, f"{path}/{key}", seen)


def _children(thing: Any) -> Iterator[tuple[Any, Any]] | None:
  if isinstance(thing, dict):
    return iter(list(thing.items()))
  if isinstance(thing, (list, tuple)):
    return iter(list(enumerate(thing)))
  if isinstance(thing, (type, types.ModuleType, types.FunctionType, types.MethodType)):
    return None
  module = type(thing).__module__
  if module.split(".")[0] in _OPAQUE_MODULES or module.startswith("mjlab.sim"):
    return None
  if not hasattr(thing, "__dict__"):
    return None
  return iter([(k, v) for k, v in vars(thing).items() if k not in _OPAQUE_ATTRIBUTES])
