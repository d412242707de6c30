"""mjlab's environment with constraints and a control step that never waits.

One control step is: actions, physics, terminations, rewards, constraints, events and
resets *by mask*, kinematics, commands, observations. Nothing in it reads a tensor's
value on the host, so the same code runs eagerly on a CPU and as one CUDA graph.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from mjlab.envs.mdp.actions import (
  JointEffortAction,
  JointPositionAction,
  JointVelocityAction,
)
from mjlab.utils.logging import print_info

from decap import mjlab_private
from decap.constraints.groups import BodyGroupCfg
from decap.constraints.termination import TerminationCfg
from decap.envs import mirror, state
from decap.envs.constraint_manager import ConstraintManager, ConstraintTermCfg
from decap.envs.device_log import DeviceLog
from decap.envs.following import FollowingCfg, followed
from decap.envs.masked import terms_of
from decap.envs.masked_reset import MaskedReset, remembers
from decap.envs.mdp.actuation import ActuationCfg, randomise_actuation
from decap.envs.observation_manager import JoinedObservationManager
from decap.envs.reward_manager import StackedRewardManager
from decap.sim.backend import hush_warp, resolve_backend, simulation_backend

PHYSICS_ARRAYS = ("Physics/constraints_used", "Physics/contacts_used")
"""Largest shares of the physics' arrays in use; above 1, contacts were lost."""


@dataclass(kw_only=True)
class ConstrainedEnvCfg(ManagerBasedRlEnvCfg):
  """An mjlab environment plus constraints on physical quantities."""

  constraints: dict[str, ConstraintTermCfg] = field(default_factory=dict)
  """Constrained quantities by name."""

  groups: dict[str, BodyGroupCfg] = field(default_factory=dict)
  """Body groups: which joints share limits, and their p_max."""

  constrained_entity: str = "robot"
  """Entity whose joints the groups divide."""

  torso: str | None = None
  """Its body that methods may calm, where there is one."""

  termination: TerminationCfg = field(default_factory=TerminationCfg)
  """How closeness to a limit becomes a termination probability."""

  following: FollowingCfg | None = None
  """What of the commands is carried out, reported beside the constraints."""

  actuation: ActuationCfg = field(default_factory=ActuationCfg)
  """Delay and strength of the motors, randomised."""

  backend: Literal["auto", "warp", "native"] = "auto"
  """Physics: MuJoCo Warp, or C MuJoCo on the CPU. Auto takes the device's."""

  num_threads: int = 0
  """Threads of C MuJoCo; 0 takes every available core. Results do not depend on it."""

  split_physics: bool = False
  """Leave forces out of the forward pass that closes a step. Observations must not read
  force or acceleration sensors then."""


def constrain(
  cfg: ManagerBasedRlEnvCfg,
  *,
  constraints: dict[str, ConstraintTermCfg],
  groups: dict[str, BodyGroupCfg] | None = None,
  **options: Any,
) -> ConstrainedEnvCfg:
  """A constrained copy of any mjlab environment config.

  ``options`` are further fields of ConstrainedEnvCfg, such as ``following``.
  """
  # Our environment puts its own terms into its config.
  cfg = copy.deepcopy(cfg)
  fields = {f.name: getattr(cfg, f.name) for f in dataclasses.fields(cfg)}
  return ConstrainedEnvCfg(
    **fields, constraints=constraints, groups=groups or {}, **options
  )


class ConstrainedEnv(ManagerBasedRlEnv):
  """A ManagerBasedRlEnv that reports constraints in ``extras["constraints"]``.

  See ConstraintManager.compute for what it holds. Statistics of episodes and
  constraints accumulate on the device; ``flush_log`` returns them. ``extras["log"]``
  stays empty.
  """

  cfg: ConstrainedEnvCfg
  reward_manager: StackedRewardManager

  def __init__(
    self,
    cfg: ConstrainedEnvCfg,
    device: str,
    render_mode: str | None = None,
    **kwargs: Any,
  ):
    if not cfg.auto_reset:
      raise ValueError("a constrained environment needs auto_reset=True")
    if cfg.recorders:
      raise ValueError("a constrained environment takes no recorders")
    self.log = DeviceLog(device)
    # What terms share within a step; nothing is remembered between steps.
    self.step_cache: dict[Any, torch.Tensor] | None = None
    self.before_reset: list[Callable[[ConstrainedEnv], None]] = []
    """Called in every step when all is measured and nothing is reset yet: where the
    last state of an episode can still be read."""
    if resolve_backend(device, cfg.backend) == "native":
      hush_warp()  # Of a GPU that is neither used nor missed.
    with simulation_backend(
      cfg.backend, split=cfg.split_physics, num_threads=cfg.num_threads
    ):
      super().__init__(cfg, device, render_mode, **kwargs)

  # Properties.

  @property
  def waiting_terms(self) -> list[str]:
    """Terms for which the step waits for the device; without any it can be captured."""
    return self._masked_reset.waiting_terms

  @property
  def progress_names(self) -> tuple[str, ...]:
    """Names of the rows of ``extras["progress"]``."""
    return () if self.cfg.following is None else self.cfg.following.names

  # Methods.

  def load_managers(self) -> None:
    from decap.envs.substitutes import substitute_terms

    substitute_terms(self.cfg)
    randomise_actuation(self.cfg, self.cfg.actuation)
    super().load_managers()
    self.observation_manager.__class__ = JoinedObservationManager
    self.reward_manager = StackedRewardManager.take_over(self.reward_manager)
    self.constraint_manager = ConstraintManager(
      self.cfg.constraints,
      self.cfg.groups,
      self.cfg.termination,
      self,
      self.cfg.constrained_entity,
    )
    print_info(f"[INFO] {self.constraint_manager}")
    self.reset_buf = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
    self._masked_reset = MaskedReset(self)
    self._constant_controls = self._controls_are_constant()
    entities = self.scene.entities.values()
    self._actuators_remember = any(remembers(a) for e in entities for a in e.actuators)

  def step(self, action: torch.Tensor):
    """One control step; see the module's docstring for its order."""
    self.extras = {"log": {}}
    self.action_manager.process_action(action)
    self._advance_physics()
    self.step_cache = {}
    self.episode_length_buf += 1
    self.common_step_counter += 1

    # As in mjlab, these see kinematics from before the last substep's integration.
    self.reset_buf[:] = self.termination_manager.compute()
    self._end_diverged()
    self.reset_terminated = self.termination_manager.terminated
    self.reset_time_outs = self.termination_manager.time_outs
    self.reward_buf = self.reward_manager.compute(dt=self.step_dt)
    self.metrics_manager.compute()
    self._log_extras()
    self.extras["constraints"] = self.constraint_manager.compute()
    if self.cfg.following is not None:
      self.extras["progress"] = followed(self, self.cfg.following)
    for read in self.before_reset:
      read(self)
    self.step_cache = None  # Events and resets write the state.
    self._masked_reset.apply_events(self.step_dt)
    self._masked_reset.reset(self.reset_buf)
    # Actuators that remember must not take this for another substep of commands; mjlab
    # does so in steps with resets.
    if not self._actuators_remember or self.reset_buf.any():
      self.scene.write_data_to_sim()
    self.sim.forward()

    # Freshly reset environments keep their command timers full.
    torch.mul(~self.reset_buf, self.step_dt, out=mjlab_private.command_dt(self))
    self._update_commands_and_observations()
    return (
      self.obs_buf,
      self.reward_buf,
      self.reset_terminated,
      self.reset_time_outs,
      self.extras,
    )

  def reset(
    self,
    *,
    seed: int | None = None,
    env_ids: torch.Tensor | None = None,
    options: dict[str, Any] | None = None,
  ):
    del options  # Unused.
    if seed is not None:
      with contextlib.redirect_stdout(io.StringIO()):  # mjlab tells every seed.
        self.seed(seed)
    mask = torch.zeros_like(self.reset_buf)
    mask[slice(None) if env_ids is None else env_ids] = True
    self._masked_reset.reset(mask)
    self.scene.write_data_to_sim()
    self.sim.forward()
    mjlab_private.command_dt(self).zero_()
    self._update_commands_and_observations(env_ids)
    self.log.flush()
    self.extras = {"log": {}}
    return self.obs_buf, self.extras

  def between_iterations(self) -> None:
    """What is decided once per rollout; call it between them, never within."""
    if self._masked_reset.host_curricula():
      self.reward_manager.load_weights()

  def set_step_count(self, steps: int) -> None:
    """Correct the counters; replays of a CUDA graph do not run the Python that counts."""
    missing = (steps - self.common_step_counter) * self.cfg.decimation
    mjlab_private.set_substeps_done(self, mjlab_private.substeps_done(self) + missing)
    self.common_step_counter = steps

  def mirrors(self) -> dict[str, torch.Tensor]:
    """Mirrors of what the actor sees and does; see `decap.envs.mirror`."""
    return mirror.mirrors(self)

  def not_finite(self) -> dict[str, int]:
    """Term → first environment where it was NaN or infinite since the last call."""
    return self.log.flagged()

  def flush_log(self) -> dict[str, float]:
    """Means since the last call, with one copy to the host."""
    log = self.log.flush()
    rewards = [f"Episode_Reward/{name}" for name in self.reward_manager.active_terms]
    if log.keys() >= set(rewards):
      log["Train/reward"] = sum(log[name] for name in rewards)
      # mjlab gives the terms per second of a full episode.
      log.update({name: log[name] / self.max_episode_length_s for name in rewards})
    return log

  def state_dict(self) -> dict[str, Any]:
    """All that is needed to go on bit for bit on the native backend."""
    return state.state_dict(self)

  def load_state_dict(self, saved: dict[str, Any]) -> None:
    state.load_state_dict(self, saved)

  # Private methods.

  def _advance_physics(self) -> None:
    substeps = self.cfg.decimation
    mjlab_private.set_substeps_done(self, mjlab_private.substeps_done(self) + substeps)
    if self._constant_controls:
      self.action_manager.apply_action()
      self.scene.write_data_to_sim()
      self.sim.step_many(substeps)
      self.scene.update(dt=self.physics_dt)
      return
    for _ in range(substeps):
      self.action_manager.apply_action()
      self.scene.write_data_to_sim()
      self.sim.step_many(1)
      self.scene.update(dt=self.physics_dt)
      self.metrics_manager.compute_substep()

  def _log_extras(self) -> None:
    """Takes over what stock terms put into ``extras["log"]``."""
    log = self.extras["log"]
    for name, value in log.items():
      self.log.mean({(name,): torch.as_tensor(value)})
    log.clear()

  def _end_diverged(self) -> None:
    """Ends episodes whose physics is no longer finite, and notes overflown arrays."""
    data = self.sim.data
    total = torch.cat((data.qpos[:], data.qvel[:]), 1).sum(1)  # [B]
    # 0 · x is NaN where x is not finite, and equals nothing.
    diverged = total * 0.0 != 0.0
    self.log.flag(("physics state",), total)
    self.termination_manager.terminated.logical_or_(diverged)
    self.reset_buf.logical_or_(diverged)
    self.log.maximum(PHYSICS_ARRAYS, self.sim.overflow())

  def _update_commands_and_observations(
    self, env_ids: torch.Tensor | None = None
  ) -> None:
    """Of all environments; a partial reset advances nothing beyond ``env_ids``."""
    # Resets and pushes changed what sensors remember from the rewards.
    self.step_cache = {}
    for sensor in self.scene.sensors.values():
      mjlab_private.invalidate(sensor)
    dt = mjlab_private.command_dt(self) if env_ids is None else 0.0
    self.command_manager.compute(dt=dt, env_ids=env_ids)
    self.sim.sense()
    self.obs_buf = self.observation_manager.compute(
      update_history=True, env_ids=env_ids
    )
    for name, group in self.obs_buf.items():
      if isinstance(group, torch.Tensor):
        columns = group.flatten(1).T  # [D, B]
        self.log.flag((f"observation {name}",) * len(columns), columns)
    self.step_cache = None

  def _controls_are_constant(self) -> bool:
    """Whether all substeps of a control step may run in one call."""
    constant = (JointPositionAction, JointVelocityAction, JointEffortAction)
    actions = terms_of(self.action_manager).values()
    if any(type(term) not in constant for term in actions):
      return False
    if any(map(mjlab_private.computes_controls, self.scene.entities.values())):
      return False
    for sensor in self.scene.sensors.values():
      cfg = getattr(sensor, "cfg", None)
      if getattr(cfg, "track_air_time", False) or getattr(cfg, "history_length", 0):
        return False
    return not mjlab_private.measures_substeps(self.metrics_manager)

  def _reset_idx(self, env_ids: torch.Tensor | None = None) -> None:
    raise RuntimeError("a constrained environment resets by mask; call reset()")
