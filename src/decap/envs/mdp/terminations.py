"""Terminations that mjlab does not have; tilt and time-out are mjlab's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from mjlab.managers.scene_entity_config import SceneEntityCfg

from decap.envs.mdp.terrain import terrain_height

if TYPE_CHECKING:
  from mjlab.entity import Entity
  from mjlab.envs import ManagerBasedRlEnv


def base_below(
  env: ManagerBasedRlEnv,
  minimum_m: float,
  asset_cfg: SceneEntityCfg = SceneEntityCfg("robot"),  # noqa: B008
) -> torch.Tensor:
  """The root is lower above the terrain below it than a standing robot can be."""
  asset: Entity = env.scene[asset_cfg.name]
  position = asset.data.root_link_pos_w
  return position[:, 2] - terrain_height(env, position[:, :2]) < minimum_m
