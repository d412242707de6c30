"""Events and resets by mask: the part of mjlab's step that waits for the device.

mjlab finds the environments to reset with ``nonzero``, resets them by index and logs
their episodes with ``item``. Here every manager is reset with a mask, episode
statistics go to the device log, and whatever only understands indices still gets them,
at the price of a wait: ``waiting_terms`` names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from mjlab.entity import Entity
from mjlab.managers.event_manager import RecomputeLevel
from mjlab.managers.manager_base import ManagerTermBase
from mjlab.sensor import ContactSensor
from mjlab.sensor.sensor import Sensor

from decap.envs.masked import is_masked, write_where

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnv

_TARGETS = (
  "joint_pos_target",
  "joint_vel_target",
  "joint_effort_target",
  "tendon_len_target",
  "tendon_vel_target",
  "tendon_effort_target",
  "site_effort_target",
)


class MaskedReset:
  """Applies events and resets to a mask of an environment's instances."""

  def __init__(self, env: ConstrainedEnv):
    self._env = env
    self.waiting_terms: list[str] = []
    self._ids: torch.Tensor | None = None
    # One matrix per manager instead of a vector per term: reset by a single operation.
    self._rewards = env.reward_manager.episode_sums
    self._dones = _as_rows(env.termination_manager, "_term_dones", torch.bool)
    self._metrics = _as_rows(env.metrics_manager, "_episode_sums", torch.float32)
    for command in env.command_manager._terms.values():
      _as_rows(command, "metrics", torch.float32)
    self._class_terms = self._find_class_terms()
    self._curricula = self._find_curricula()
    self._find_waiting_terms()

  # Methods.

  def apply_events(self, dt: float) -> None:
    """Step events on all environments, interval events on those whose time came."""
    manager = self._env.event_manager
    if "step" in manager.available_modes:
      manager.apply(mode="step", dt=dt)
    terms = manager._mode_term_cfgs.get("interval", ())
    names = manager._mode_term_names.get("interval", ())
    for name, term, time_left in zip(
      names, terms, manager._interval_term_time_left, strict=True
    ):
      time_left -= dt
      due = time_left < 1e-6
      time_left.copy_(
        torch.where(due, _uniform(time_left, term.interval_range_s), time_left)
      )
      self._ids = None
      self._call(name, term.func, due.expand(self._env.num_envs), term.params)

  def reset(self, mask: torch.Tensor) -> None:
    """Ends the episodes of the masked environments [B] and starts new ones."""
    env = self._env
    self._ids = None
    self._log_episodes(mask)
    for name, term in self._curricula:
      self._log_curriculum(name, self._call(name, term.func, mask, term.params))
    env.sim.reset_masked(mask)
    self._reset_scene(mask)
    self._reset_events(mask)
    env.observation_manager._obs_buffer = None
    for name, reset in self._class_terms:
      self._call(name, reset, mask, {})
    manager = env.action_manager
    for buffer in (manager._action, manager._prev_action, manager._prev_prev_action):
      buffer.masked_fill_(mask.unsqueeze(1), 0.0)
    for term in manager._terms.values():
      term.raw_action.masked_fill_(mask.unsqueeze(1), 0.0)
    self._rewards.masked_fill_(mask, 0.0)
    if self._metrics.numel():
      self._metrics.masked_fill_(mask, 0.0)
      env.metrics_manager._step_count.masked_fill_(mask, 0)
    for name, command in env.command_manager._terms.items():
      self._reset_command(name, command, mask)
    env.episode_length_buf.masked_fill_(mask, 0)

  def host_curricula(self) -> bool:
    """Curricula that take no mask: once between rollouts; whether there were any."""
    env = self._env
    manager = env.curriculum_manager
    ran = False
    for name in manager.active_terms:
      term = manager.get_term_cfg(name)  # type: ignore[union-attr]
      if not is_masked(term.func):
        state = term.func(env, slice(None), **term.params)
        manager._curriculum_state[name] = state
        self._log_curriculum(name, state)
        ran = True
    return ran

  # Private methods.

  def _call(
    self, name: str, func: Callable, mask: torch.Tensor, params: dict[str, Any]
  ) -> Any:
    """Calls a term with the mask, or with indices where it knows no masks."""
    if is_masked(func):
      return func(self._env, mask, **params)
    if self._ids is None:
      self._ids = mask.nonzero().flatten()
    if len(self._ids) == 0:
      return None
    result = func(self._env, self._ids, **params)
    level = getattr(func, "recompute", RecomputeLevel.none)
    if level != RecomputeLevel.none:
      self._env.sim.recompute_constants(level)
    return result

  def _log_episodes(self, mask: torch.Tensor) -> None:
    env, log = self._env, self._env.log
    count = mask.sum()
    length_s = env.max_episode_length_s
    names = [f"Episode_Reward/{n}" for n in env.reward_manager.active_terms]
    sums = (self._rewards * mask).sum(1)
    log.mean(names, sums / length_s, count)
    log.mean(("Train/reward",), sums.sum(), count)
    log.mean(
      ("Train/episode_length",), (env.episode_length_buf * mask).sum().float(), count
    )
    names = [f"Episode_Termination/{n}" for n in env.termination_manager.active_terms]
    log.mean(names, (self._dones & mask).sum(1).float(), count)
    if self._metrics.numel():
      names = [f"Episode_Metrics/{n}" for n in env.metrics_manager.active_terms]
      steps = env.metrics_manager._step_count.clamp(min=1)  # type: ignore[union-attr]
      log.mean(names, (self._metrics / steps * mask).sum(1), count)
    for name, command in env.command_manager._terms.items():
      if command.metrics:
        names = [f"Metrics/{name}/{metric}" for metric in command.metrics]
        values = torch.stack(tuple(command.metrics.values()))
        log.mean(names, (values * mask).sum(1), count)

  def _log_curriculum(self, name: str, state: Any) -> None:
    if state is None:
      return
    items = state.items() if isinstance(state, dict) else [("", state)]
    for key, value in items:
      label = f"Curriculum/{name}/{key}" if key else f"Curriculum/{name}"
      self._env.log.mean((label,), value, 1.0)

  def _reset_scene(self, mask: torch.Tensor) -> None:
    for entity in self._env.scene.entities.values():
      if not isinstance(entity, Entity):
        continue
      if entity.data.is_actuated:
        for target in _TARGETS:
          getattr(entity.data, target).masked_fill_(mask.unsqueeze(1), 0.0)
    for sensor in self._env.scene.sensors.values():
      sensor._invalidate_cache()
      if isinstance(sensor, ContactSensor):
        for buffer in _contact_buffers(sensor):
          write_where(buffer, mask, torch.zeros_like(buffer))

  def _reset_events(self, mask: torch.Tensor) -> None:
    manager = self._env.event_manager
    terms = manager._mode_term_cfgs.get("reset", ())
    for name, term in zip(
      manager._mode_term_names.get("reset", ()), terms, strict=True
    ):
      self._call(name, term.func, mask, term.params)
    for term, time_left in zip(
      manager._mode_term_cfgs.get("interval", ()),
      manager._interval_term_time_left,
      strict=True,
    ):
      if not term.is_global_time:
        write_where(time_left, mask, _uniform(time_left, term.interval_range_s))

  def _reset_command(self, name: str, command: Any, mask: torch.Tensor) -> None:
    if is_masked(command):
      command.reset_masked(mask)
      return
    if self._ids is None:
      self._ids = mask.nonzero().flatten()
    if len(self._ids) > 0:
      command.reset(self._ids)

  def _find_class_terms(self) -> list[tuple[str, Callable]]:
    """Resets of stateful terms: their own masked one, or mjlab's by index."""
    env = self._env
    found: list[tuple[str, Callable]] = []

    def add(name: str, term: Any) -> None:
      if hasattr(term, "reset_masked"):
        found.append((name, _masked_method(term)))
      elif type(term).reset is not ManagerTermBase.reset:
        found.append((name, _indexed_method(term)))

    for manager in (env.reward_manager, env.termination_manager, env.metrics_manager):
      for cfg in getattr(manager, "_class_term_cfgs", ()):
        add(type(cfg.func).__name__, cfg.func)
    for cfgs in env.event_manager._mode_class_term_cfgs.values():
      for cfg in cfgs:
        add(type(cfg.func).__name__, cfg.func)
    observations = env.observation_manager
    for cfgs in observations._group_obs_class_term_cfgs.values():
      for cfg in cfgs:
        add(type(cfg.func).__name__, cfg.func)
    for models in observations._group_obs_class_instances.values():
      for name, model in models.items():
        add(f"noise model of {name}", model)
    for buffers in (
      observations._group_obs_term_delay_buffer,
      observations._group_obs_term_history_buffer,
    ):
      for group in buffers.values():
        for name, buffer in group.items():
          found.append((f"history or delay of {name}", _buffer_reset(buffer)))
    for entity in env.scene.entities.values():
      for actuator in getattr(entity, "_actuators", ()):
        if getattr(actuator, "_delay_buffer", None) is not None:
          found.append(("actuator delay", _indexed_method(actuator)))
    return found

  def _find_curricula(self) -> list[tuple[str, Any]]:
    manager = self._env.curriculum_manager
    terms = [(n, manager.get_term_cfg(n)) for n in manager.active_terms]  # type: ignore[union-attr]
    return [(n, t) for n, t in terms if is_masked(t.func)]

  def _find_waiting_terms(self) -> None:
    env, found = self._env, self.waiting_terms
    manager = env.event_manager
    for mode in ("reset", "interval", "step"):
      names = manager._mode_term_names.get(mode, ())
      for name, term in zip(names, manager._mode_term_cfgs.get(mode, ()), strict=True):
        if not is_masked(term.func) or term.is_global_time:
          found.append(f"event {name}")
    for name, command in env.command_manager._terms.items():
      if not is_masked(command):
        found.append(f"command {name}")
    found += [f"state of {n}" for n, reset in self._class_terms if not is_masked(reset)]
    for name, sensor in env.scene.sensors.items():
      if isinstance(sensor, ContactSensor) and sensor.cfg.history_length:
        found.append(f"contact history of {name}")
      elif sensor.requires_sensor_context:
        found.append(f"ray-cast or camera sensor {name}")
      elif _overrides_reset(sensor) and not isinstance(sensor, ContactSensor):
        found.append(f"state of sensor {name}")
    for name, group in env.cfg.observations.items():
      if group is not None and group.nan_policy != "disabled":
        found.append(f"NaN check of observations {name}")


def computes_controls(entity: Any) -> bool:
  """Whether an entity's actuators compute forces in torch at every substep."""
  if not isinstance(entity, Entity) or not entity.is_actuated:
    return False
  fused = entity._fused_actuator_group
  delayed = entity._builtin_group._delayed_groups
  return bool(entity._custom_actuators or delayed or any(vars(fused).values()))


def _as_rows(owner: Any, attribute: str, dtype: torch.dtype) -> torch.Tensor:
  """Turns a dict of per-environment vectors into rows of one matrix [n, B]."""
  vectors: dict[str, torch.Tensor] = getattr(owner, attribute, None) or {}
  if not vectors:
    return torch.zeros(0)
  rows = torch.stack([v.to(dtype) for v in vectors.values()])
  for name, row in zip(vectors, rows, strict=True):
    vectors[name] = row
  return rows


def _contact_buffers(sensor: ContactSensor) -> list[torch.Tensor]:
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


def _uniform(like: torch.Tensor, bounds: tuple[float, float] | None) -> torch.Tensor:
  assert bounds is not None
  return torch.rand_like(like) * (bounds[1] - bounds[0]) + bounds[0]


def _overrides_reset(sensor: Sensor) -> bool:
  return type(sensor).reset is not Sensor.reset


def _masked_method(term: Any) -> Callable:
  def reset(env: ConstrainedEnv, mask: torch.Tensor) -> None:
    del env
    term.reset_masked(mask)

  reset.masked = True  # type: ignore[attr-defined]
  return reset


def _indexed_method(term: Any) -> Callable:
  def reset(env: ConstrainedEnv, env_ids: torch.Tensor) -> None:
    del env
    term.reset(env_ids)

  return reset


def _buffer_reset(buffer: Any) -> Callable:
  def reset(env: ConstrainedEnv, env_ids: torch.Tensor) -> None:
    del env
    buffer.reset(batch_ids=env_ids)

  return reset
