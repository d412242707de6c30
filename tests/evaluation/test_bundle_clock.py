"""Networks of bundles as torch, and the clock that they stop themselves."""

import numpy as np
import onnxruntime
import pytest
import torch

from decap.export import actor_to_onnx, torch_from_onnx

from .test_policies import SIZES, weights

OBSERVATIONS = (
  {"name": "joint_pos", "dim": 2},
  {"name": "command", "dim": 3},
  {"name": "clock", "dim": 2, "period_s": 0.8, "command_threshold": 0.1},
)
COMMAND, CLOCK = slice(2, 5), slice(5, 7)


@pytest.fixture(params=["torch", "onnxruntime"])
def act(request):
  onnx = actor_to_onnx(weights(), "elu", 1e-2, OBSERVATIONS)
  if request.param == "torch":
    network = torch_from_onnx(onnx)
    return lambda obs: network(obs).detach().numpy()
  session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
  return lambda obs: session.run(None, {"obs": obs.numpy()})[0]


def observations(command: tuple[float, float, float]) -> torch.Tensor:
  torch.manual_seed(1)
  obs = torch.randn(20, SIZES[0])
  obs[:, COMMAND] = torch.tensor(command)
  return obs


def stopped(obs: torch.Tensor) -> torch.Tensor:
  obs = obs.clone()
  obs[:, CLOCK] = 0.0
  return obs


@pytest.mark.parametrize("command", [(0.0, 0.0, 0.0), (0.06, 0.06, 0.0)])
def test_told_to_stand_a_running_clock_counts_for_nothing(act, command):
  obs = observations(command)
  assert obs[:, CLOCK].abs().min() > 0.0
  np.testing.assert_array_equal(act(obs), act(stopped(obs)))


@pytest.mark.parametrize("command", [(0.08, 0.08, 0.0), (0.0, 0.0, -0.2)])
def test_told_to_move_it_counts(act, command):
  obs = observations(command)
  assert np.abs(act(obs) - act(stopped(obs))).max(1).min() > 1e-3


def test_the_gate_changes_nothing_else(act):
  plain = torch_from_onnx(actor_to_onnx(weights(), "elu", 1e-2))
  moving, standing = observations((0.5, 0.0, 0.0)), observations((0.0, 0.0, 0.0))
  expected = plain(torch.cat((moving, stopped(standing)))).detach().numpy()
  found = act(torch.cat((moving, standing)))
  np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
