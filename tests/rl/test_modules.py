"""Networks: noise per joint, the frozen normaliser, export."""

import numpy as np
import onnxruntime
import pytest
import torch

from decap.rl.config import PolicyCfg
from decap.rl.modules import (
  FrozenNormalization,
  Gaussian,
  build_models,
  deterministic_weights,
  resolve_init_std,
)

NAMES = ("left_elbow", "right_elbow", "left_knee")
OBS = {"actor": torch.zeros(2, 6), "critic": torch.zeros(2, 8)}


def test_init_std_by_pattern():
  assert resolve_init_std({".*_elbow": 0.1, ".*_knee": 0.6}, NAMES) == [0.1, 0.1, 0.6]
  assert resolve_init_std(0.5, NAMES) == [0.5] * 3


@pytest.mark.parametrize(
  ("init_std", "sentence"),
  [
    ({".*_elbow": 0.1}, "Action 'left_knee' must match exactly one"),
    ({".*": 0.1, ".*_knee": 0.1}, "Action 'left_knee' must match exactly one"),
    ({".*": 0.1, ".*_hip": 0.1}, "pattern '.*_hip' matches no action"),
    ({".*": 0.0}, "it must be positive"),
    (-1.0, "it must be positive"),
  ],
)
def test_bad_init_std_is_named(init_std, sentence):
  with pytest.raises(ValueError, match=sentence):
    resolve_init_std(init_std, NAMES)


@pytest.mark.parametrize("std_type", ["scalar", "log"])
def test_samples_have_each_actions_mean_and_deviation(std_type):
  gaussian = Gaussian(2, init_std=(0.1, 2.0), std_type=std_type)
  torch.manual_seed(0)
  # The quieter action's output counts 0.1 / 2.0.
  gaussian.update(torch.tensor([60.0, -1.0]).expand(100_000, 2))
  samples = gaussian.sample()
  torch.testing.assert_close(
    samples.mean(dim=0), torch.tensor([3.0, -1.0]), rtol=0, atol=0.03
  )
  torch.testing.assert_close(
    samples.std(dim=0), torch.tensor([0.1, 2.0]), rtol=0.02, atol=0
  )
  torch.testing.assert_close(gaussian.current_std, torch.tensor([0.1, 2.0]))
  assert not samples.requires_grad


def test_a_step_moves_every_action_by_the_same_share_of_its_noise():
  obs = {"actor": torch.randn(64, 5)}
  cfg = PolicyCfg(hidden_dims=(32,), init_std={"a": 0.1, "b": 1.0})
  actor = build_models(cfg, obs, ("a", "b")).actor
  before = actor(obs)
  optimizer = torch.optim.Adam(actor.mlp.parameters(), lr=1e-3)
  actor(obs).sum().backward()
  optimizer.step()
  moved = (actor(obs) - before).abs().mean(0) / torch.tensor([0.1, 1.0])
  # Without the gain the quiet action would move ten times as far.
  assert 0.4 < moved[0] / moved[1] < 2.5


def test_deterministic_weights_have_the_gain_in_the_last_layer():
  obs = {"actor": torch.randn(7, 5)}
  cfg = PolicyCfg(hidden_dims=(8,), init_std={"a": 0.1, "b": 1.0})
  actor = build_models(cfg, obs, ("a", "b")).actor
  plain = build_models(PolicyCfg(hidden_dims=(8,)), obs, ("a", "b")).actor
  plain.load_state_dict(deterministic_weights(actor.state_dict()), strict=False)
  torch.testing.assert_close(plain(obs), actor(obs))


def test_learn_std_decides_what_is_trained():
  for learn_std in (True, False):
    actor = build_models(PolicyCfg(learn_std=learn_std), OBS, NAMES).actor
    assert actor.gaussian.std_param.requires_grad == learn_std


def test_normaliser_merges_batches_into_the_moments_of_all():
  torch.manual_seed(0)
  data = torch.randn(90, 3) * torch.tensor([1.0, 5.0, 0.1]) + torch.tensor(
    [0.0, 20.0, -3.0]
  )
  normaliser = FrozenNormalization(3)
  for batch in data.split([10, 30, 50]):
    normaliser.update(batch)
  torch.testing.assert_close(normaliser.mean, data.mean(dim=0))
  torch.testing.assert_close(normaliser.std, data.std(dim=0, unbiased=False))
  assert int(normaliser.count) == 90


def test_normaliser_takes_rollouts_and_keeps_its_memory():
  torch.manual_seed(0)
  rollout = torch.randn(4, 5, 3)
  normaliser, flat = FrozenNormalization(3), FrozenNormalization(3)
  addresses = [buffer.data_ptr() for buffer in normaliser.buffers()]
  normaliser.update(rollout)
  flat.update(rollout.flatten(0, 1))
  assert torch.equal(normaliser.std, flat.std)
  assert [buffer.data_ptr() for buffer in normaliser.buffers()] == addresses


def test_normaliser_does_not_move_by_use():
  normaliser = FrozenNormalization(3)
  normaliser(torch.randn(10, 3))
  assert int(normaliser.count) == 0


def test_critic_sees_the_actors_observation_where_there_is_no_other():
  models = build_models(PolicyCfg(hidden_dims=(8,)), {"actor": OBS["actor"]}, NAMES, 4)
  assert models.critic.obs_dim == 6
  assert models.cost_critic is not None
  assert models.cost_critic({"actor": torch.zeros(2, 6)}).shape == (2, 4)


def test_missing_actor_group_is_named():
  with pytest.raises(ValueError, match="No observation group 'actor'"):
    build_models(PolicyCfg(), {"policy": torch.zeros(2, 6)}, NAMES)


def test_torchscript_acts_like_the_network():
  torch.manual_seed(0)
  cfg = PolicyCfg(hidden_dims=(16, 8), init_std={".*_elbow": 0.1, ".*_knee": 0.6})
  actor = build_models(cfg, OBS, NAMES).actor
  actor.obs_normalizer.update(3.0 + 2.0 * torch.randn(50, 6))
  obs = torch.randn(7, 6)
  script = torch.jit.script(actor.as_jit())
  torch.testing.assert_close(script(obs), actor({"actor": obs}))


def test_onnx_file_acts_like_the_network(tmp_path):
  torch.manual_seed(0)
  actor = build_models(PolicyCfg(hidden_dims=(16, 8)), OBS, NAMES).actor
  actor.obs_normalizer.update(3.0 + 2.0 * torch.randn(100, 6))
  module = actor.as_onnx(verbose=False).eval()
  path = tmp_path / "policy.onnx"
  torch.onnx.export(
    module,
    module.get_dummy_inputs(),
    str(path),
    input_names=module.input_names,
    output_names=module.output_names,
    opset_version=18,
    dynamo=False,
  )
  session = onnxruntime.InferenceSession(str(path))
  obs = torch.randn(1, 6)
  (actions,) = session.run(None, {"obs": obs.numpy()})
  expected = actor({"actor": obs}).detach().numpy()
  np.testing.assert_allclose(actions, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("std_type", ["scalar", "log"])
def test_noise_does_not_grow_beyond_a_multiple_of_its_first_value(std_type):
  noise = Gaussian(2, [0.2, 0.6], std_growth=1.5, std_type=std_type)
  parameter = noise.std_param if std_type == "scalar" else noise.log_std_param
  wanted = torch.tensor([0.1, 2.0])
  with torch.no_grad():
    parameter.copy_(wanted if std_type == "scalar" else wanted.log())
  noise.project()
  # The first is smaller than 1.5 · 0.2 and stays; the second may be 1.5 · 0.6.
  torch.testing.assert_close(noise.current_std, torch.tensor([0.1, 0.9]))
  free = Gaussian(2, [0.2, 0.6], std_type=std_type)
  with torch.no_grad():
    (free.std_param if std_type == "scalar" else free.log_std_param).fill_(0.7)
  before = free.current_std.clone()
  free.project()
  assert torch.equal(free.current_std, before)
