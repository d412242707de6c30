"""Runs that diverge end with a sentence, and leave the last good checkpoint."""

import math

import pytest
import torch
from torch import nn

from decap.errors import UserError
from decap.rl import checkpoint, checkpoint_files, divergence
from decap.rl.divergence import Diverged


def _networks() -> dict[str, nn.Module]:
  critic = nn.BatchNorm1d(2)  # Parameters, buffers, and a counter that is no float.
  return {"actor": nn.Linear(2, 1), "critic": critic}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_marks_name_the_tensor_that_is_not_finite(value):
  networks = _networks()
  names = divergence.names(networks)
  assert names == [
    "actor weight",
    "actor bias",
    "critic weight",
    "critic bias",
    "critic running_mean",
    "critic running_var",
  ]
  assert divergence.marks(networks).tolist() == [0.0] * 6
  networks["critic"].get_buffer("running_var")[1] = value
  marks = divergence.marks(networks).isnan().tolist()
  assert marks == [False] * 5 + [True]


def test_a_huge_weight_is_still_a_number():
  networks = {"actor": nn.Linear(2, 1)}
  nn.init.constant_(networks["actor"].weight, 3e38)  # Its sum overflows.
  assert divergence.marks(networks).tolist() == [0.0, 0.0]


def test_findings_are_losses_networks_and_observations():
  found = divergence.findings(
    ["actor a", "actor b", "critic c"],
    [0.0, math.nan, math.nan],
    {"Loss/value": math.inf, "Loss/surrogate": 0.1, "Train/reward": math.nan},
    {"observation actor": 7, "physics state": 3, "reward track_xy": 3},
  )
  assert found == [
    "observation actor (first in environment 7)",
    "loss value",
    "network weights actor b and 1 more",
  ]
  assert (
    divergence.findings(["a"], [0.0], {"Loss/value": 1.0}, {"physics state": 0}) == []
  )


def test_the_sentence_names_what_when_and_what_is_left(tmp_path):
  error = divergence.error(["loss value"], 12, tmp_path)
  assert str(error) == (
    "Training diverged in iteration 12: not finite are loss value. There is no "
    "checkpoint from before."
  )
  assert isinstance(error, Diverged) and error.exit_code == 1
  path = checkpoint_files.path_for(tmp_path, 10)
  checkpoint.save(path, {"iter": 10})
  assert str(path) in str(divergence.error(["loss value"], 12, tmp_path))


@pytest.mark.parametrize("network", ["actor", "critic", "cost_critic"])
def test_a_checkpoint_that_diverged_is_refused(network, tmp_path):
  path = tmp_path / "model_1.pt"
  weights = {"mlp.0.weight": torch.ones(3), "count": torch.tensor(2)}
  checkpoint.save(path, {f"{network}_state_dict": weights})
  assert checkpoint.load(path)["format"] == checkpoint.FORMAT
  weights["mlp.0.weight"][1] = math.nan
  checkpoint.save(path, {f"{network}_state_dict": weights})
  sentence = f"model_1.pt holds a policy that diverged: {network} mlp.0.weight is not"
  with pytest.raises(UserError, match=sentence):
    checkpoint.load(path)
