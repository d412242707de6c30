"""PPO: parity with rsl_rl, rewards and time-outs, learning rate, syncs."""

import pytest
import rsl_rl.algorithms
import rsl_rl.storage
import torch
from rsl_rl.models import MLPModel
from tensordict import TensorDict

from decap import collective
from decap.rl.config import LagrangianCfg, LcpCfg, NIpoCfg, PpoCfg
from decap.testing import waits

EVERY_ALGORITHM = [
  PpoCfg(survival=True, reward_rule="clip"),
  PpoCfg(survival=True, reward_rule="scale-clip"),
  LcpCfg(),
  NIpoCfg(),
  LagrangianCfg(),
]


def rsl_rl_twin(alg, agent):
  """rsl_rl's PPO with the weights and the rollout of ours."""
  obs = TensorDict(
    {k: v[0] for k, v in alg.storage.observations.items()}, [agent.num_envs]
  )
  groups = {"actor": ["actor"], "critic": ["critic"]}
  actor = MLPModel(
    obs,
    groups,
    "actor",
    agent.num_actions,
    (16, 8),
    distribution_cfg={"class_name": "GaussianDistribution"},
  )
  critic = MLPModel(obs, groups, "critic", 1, (16, 8))
  actor.load_state_dict(alg.actor.state_dict())
  critic.load_state_dict(alg.critic.state_dict())
  storage = rsl_rl.storage.RolloutStorage(
    "rl", agent.num_envs, agent.num_steps, obs, [agent.num_actions]
  )
  ours = alg.storage
  storage.observations.update(ours.observations)
  storage.actions.copy_(ours.actions)
  storage.rewards.copy_(ours.rewards.unsqueeze(-1))
  storage.dones.copy_(ours.dones.unsqueeze(-1))
  storage.values.copy_(ours.values.unsqueeze(-1))
  storage.actions_log_prob.copy_(ours.log_prob.unsqueeze(-1))
  storage.distribution_params = (ours.mean.clone(), alg.std.expand_as(ours.mean))
  return rsl_rl.algorithms.PPO(actor, critic, storage)


def test_idle_constraints_update_as_rsl_rl_does(agent):
  ours = agent.build(obs_normalization=False)
  last_obs = agent.rollout(ours)
  theirs = rsl_rl_twin(ours, agent)
  before = agent.weights(ours)

  theirs.compute_returns(TensorDict(last_obs, [agent.num_envs]))
  torch.testing.assert_close(
    ours.storage.returns, theirs.storage.returns.squeeze(-1), rtol=1e-6, atol=1e-6
  )
  torch.manual_seed(3)
  losses = theirs.update()
  torch.manual_seed(3)
  metrics = ours.update()

  after = torch.cat(
    [
      p.detach().flatten()
      for net in (theirs.actor, theirs.critic)
      for p in net.parameters()
    ]
  )
  change, expected = agent.weights(ours) - before, after - before
  assert expected.norm() > 0.1
  assert (change - expected).norm() < 1e-6 * expected.norm()
  assert float(ours.learning_rate) == pytest.approx(theirs.learning_rate, rel=1e-6)
  for name, loss in losses.items():
    assert float(metrics[f"Loss/{name}"]) == pytest.approx(loss, rel=1e-5)


def one_step(alg, agent, reward, delta, time_out, value):
  """The stored reward of one step with a made-up value of the state."""
  obs = {k: torch.zeros_like(v[0]) for k, v in alg.storage.observations.items()}
  alg.act(obs)
  alg._values.fill_(value)
  ones = torch.ones(agent.num_envs)
  extras = {
    "time_outs": (ones * time_out).bool(),
    "constraints": {"delta": ones * delta},
  }
  alg.process_env_step(obs, ones * reward, (ones * time_out).bool(), extras)
  return float(alg.storage.rewards[0, 0])


@pytest.mark.parametrize(
  ("cfg", "reward", "expected"),
  [
    # γ (1 − δ̄) V = 0.99 · 0.75 · 4 = 2.97 comes on top of the ruled reward.
    (PpoCfg(survival=True, reward_rule="raw"), -2.0, -2.0 + 2.97),
    (PpoCfg(survival=True, reward_rule="clip"), -2.0, 0.0 + 2.97),
    (PpoCfg(survival=True, reward_rule="clip"), 2.0, 2.0 + 2.97),
    (PpoCfg(survival=True, reward_rule="scale-clip"), 2.0, 1.5 + 2.97),
    (PpoCfg(survival=True, reward_rule="scale-clip"), -2.0, 0.0 + 2.97),
    # Without survival the bootstrap is rsl_rl's: 0.99 · 4 = 3.96.
    (PpoCfg(survival=False, reward_rule="scale-clip"), 2.0, 1.5 + 3.96),
    (PpoCfg(survival=False), -2.0, -2.0 + 3.96),
  ],
)
def test_reward_rule_comes_before_the_time_out_bootstrap(agent, cfg, reward, expected):
  stored = one_step(agent.build(cfg), agent, reward, 0.25, True, 4.0)
  assert stored == pytest.approx(expected)


def test_plain_ppo_asks_for_no_constraints(agent):
  alg = agent.build(PpoCfg(survival=False))
  obs, rewards, dones, _ = agent.make_step(0)
  alg.act(obs)
  alg.process_env_step(obs, rewards, dones, {})
  torch.testing.assert_close(alg.storage.rewards[0], rewards)


def test_a_bad_end_stays_bad_though_rewards_are_clipped(agent):
  """max(2, 0) + 0.99 · 0.75 · (−4): the value after a time-out is no reward."""
  alg = agent.build(PpoCfg(survival=True, reward_rule="clip"))
  assert one_step(alg, agent, 2.0, 0.25, True, -4.0) == pytest.approx(2.0 - 2.97)


def test_a_rollout_keeps_what_the_networks_said(agent):
  alg = agent.build()
  torch.manual_seed(0)
  for seed in range(2):
    obs = agent.make_obs(seed)
    actions = alg.act(obs)
    alg.process_env_step(*agent.make_step(seed))
    with torch.no_grad():
      expected = alg.critic(obs).squeeze(-1)
      mean = alg.actor(obs)
    torch.testing.assert_close(alg.storage.values[seed], expected)
    torch.testing.assert_close(alg.storage.mean[seed], mean)
    assert torch.equal(alg.storage.actions[seed], actions)
    normal = torch.distributions.Normal(mean, alg.std)
    log_prob = normal.log_prob(actions).sum(-1)
    torch.testing.assert_close(alg.storage.log_prob[seed], log_prob.detach())


def test_falls_and_time_outs_are_heard_apart(agent):
  """Without "fell", what ended and did not time out has fallen."""
  alg = agent.build()
  heard = []
  alg.progress.hear = lambda progress, fell: heard.append((progress, fell))
  obs, rewards, _, extras = agent.make_step(0)
  dones = torch.arange(agent.num_envs) < 4
  for time_outs in (torch.arange(agent.num_envs) < 2, None):
    more = {} if time_outs is None else {"time_outs": time_outs}
    alg.act(obs)
    extras = {"constraints": extras["constraints"], "progress": "far", **more}
    alg.process_env_step(obs, rewards, dones, extras)
  assert [progress for progress, _ in heard] == ["far", "far"]
  assert heard[0][1].nonzero().flatten().tolist() == [2, 3]
  assert heard[1][1].nonzero().flatten().tolist() == [0, 1, 2, 3]


def test_a_step_that_goes_on_is_not_bootstrapped(agent):
  assert one_step(agent.build(), agent, 2.0, 0.25, False, 4.0) == 2.0


def test_delta_is_stored_as_it_is_only_where_it_cuts_returns(agent):
  surviving = agent.build(PpoCfg(survival=True))
  one_step(surviving, agent, 1.0, 0.7, False, 0.0)
  assert float(surviving.storage.delta[0, 0]) == pytest.approx(0.7)
  plain = agent.build(PpoCfg(survival=False))
  one_step(plain, agent, 1.0, 0.7, False, 0.0)
  assert float(plain.storage.delta[0, 0]) == 0.0


@pytest.mark.parametrize(
  ("rate", "kl", "expected"),
  [
    (1e-3, 0.021, 1e-3 / 1.5),  # above twice 0.01
    (1e-3, 0.019, 1e-3),
    (1e-3, 0.006, 1e-3),
    (1e-3, 0.004, 1.5e-3),  # below half of it
    (1e-3, 0.0, 1e-3),  # rsl_rl leaves the rate alone at exactly zero
    (1.2e-5, 1.0, 1e-5),
    (9e-3, 1e-4, 1e-2),
  ],
)
def test_learning_rate_follows_the_kl(agent, rate, kl, expected):
  alg = agent.build()
  alg.learning_rate.fill_(rate)
  alg.adapt_learning_rate(torch.tensor(kl))
  assert float(alg.learning_rate) == pytest.approx(expected)
  (group,) = alg.optimizer.param_groups
  assert group["lr"] is alg.learning_rate and not group["capturable"]


def test_fixed_schedule_keeps_the_rate(agent):
  alg = agent.build(PpoCfg(schedule="fixed", learning_rate=3e-4))
  agent.rollout(alg)
  assert float(alg.update()["Policy/learning_rate"]) == pytest.approx(3e-4)


def test_first_mini_batch_sees_the_policy_that_acted(agent):
  """The normaliser moves after the update, not between rollout and update."""
  alg = agent.build()
  for iteration in range(3):
    agent.rollout(alg, seed=iteration)
    batch = alg.samples()
    evaluation = alg.evaluate(batch)
    torch.testing.assert_close(evaluation.mean, batch.mean, rtol=0, atol=1e-6)
    torch.testing.assert_close(
      evaluation.ratio, torch.ones_like(evaluation.ratio), rtol=0, atol=1e-5
    )
    alg.update()
  assert int(alg.actor.obs_normalizer.count) == 3 * agent.num_envs * agent.num_steps


@pytest.mark.parametrize("cfg", EVERY_ALGORITHM, ids=lambda cfg: cfg.class_name)
def test_neither_rollout_nor_update_waits_for_the_device(agent, cfg):
  alg = agent.build(cfg)
  obs = agent.make_obs(0)
  step = agent.make_step(0)
  agent.rollout(alg)
  alg.update()  # the first one allocates

  def iteration():
    alg.act(obs)
    alg.process_env_step(*step)
    alg.compute_returns(obs)
    alg.update()

  assert waits(iteration) == []


@pytest.mark.parametrize("cfg", EVERY_ALGORITHM, ids=lambda cfg: cfg.class_name)
def test_an_update_rebinds_no_buffer(agent, cfg):
  """A recorded update reads and writes the memory that it was recorded with."""
  alg = agent.build(cfg)

  def addresses():
    tensors = [alg.learning_rate, *vars(alg.storage).values()]
    for net in alg.networks.values():
      tensors += [*net.parameters(), *net.buffers()]
    for state in alg.optimizer.state.values():
      tensors += state.values()
    tensors += [v for v in vars(alg).values() if isinstance(v, torch.Tensor)]
    return [t.data_ptr() for t in tensors if isinstance(t, torch.Tensor)]

  agent.rollout(alg)
  alg.update()
  before = addresses()
  agent.rollout(alg, seed=1)
  alg.update()
  assert addresses() == before


def test_more_mini_batches_than_samples_are_refused(agent):
  with pytest.raises(ValueError, match="96 samples per iteration are too few"):
    agent.build(PpoCfg(num_mini_batches=97))
  assert agent.build(PpoCfg(num_mini_batches=96)).num_mini_batches == 96


def test_gradients_are_averaged_before_they_are_used(agent, monkeypatch):
  """Processes whose mean gradient is zero learn nothing."""

  def cancel(tensors):
    for tensor in tensors:
      tensor.zero_()

  monkeypatch.setattr(collective, "average", cancel)
  alg = agent.build()
  agent.rollout(alg)
  before = agent.weights(alg)
  alg.update()
  assert torch.equal(agent.weights(alg), before)


def test_the_learning_rate_follows_the_divergence_of_all(agent, monkeypatch):
  """One process alone would be far from what it wants; in the mean all are."""
  heard = []

  def of_all(tensors):
    tensors[0].fill_(1.0)  # A large divergence of each action.

  monkeypatch.setattr(collective, "average", of_all)
  alg = agent.build(PpoCfg(schedule="adaptive", num_learning_epochs=1))
  monkeypatch.setattr(
    alg.optimizer, "step", lambda: heard.append(float(alg.learning_rate))
  )
  agent.rollout(alg)
  rate = float(alg.learning_rate)
  alg.update()
  # Slower at once: the step of the same mini-batch already takes the new rate.
  assert heard[0] == pytest.approx(rate / 1.5)
