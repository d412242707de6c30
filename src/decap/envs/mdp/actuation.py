"""Motors as robots have them: targets that arrive late, and torque that differs.

A delay below one control step needs no memory but the target before: a motor follows
the old target until the delay is over. So it stays one comparison per substep, without
ring buffers and without waiting for the host, and runs inside a CUDA graph.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch
from mjlab.envs.mdp.actions import JointPositionAction, JointPositionActionCfg
from mjlab.managers import EventTermCfg
from mjlab.managers.event_manager import requires_model_fields
from mjlab.managers.scene_entity_config import SceneEntityCfg

from decap import mjlab_private
from decap.envs.masked import write_where
from decap.errors import UserError

if TYPE_CHECKING:
  from mjlab.entity import Entity
  from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg

_ROBOT = SceneEntityCfg("robot")


@dataclass
class ActuationCfg:
  """Randomisation of motors; the defaults leave them ideal and cost nothing."""

  delay_s: tuple[float, float] = (0.0, 0.0)
  """Bounds of the time from an action to the motors, drawn for every episode in whole
  physics steps; at most one control step. Robots have 0 to 20 ms."""

  strength: tuple[float, float] = (1.0, 1.0)
  """Bounds of the factor on each motor's torque and peak, drawn once per environment."""


def randomise_actuation(cfg: ManagerBasedRlEnvCfg, actuation: ActuationCfg) -> None:
  """Puts the terms that ``actuation`` asks for into a config."""
  _check(cfg, actuation)
  if any(actuation.delay_s):
    for name, term in cfg.actions.items():
      if type(term) is JointPositionActionCfg:
        values = {f.name: getattr(term, f.name) for f in fields(term)}
        cfg.actions[name] = DelayedJointPositionActionCfg(
          **values, delay_s=actuation.delay_s
        )
  if actuation.strength != (1.0, 1.0):
    cfg.events["motor_strength"] = EventTermCfg(
      func=motor_strength, mode="startup", params={"bounds": actuation.strength}
    )


def _check(cfg: ManagerBasedRlEnvCfg, actuation: ActuationCfg) -> None:
  low, high = actuation.delay_s
  control_dt = cfg.decimation * cfg.sim.mujoco.timestep
  if not 0.0 <= low <= high <= control_dt + 1e-9:
    raise UserError(
      "The actuation's delay_s must be two times in order from 0 to one control step "
      f"({control_dt:g} s), not {low:g} and {high:g}."
    )
  low, high = actuation.strength
  if not 0.0 < low <= high < 10.0:
    raise UserError(
      f"The actuation's strength must be two factors in order above 0, not {low:g} and "
      f"{high:g}."
    )


@dataclass(kw_only=True)
class DelayedJointPositionActionCfg(JointPositionActionCfg):
  """Joint-position targets that reach the motors late."""

  delay_s: tuple[float, float] = (0.0, 0.02)

  def build(self, env: ManagerBasedRlEnv) -> DelayedJointPositionAction:
    return DelayedJointPositionAction(self, env)


class DelayedJointPositionAction(JointPositionAction):
  """Holds the target before until each environment's delay is over."""

  cfg: DelayedJointPositionActionCfg

  def __init__(self, cfg: DelayedJointPositionActionCfg, env: ManagerBasedRlEnv):
    super().__init__(cfg, env)
    low, high = (round(delay / env.physics_dt) for delay in cfg.delay_s)
    self._bounds = low, high + 1
    self._late_substeps = torch.zeros(
      self.num_envs, 1, dtype=torch.long, device=self.device
    )
    self._start = torch.zeros_like(self.raw_action) + self.offset  # [B, J]
    # Buffers of our own: what a graph reads at each replay must not move.
    self._target = self._start.clone()
    self._target_before = self._start.clone()
    self._substep = 0
    self.reset_masked(None)

  def process_actions(self, actions: torch.Tensor) -> None:
    super().process_actions(actions)
    self._target_before.copy_(self._target)
    self._target.copy_(mjlab_private.position_targets(self))
    self._substep = 0

  def apply_actions(self) -> None:
    arrived = self._late_substeps <= self._substep  # [B, 1]
    target = torch.where(arrived, self._target, self._target_before)
    entity, ids = mjlab_private.entity_of(self), self.target_ids
    target = target - entity.data.encoder_bias[:, ids]
    entity.set_joint_position_target(target, joint_ids=ids)
    self._substep += 1

  def reset(self, env_ids: torch.Tensor | slice | None = None) -> None:
    """By index, as mjlab's own environment calls it."""
    super().reset(env_ids)
    mask = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
    mask[slice(None) if env_ids is None else env_ids] = True
    self.reset_masked(mask)

  def reset_masked(self, mask: torch.Tensor | None) -> None:
    """New delays where the mask says; the target before is the default pose."""
    drawn = torch.randint_like(self._late_substeps, *self._bounds)
    write_where(self._late_substeps, mask, drawn)
    write_where(self._target, mask, self._start)
    write_where(self._target_before, mask, self._start)


@requires_model_fields("actuator_gainprm", "actuator_biasprm", "actuator_forcerange")
def motor_strength(
  env: ManagerBasedRlEnv,
  env_ids: torch.Tensor | None,
  bounds: tuple[float, float],
  asset_cfg: SceneEntityCfg = _ROBOT,
) -> None:
  """Scales gains and peak torque of every motor by a factor of its own.

  A startup event: it runs once for all environments, outside the control step.
  """
  assert env_ids is None, "motor_strength is a startup event"
  asset: Entity = env.scene[asset_cfg.name]
  ids = asset.indexing.ctrl_ids
  factor = torch.empty(env.num_envs, len(ids), 1, device=env.device).uniform_(*bounds)
  model = env.sim.model
  gain = env.sim.get_default_field("actuator_gainprm")[ids]  # [U, 10]
  bias = env.sim.get_default_field("actuator_biasprm")[ids]
  peak = env.sim.get_default_field("actuator_forcerange")[ids]  # [U, 2]
  model.actuator_gainprm[:, ids] = gain * factor
  model.actuator_biasprm[:, ids] = bias * factor
  model.actuator_forcerange[:, ids] = peak * factor
