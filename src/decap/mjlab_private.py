"""Every private name of mjlab that we use, and what for.

mjlab resets by index and computes term by term; a control step that never waits needs
the buffers behind that, which have no public names. Functions reach them, `NOT_STATE`
lists those that a checkpoint leaves out, and `HOOKS` what our classes share with the
mjlab classes that they inherit from: only these names stand in other files, too. Another
release of mjlab may rename any of them; `tests/test_mjlab_private.py` says which.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch

# Nothing of mjlab is imported here: its plugin, which is ours, uses this file while
# mjlab is itself being imported.

##
# Base classes.
##

HOOKS: dict[str, dict[str, str]] = {
  "mjlab.envs.manager_based_rl_env:ManagerBasedRlEnv": {
    "_reset_idx": "resets by index, which ours refuses",
  },
  "mjlab.managers.manager_base:ManagerBase": {
    "_env": "the environment of a manager",
    "_prepare_terms": "builds a manager's terms",
  },
  "mjlab.managers.command_manager:CommandTerm": {
    "_env": "the environment of a command",
    "_update_command": "what a command becomes in every step",
    "_update_metrics": "how well a command is followed",
  },
  "mjlab.sim.sim:Simulation": {
    "_finish_init": "the end of a simulation's constructor, when there is a model",
  },
}
"""mjlab's class → its private members that our subclasses override or read of
themselves, and what each is."""

##
# Terms.
##


def event_terms(manager: Any, mode: str) -> list[Any]:
  """Configs of a mode's events, in the order of their timers and counters."""
  return manager._mode_term_cfgs.get(mode, [])


def metric_terms(manager: Any) -> list[Any]:
  """Configs of the metrics, in the order of their names."""
  return manager._term_cfgs


def observation_terms(manager: Any, group: str) -> list[Any]:
  """Configs of a group's observations; asked for in every step."""
  return manager._group_obs_term_cfgs[group]


def stateful_terms(manager: Any) -> list[Any]:
  """Configs of terms that are objects, which have something to reset."""
  if hasattr(manager, "_mode_class_term_cfgs"):  # Events.
    groups = manager._mode_class_term_cfgs.values()
  elif hasattr(manager, "_group_obs_class_term_cfgs"):  # Observations.
    groups = manager._group_obs_class_term_cfgs.values()
  else:
    groups = [getattr(manager, "_class_term_cfgs", [])]
  return [cfg for group in groups for cfg in group]


def resolve_term(manager: Any, name: str, cfg: Any) -> None:
  """What mjlab's managers do with every term: find its entity, make its object."""
  manager._resolve_common_term_cfg(name, cfg)


##
# Buffers that a reset by mask writes.
##


def episode_dones(manager: Any) -> dict[str, torch.Tensor]:
  """Termination → whether it ended an episode in this step; may be replaced. # [B]"""
  return manager._term_dones


def event_timers(manager: Any) -> list[torch.Tensor]:
  """Time that is left of each interval event. # [B], or [1] where all share it"""
  return manager._interval_term_time_left


def reset_event_history(manager: Any, index: int) -> tuple[torch.Tensor, torch.Tensor]:
  """Step at which a reset event ran last, and whether it ever did. # [B], [B]"""
  last = manager._reset_term_last_triggered_step_id[index]
  return last, manager._reset_term_last_triggered_once[index]


def observation_noise_models(manager: Any) -> Iterator[tuple[str, Any]]:
  """Noise models with a state, by observation."""
  for models in manager._group_obs_class_instances.values():
    yield from models.items()


def observation_buffers(manager: Any) -> Iterator[tuple[str, Any]]:
  """Delay and history buffers, by observation."""
  for buffers in (
    manager._group_obs_term_delay_buffer,
    manager._group_obs_term_history_buffer,
  ):
    for group in buffers.values():
      yield from group.items()


def forget_observations(manager: Any) -> None:
  """Drop what the manager returned last: a reset makes it wrong."""
  manager._obs_buffer = None


def curriculum_state(manager: Any) -> dict[str, Any]:
  """What curricula returned last; mjlab logs it."""
  return manager._curriculum_state


def metric_values(manager: Any, name: str, index: int) -> dict[str, torch.Tensor]:
  """A metric of the running episodes: `sum`, `last` and `steps`, perhaps `max`. # [B]"""
  values = {
    "sum": manager._episode_sums[name],
    "last": manager._step_values[:, index],
    "steps": manager._step_count,
  }
  if name in manager._episode_max:
    values["max"] = manager._episode_max[name]
  return values


def reset_metrics(manager: Any, mask: torch.Tensor) -> None:
  """Start the masked environments' metrics anew."""
  manager._step_count.masked_fill_(mask, 0)
  for sums in (*manager._episode_sums.values(), *manager._substep_accum):
    sums.masked_fill_(mask, 0.0)
  for highest in manager._episode_max.values():
    highest.masked_fill_(mask, -torch.inf)


def measures_substeps(manager: Any) -> bool:
  """Whether any metric is measured at every substep."""
  return bool(getattr(manager, "_substep_term_indices", None))


def contact_buffers(sensor: Any) -> list[torch.Tensor]:
  """History and times of a contact sensor. # [B, …] each"""
  buffers = list((sensor._history_state or {}).values())
  times = sensor._air_time_state
  if times is not None:
    buffers += [
      times.current_air_time,
      times.last_air_time,
      times.current_contact_time,
      times.last_contact_time,
    ]
  return buffers


def invalidate(sensor: Any) -> None:
  """Make a sensor read anew: the state changed within a step."""
  sensor._invalidate_cache()


##
# Rewards, which we compute all at once.
##


def share_reward_buffers(manager: Any, sums: torch.Tensor, step: torch.Tensor) -> None:
  """Let mjlab's manager keep its statistics in ours. # [n, B], [B, n]"""
  manager._episode_sums = dict(zip(manager.active_terms, sums, strict=True))
  manager._step_reward = step


def reward_buffers(manager: Any) -> tuple[torch.Tensor, torch.Tensor]:
  """What was paid in the last step, in all and per term and second. # [B], [B, n]"""
  return manager._reward_buf, manager._step_reward


def rewards_per_second(manager: Any) -> bool:
  """Whether weights are per second."""
  return manager._scale_by_dt


def check_reward_shape(manager: Any, name: str, value: torch.Tensor) -> None:
  """mjlab's own check of what a term returned."""
  manager._check_term_shape(name, value)


##
# Actions and actuators.
##


def position_targets(action: Any) -> torch.Tensor:
  """What a joint-position action made of the policy's last output. # [B, J]"""
  return action._processed_actions


def entity_of(action: Any) -> Any:
  """The entity that an action moves."""
  return action._entity


def computes_controls(entity: Any) -> bool:
  """Whether an entity's actuators compute forces in torch at every substep."""
  fused = entity._fused_actuator_group
  delayed = entity._builtin_group._delayed_groups
  return bool(entity._custom_actuators or delayed or any(vars(fused).values()))


def delays(actuator: Any) -> bool:
  """Whether an actuator delays its commands."""
  return actuator._delay_buffer is not None


##
# Counters and buffers that a checkpoint holds, and what it leaves out.
##

NOT_STATE: dict[str, str] = {
  "_env": "the way back to the environment, of managers and terms",
  "_spec": "the model's source, of entities",
  "_actuators": "of entities, which hold them in groups as well",
  "_index_groups": "which joints an actuator group drives",
  "_data_view": "a sensor's window on the simulation's data",
  "_cached_data": "what a sensor computed last; it is made to read anew",
  "_obs_buffer": "what the observation manager returned last; see forget_observations",
  "_curriculum_state": "what curricula returned last, which mjlab logs",
  "_tensor_cache": "a noise config's numbers on the device",
}
"""Attributes of mjlab's objects that hold nothing of their own to save, and what they
are."""


def substeps_done(env: Any) -> int:
  """Physics steps since the environment was made."""
  return env._sim_step_counter


def set_substeps_done(env: Any, count: int) -> None:
  """The same: replays of a graph do not run the Python that counts."""
  env._sim_step_counter = count


def ring_pointer(ring: Any) -> int:
  """Where a circular buffer writes next."""
  return ring._pointer


def set_ring_pointer(ring: Any, pointer: int) -> None:
  """The same, of a checkpoint."""
  ring._pointer = pointer


def command_dt(env: Any) -> torch.Tensor:
  """Time by which commands advance in this step: none after a reset. # [B]"""
  return env._command_dt


##
# Simulation.
##


def wrapped_arrays(bridge: Any) -> dict[str, Any]:
  """Arrays that a view of model or data has handed out so far."""
  return bridge._wrapped_cache


def bridges(sim: Any) -> tuple[Any, Any]:
  """The views of data and model themselves."""
  return sim._data_bridge, sim._model_bridge


def set_data_bridge(sim: Any, bridge: Any) -> None:
  """Put another view of the data in mjlab's place."""
  sim._data_bridge = bridge


def sensor_context(sim: Any) -> Any:
  """What ray-casting sensors and cameras render with, or None."""
  return sim._sensor_context


def suspended_gc() -> AbstractContextManager[None]:
  """Keeps the garbage collector from freeing memory in the middle of a recording."""
  from mjlab.sim.sim import _suspend_gc

  return _suspend_gc()


def set_stream(array: Any, stream: torch.cuda.Stream) -> None:
  """The stream on which an array is written; it remembers its first one."""
  array._torch_stream = stream


def reset_masks(sim: Any) -> tuple[Any, Any]:
  """Which environments a recorded reset takes, for torch and for Warp. # [B]"""
  return sim._reset_mask, sim._reset_mask_wp


##
# Registry.
##


def register(name: str, task: Any) -> None:
  """Enter a task whose configs are made on demand; `register` wants finished ones."""
  from mjlab.tasks import registry

  registry._REGISTRY[name] = task
