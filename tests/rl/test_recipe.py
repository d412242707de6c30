"""What changes as robots settle: mirror loss, entropy, noise, learning rate."""

import math

import pytest
import torch

from decap.rl.config import PpoCfg
from decap.testing import waits

MIRRORS = {
  # Observations 0 and 1 change places, 2 changes its sign; so do the actions.
  "actor": torch.block_diag(
    torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.diag(torch.tensor([-1.0, 1.0, 1.0]))
  ),
  "actions": torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]]),
}


def settle(alg, iterations: int) -> None:
  alg.progress.steady_iterations.fill_(float(iterations))
  alg._weigh()


def mirror_loss(alg, agent) -> float:
  agent.rollout(alg)
  alg.storage.shuffle()
  samples = alg.samples()
  loss = alg.mirror_loss(samples, alg.evaluate(samples))
  return float(loss.detach())


def linear(alg, weight: torch.Tensor) -> None:
  """Make the actor a linear map of its observation, as far as its loss sees."""
  alg.actor.mlp = torch.nn.Sequential(torch.nn.Linear(5, 3, bias=False))
  with torch.no_grad():
    alg.actor.mlp[0].weight.copy_(weight)


def test_a_policy_that_is_its_own_mirror_image_has_no_mirror_loss(agent):
  cfg = PpoCfg(mirror_loss_coef=1.0)
  alg = agent.build(cfg, mirrors=MIRRORS, obs_normalization=False, init_std=0.5)
  weight = torch.randn(3, 5)
  image = MIRRORS["actions"].T @ weight @ MIRRORS["actor"].T
  linear(alg, (weight + image) / 2)
  assert mirror_loss(alg, agent) < 1e-9
  # An action 2 of 0.3 o_3, whatever the side: its image is −0.3 o_3, 0.6 o_3 away.
  weight = torch.zeros(3, 5)
  weight[2, 3] = 0.3
  linear(alg, weight)
  found = mirror_loss(alg, agent)
  seen = alg.storage.observations["actor"].flatten(0, 1)[:, 3]
  expected = (0.6 * seen / 0.5).square().mean() / 3  # In σ, a mean over actions.
  assert found == pytest.approx(float(expected), rel=1e-4)


def test_a_new_agent_does_not_mirror_yet(agent):
  alg = agent.build(PpoCfg(mirror_loss_coef=1.0), mirrors=MIRRORS)
  assert float(alg._weight("mirror")) == 0.0


def test_training_pulls_both_sides_together(agent):
  losses = {}
  for coef in (1e-9, 20.0):
    cfg = PpoCfg(mirror_loss_coef=coef, learning_rate=3e-3, schedule="fixed")
    alg = agent.build(cfg, mirrors=MIRRORS)
    settle(alg, 10_000)
    before = mirror_loss(alg, agent)
    for seed in range(8):
      alg.storage.clear()
      agent.rollout(alg, seed)
      metrics = alg.update()
    alg.storage.clear()
    losses[coef] = mirror_loss(alg, agent) / before
    assert float(metrics["Loss/mirror"]) > 0.0
  assert losses[20.0] < 0.3 * losses[1e-9]


def test_the_mirror_loss_and_the_end_of_exploration_come_as_robots_settle(agent):
  cfg = PpoCfg(
    entropy_coef=0.01,
    entropy_final=0.0001,
    entropy_iterations=100,
    mirror_loss_coef=0.4,
  )
  alg = agent.build(cfg, mirrors=MIRRORS)
  for iterations, entropy, mirror in (
    (0, 0.01, 0.0),
    (50, 0.001, 0.2),  # Half-way by factors, and by differences.
    (100, 0.0001, 0.4),
    (900, 0.0001, 0.4),
  ):
    settle(alg, iterations)
    assert float(alg._weight("entropy")) == pytest.approx(-entropy, rel=1e-4)
    assert float(alg._weight("mirror")) == pytest.approx(mirror)


def test_no_entropy_stays_none(agent):
  alg = agent.build(PpoCfg(entropy_coef=0.0, entropy_final=0.002))
  settle(alg, 900)
  assert alg._weight("entropy") == 0.0


def test_without_a_mirror_or_a_final_entropy_nothing_changes(agent):
  alg = agent.build(PpoCfg(entropy_coef=0.01))
  settle(alg, 900)
  assert float(alg._weight("entropy")) == pytest.approx(-0.01)
  assert alg._loss_names == ("surrogate", "value", "entropy")
  with pytest.raises(ValueError, match="needs to know the environment's mirror image"):
    agent.build(PpoCfg(mirror_loss_coef=0.1))


@pytest.mark.parametrize(
  ("share", "expected"), [(0.0, 1.0), (0.5, 1.0), (0.75, 0.65), (1.0, 0.3)]
)
def test_a_fixed_rate_falls_over_the_second_half_of_the_run(agent, share, expected):
  cfg = PpoCfg(learning_rate=1e-3, schedule="fixed", rate_final=0.3)
  alg = agent.build(cfg)
  alg.between_iterations(share)
  assert float(alg.learning_rate) == pytest.approx(1e-3 * expected)
  adaptive = agent.build(PpoCfg(learning_rate=1e-3, rate_final=0.3))
  adaptive.between_iterations(share)
  assert float(adaptive.learning_rate) == pytest.approx(1e-3)


def test_noise_is_put_back_after_every_update(agent):
  cfg = PpoCfg(entropy_coef=1.0, learning_rate=1e-2, schedule="fixed")
  stds = {}
  for growth in (None, 1.0):
    alg = agent.build(cfg, init_std=0.5, std_type="log", std_growth=growth)
    agent.rollout(alg)
    alg.update()
    stds[growth] = alg.std.max().item()
  assert stds[None] > 0.55 and stds[1.0] == pytest.approx(0.5)


def test_nothing_of_it_waits_for_the_device(agent):
  cfg = PpoCfg(mirror_loss_coef=0.2, entropy_final=0.002, schedule="fixed")
  alg = agent.build(cfg, mirrors=MIRRORS, std_type="log", std_growth=1.0)
  agent.rollout(alg)
  alg.update()
  agent.rollout(alg)
  assert waits(alg.update) == []
  assert waits(lambda: alg.between_iterations(0.7)) == []


@pytest.mark.parametrize(
  ("field", "value"),
  [
    ("entropy_iterations", 0),
    ("rate_final", 0.0),
    ("mirror_loss_coef", -0.1),
    ("rate_final", math.inf),
  ],
)
def test_impossible_values_are_refused(field, value):
  with pytest.raises(ValueError, match=field):
    PpoCfg(**{field: value})
