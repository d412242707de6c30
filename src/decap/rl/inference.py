"""A trained policy, ready to act: checkpoint → function of observations."""

from __future__ import annotations

from typing import Any

import torch

from decap.rl.modules import Model, deterministic_weights


def policy_from_state(state: dict[str, Any], device: str = "cpu") -> Model:
  """The deterministic policy of a checkpoint: call it with a dict of observations.

  The network's shape comes from its weights, so no config is needed.

  Args:
    state: What `decap.rl.checkpoint.load` returns.
  """
  weights = deterministic_weights(state["actor_state_dict"])
  layers = [value for name, value in weights.items() if name.endswith(".weight")]
  model = Model(
    {"actor": torch.zeros(1, layers[0].shape[1])},
    "actor",
    layers[-1].shape[0],
    hidden_dims=[layer.shape[0] for layer in layers[:-1]],
    activation=state["policy"]["network"]["activation"],
    obs_normalization="obs_normalizer._mean" in weights,
  )
  model.load_state_dict(weights)
  return model.to(device).eval()
