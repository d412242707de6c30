"""What rsl_rl's PPO can do and ours cannot: refused, not ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decap.rl.config import PpoCfg
from decap.rl.modules import Models
from decap.rl.storage import RolloutStorage


def refuse_unsupported(
  models: Models, storage: RolloutStorage, cfg: PpoCfg, unsupported: Mapping[str, Any]
) -> None:
  """Raise for features, networks and sizes that cannot be trained."""
  features = {
    "rnd_cfg": "Random network distillation",
    "symmetry_cfg": "Symmetry augmentation",
    "multi_gpu_cfg": "Multi-GPU training",
  }
  for name, value in unsupported.items():
    if name not in features:
      raise TypeError(f"PPO has no option {name!r}.")
    if value is not None:
      raise ValueError(f"{features[name]} is not supported by decap's PPO.")
  if models.actor.is_recurrent or models.critic.is_recurrent:
    raise ValueError("Recurrent policies are not supported by decap's PPO.")
  samples = storage.num_steps * storage.num_envs
  if samples < cfg.num_mini_batches:
    raise ValueError(
      f"{samples} samples per iteration are too few for {cfg.num_mini_batches} "
      "mini-batches."
    )
