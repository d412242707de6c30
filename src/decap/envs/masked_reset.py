"""Events and resets by mask: the part of mjlab's step that waits for the device.

mjlab finds the environments to reset with ``nonzero``, resets them by index and logs
their episodes with ``item``. Here every manager is reset with a mask, episode
statistics go to the device log, and whatever only understands indices still gets them,
at the price of a wait: ``waiting_terms`` names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from mjlab.actuator.actuator import Actuator
from mjlab.envs.mdp.actions.actions import BaseAction
from mjlab.managers.event_manager import EventTermCfg, RecomputeLevel
from mjlab.managers.manager_base import ManagerTermBase
from mjlab.sensor import ContactSensor
from mjlab.sensor.sensor import Sensor
from mjlab.utils.noise.noise_model import NoiseModel

from decap import mjlab_private
from decap.envs.masked import is_masked, masked, redraw_where, terms_of

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
# What terms inherit that have nothing to reset.
_IDLE_RESETS = (ManagerTermBase.reset, NoiseModel.reset, Sensor.reset)


class MaskedReset:
  """Applies events and resets to a mask of an environment's instances."""

  def __init__(self, env: ConstrainedEnv):
    self._env = env
    self.waiting_terms: list[str] = []
    self._ids: torch.Tensor | None = None
    # One matrix instead of a vector per term: summed by a single operation.
    self._rewards = env.reward_manager.episode_sums
    self._dones = _as_rows(
      mjlab_private.episode_dones(env.termination_manager), env.reset_buf
    )
    self._class_terms = self._find_class_terms()
    self._curricula = self._find_curricula()
    self._find_waiting_terms()

  # Methods.

  def apply_events(self, dt: float) -> None:
    """Step events on all environments, interval events on those whose time came."""
    manager = self._env.event_manager
    if "step" in manager.available_modes:
      manager.apply(mode="step", dt=dt)
    terms = mjlab_private.event_terms(manager, "interval")
    timers = mjlab_private.event_timers(manager)
    for term, time_left in zip(terms, timers, strict=True):
      time_left -= dt
      due = time_left < 1e-6
      redraw_where(time_left, due, _interval(term))
      # A timer that all environments share has one element, and lives on the host.
      due = due.to(self._env.device).expand(self._env.num_envs)
      self._ids = None
      self._call(term.func, due, term.params)

  def reset(self, mask: torch.Tensor) -> None:
    """Ends the episodes of the masked environments [B] and starts new ones."""
    env = self._env
    self._ids = None
    self._log_episodes(mask)
    for name, term in self._curricula:
      self._log_curriculum(name, self._call(term.func, mask, term.params))
    env.sim.reset_masked(mask)
    self._reset_scene(mask)
    self._reset_events(mask)
    mjlab_private.forget_observations(env.observation_manager)
    for _, reset in self._class_terms:
      self._call(reset, mask, {})
    manager = env.action_manager
    for buffer in (manager.action, manager.prev_action, manager.prev_prev_action):
      buffer.masked_fill_(mask.unsqueeze(1), 0.0)
    for term in terms_of(manager).values():
      term.raw_action.masked_fill_(mask.unsqueeze(1), 0.0)
    self._rewards.masked_fill_(mask, 0.0)
    if env.metrics_manager.active_terms:
      mjlab_private.reset_metrics(env.metrics_manager, mask)
    for command in terms_of(env.command_manager).values():
      if is_masked(command):
        command.reset_masked(mask)
      elif len(ids := self._indices(mask)) > 0:
        command.reset(ids)
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
        mjlab_private.curriculum_state(manager)[name] = state
        self._log_curriculum(name, state)
        ran = True
    return ran

  # Private methods.

  def _call(self, func: Callable, mask: torch.Tensor, params: dict[str, Any]) -> Any:
    """Calls a term with the mask, or with indices where it knows no masks."""
    if is_masked(func):
      result = func(self._env, mask, **params)
    else:
      ids = self._indices(mask)
      if len(ids) == 0:
        return None
      result = func(self._env, ids, **params)
    level = getattr(func, "recompute", RecomputeLevel.none)
    if level != RecomputeLevel.none:
      self._env.sim.recompute_constants(level)
    return result

  def _indices(self, mask: torch.Tensor) -> torch.Tensor:
    """Indices of the masked environments, found once for the terms that share them."""
    if self._ids is None:
      self._ids = mask.nonzero().flatten()
    return self._ids

  def _log_episodes(self, mask: torch.Tensor) -> None:
    env = self._env
    rewards, terminations = env.reward_manager, env.termination_manager
    # Of whole episodes; the environment gives rewards per second.
    ended = {
      tuple(f"Episode_Reward/{n}" for n in rewards.active_terms): self._rewards,
      tuple(f"Episode_Termination/{n}" for n in terminations.active_terms): self._dones,
      ("Train/episode_length",): env.episode_length_buf,
    }
    for name, value in _episode_metrics(env.metrics_manager):
      ended[(f"Episode_Metrics/{name}",)] = torch.where(mask, value, 0.0)
    for name, command in terms_of(env.command_manager).items():
      for metric, value in command.metrics.items():
        ended[(f"Metrics/{name}/{metric}",)] = value
    env.log.mean(ended, mask)

  def _log_curriculum(self, name: str, state: Any) -> None:
    if state is None:
      return
    items = state.items() if isinstance(state, dict) else [("", state)]
    for key, value in items:
      label = f"Curriculum/{name}/{key}" if key else f"Curriculum/{name}"
      self._env.log.mean({(label,): torch.as_tensor(value)})

  def _reset_scene(self, mask: torch.Tensor) -> None:
    for entity in self._env.scene.entities.values():
      if entity.is_actuated:
        for target in _TARGETS:
          getattr(entity.data, target).masked_fill_(mask.unsqueeze(1), 0.0)
    for sensor in self._env.scene.sensors.values():
      mjlab_private.invalidate(sensor)
      if isinstance(sensor, ContactSensor):
        for buffer in mjlab_private.contact_buffers(sensor):
          buffer.masked_fill_(mask.view(-1, *(1,) * (buffer.dim() - 1)), 0)

  def _reset_events(self, mask: torch.Tensor) -> None:
    manager = self._env.event_manager
    for index, term in enumerate(mjlab_private.event_terms(manager, "reset")):
      if term.min_step_count_between_reset == 0:
        self._call(term.func, mask, term.params)
      else:
        self._ids = None
        self._call(term.func, self._rested(index, mask), term.params)
        self._ids = None
    terms = mjlab_private.event_terms(manager, "interval")
    timers = mjlab_private.event_timers(manager)
    for term, time_left in zip(terms, timers, strict=True):
      if not term.is_global_time:
        redraw_where(time_left, mask, _interval(term))

  def _rested(self, index: int, mask: torch.Tensor) -> torch.Tensor:
    """Where a reset event has rested for long enough to run again. # [B]"""
    manager = self._env.event_manager
    term = mjlab_private.event_terms(manager, "reset")[index]
    pause = term.min_step_count_between_reset
    last, once = mjlab_private.reset_event_history(manager, index)
    now = self._env.common_step_counter
    chosen = mask & ((now - last >= pause) | ~once)
    last.masked_fill_(chosen, now)
    once.logical_or_(chosen)
    return chosen

  def _find_class_terms(self) -> list[tuple[str, Callable]]:
    """Resets of stateful terms: their own masked one, or mjlab's by index."""
    env = self._env
    found: list[tuple[str, Callable]] = []

    def add_by_index(name: str, term: Any) -> None:
      found.append((name, lambda _, ids: term.reset(ids)))

    def add(name: str, term: Any) -> None:
      if hasattr(term, "reset_masked"):
        found.append((name, masked(lambda _, mask: term.reset_masked(mask))))
      elif type(term).reset not in _IDLE_RESETS:
        add_by_index(name, term)

    for manager in (
      env.reward_manager,
      env.termination_manager,
      env.metrics_manager,
      env.curriculum_manager,
      env.constraint_manager,
      env.event_manager,
      env.observation_manager,
    ):
      for cfg in mjlab_private.stateful_terms(manager):
        add(type(cfg.func).__name__, cfg.func)
    observations = env.observation_manager
    for name, model in mjlab_private.observation_noise_models(observations):
      add(f"noise model of {name}", model)
    for name, buffer in mjlab_private.observation_buffers(observations):
      add_by_index(f"history or delay of {name}", buffer)
    for name, action in terms_of(env.action_manager).items():
      if type(action).reset is not BaseAction.reset:
        add(f"action {name}", action)
    for name, sensor in env.scene.sensors.items():
      if not isinstance(sensor, ContactSensor):
        add(f"sensor {name}", sensor)
    for entity in env.scene.entities.values():
      for actuator in filter(remembers, entity.actuators):
        add_by_index("actuator delay or history", actuator)
    return found

  def _find_curricula(self) -> list[tuple[str, Any]]:
    manager = self._env.curriculum_manager
    terms = [(n, manager.get_term_cfg(n)) for n in manager.active_terms]  # type: ignore[union-attr]
    return [(n, t) for n, t in terms if is_masked(t.func)]

  def _find_waiting_terms(self) -> None:
    env, found = self._env, self.waiting_terms
    manager = env.event_manager
    for mode in ("reset", "interval", "step"):
      names = manager.active_terms.get(mode, ())
      terms = mjlab_private.event_terms(manager, mode)
      for name, term in zip(names, terms, strict=True):
        # The host counts the steps between resets, and holds timers of all.
        on_host = term.is_global_time or term.min_step_count_between_reset
        if not is_masked(term.func) or on_host:
          found.append(f"event {name}")
    for name, command in terms_of(env.command_manager).items():
      if not is_masked(command):
        found.append(f"command {name}")
    found += [f"state of {n}" for n, reset in self._class_terms if not is_masked(reset)]
    for name, sensor in env.scene.sensors.items():
      if isinstance(sensor, ContactSensor) and sensor.cfg.history_length:
        found.append(f"contact history of {name}")
      elif sensor.requires_sensor_context:
        found.append(f"ray-cast or camera sensor {name}")
    if env.cfg.sim.nan_guard.enabled:
      found.append("NaN guard of the simulation")
    for name, group in env.cfg.observations.items():
      if group is not None and group.nan_policy != "disabled":
        found.append(f"NaN check of observations {name}")


def remembers(actuator: Actuator) -> bool:
  """Whether an actuator delays its commands or keeps a history of them."""
  own_reset = type(actuator).reset is not Actuator.reset
  return own_reset or mjlab_private.delays(actuator)


def _as_rows(vectors: dict[str, torch.Tensor], like: torch.Tensor) -> torch.Tensor:
  """Puts rows of one matrix of zeros [n, B] in place of a dict's vectors [B]."""
  rows = like.new_zeros(len(vectors), len(like))
  vectors.update(zip(list(vectors), rows, strict=True))
  return rows


def _episode_metrics(manager: Any) -> Iterator[tuple[str, torch.Tensor]]:
  """Each metric of the running episodes, reduced as its config says. # [B]"""
  for index, name in enumerate(manager.active_terms):
    reduce = mjlab_private.metric_terms(manager)[index].reduce
    values = mjlab_private.metric_values(manager, name, index)
    if reduce in ("max", "last", "sum"):
      yield name, values[reduce]
    else:
      yield name, values["sum"] / values["steps"].clamp(min=1)


def _interval(term: EventTermCfg) -> tuple[float, float]:
  assert term.interval_range_s is not None
  return term.interval_range_s
