"""PPO between updates: what it logs, tells its aids, and keeps of itself."""

import copy

import pytest
import torch
from rsl_rl.models import MLPModel
from tensordict import TensorDict

from decap.constraints import BodyGroupCfg, Composition
from decap.rl.config import FeasibilityCfg, LagrangianCfg, PpoCfg
from decap.rl.feasibility import Feasibility
from tests.rl.test_ppo import EVERY_ALGORITHM


def test_the_logged_kl_is_from_the_policy_that_acted(agent):
  """KL(old ‖ new), which differs from KL(new ‖ old) where σ has changed."""
  from torch.distributions import Normal, kl_divergence

  alg = agent.build()
  agent.rollout(alg)
  alg.begin_update()
  alg._old_std.copy_(alg.std)
  batch = alg.samples()
  with torch.no_grad():
    alg.actor.gaussian.std_param.mul_(3.0)
  evaluation = alg.evaluate(batch)
  alg._kl_sum.zero_()
  alg.update_mini_batch(batch)
  expected = kl_divergence(
    Normal(batch.mean, alg._old_std), Normal(evaluation.mean, evaluation.std)
  ).mean(dim=0)
  torch.testing.assert_close(alg._kl_sum, expected.detach())


class Aid:
  """Stands at the feasibility aid: half of δ̄, and what it was told between."""

  def __init__(self):
    self.told = []

  def apply(self, quantities, delta):
    return delta / 2.0

  def between_iterations(self, progress):
    self.told.append(progress)

  def metrics(self):
    return {"Constraint/budget": 0.3}


def test_without_an_aid_the_best_stays(agent):
  assert agent.build().progress.fade == 1.0


def test_aids_hear_of_every_iteration(agent):
  alg = agent.build(PpoCfg(survival=True, entropy_coef=0.01, entropy_final=0.001))
  alg.feasibility = Aid()
  counted = []
  alg.progress.between_iterations = lambda: counted.append(1)
  alg.progress.steady_iterations.fill_(1e9)
  alg.between_iterations(0.5)
  assert alg.feasibility.told == [alg.progress] and counted == [1]
  assert float(alg._weight("entropy")) == pytest.approx(-0.001)


def test_the_logged_delta_is_what_is_applied(agent):
  """Half of the environment's δ̄, averaged over steps, and from zero every iteration."""
  alg = agent.build(PpoCfg(survival=True))
  alg.feasibility = Aid()
  seen = []
  for deltas in ((0.2, 0.4), (0.6, 0.6)):
    for delta in deltas:
      ones = torch.ones(agent.num_envs)
      seen.append(alg.termination({"delta": delta * ones, "quantities": {}}))
    logged = alg.metrics()["Constraint/delta_applied"]
    assert float(logged) == pytest.approx(sum(deltas) / 4.0)
  torch.testing.assert_close(seen[1], torch.full_like(seen[1], 0.2))
  assert "Constraint/delta_applied" not in agent.build(PpoCfg()).metrics()
  alg.termination({"delta": torch.ones(agent.num_envs), "quantities": {}})
  assert float(alg.metrics()["Constraint/delta_applied"]) == 0.5  # Of a single step.


def test_kl_and_noise_are_told_apart_by_group(agent):
  alg = agent.build(init_std={"joint_[02]": 0.1, "joint_1": 0.5})
  agent.rollout(alg)
  metrics = alg.update()
  assert float(metrics["Policy/std/upper"]) == pytest.approx(0.1, abs=0.02)
  assert float(metrics["Policy/std/lower"]) == pytest.approx(0.5, abs=0.02)
  total = metrics["Policy/kl/upper"] + metrics["Policy/kl/lower"]
  torch.testing.assert_close(total, metrics["Policy/kl"])


def test_the_log_is_of_one_update(agent):
  """Losses and KL are means over its mini-batches: what came before has no part."""
  alg = agent.build(PpoCfg(num_mini_batches=1, num_learning_epochs=1))
  agent.rollout(alg)
  alg._loss_sums.fill_(1e6)
  alg._kl_sum.fill_(1e6)
  log = alg.update()
  # The only mini-batch was seen by the policy that acted.
  assert float(log["Policy/kl"]) == pytest.approx(0.0, abs=1e-5)
  assert float(log["Loss/value"]) < 1e3
  alg._kl_sum.copy_(torch.tensor([0.1, 0.2, 0.3]))
  alg.num_learning_epochs, alg.num_mini_batches = 2, 3
  log = alg.metrics()
  assert float(log["Policy/kl"]) == pytest.approx(0.6 / 6)
  torch.testing.assert_close(log["Policy/std"], alg.std.mean())


def test_the_log_tells_of_the_task_the_aid_and_exploration(agent):
  alg = agent.build(PpoCfg(survival=True, entropy_coef=0.02))
  alg.feasibility = Aid()
  log = alg.metrics()
  assert log["Constraint/budget"] == 0.3
  assert float(log["Task/upright"]) == 0.0
  assert float(log["Policy/entropy_coef"]) == pytest.approx(0.02)


def test_a_rollout_that_was_cut_off_is_forgotten(agent):
  alg = agent.build()
  alg.act(agent.make_obs(0))
  alg.process_env_step(*agent.make_step(0))
  assert int(alg.storage.step) == 1
  alg.fit_normalisers([])
  assert int(alg.storage.step) == 0


@pytest.mark.parametrize("cfg", EVERY_ALGORITHM, ids=lambda cfg: cfg.class_name)
def test_state_dict_continues_exactly(agent, cfg, tmp_path):
  one = agent.build(cfg, seed=0)
  agent.rollout(one, seed=0)
  one.update()
  torch.save(one.state_dict(), tmp_path / "model.pt")

  other = agent.build(cfg, seed=1)
  other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
  for alg in (one, other):
    for seed in (1, 2):
      agent.rollout(alg, seed=seed)
      alg.update()
  assert torch.equal(agent.weights(one), agent.weights(other))
  states = [
    [t for t in vars(alg).values() if isinstance(t, torch.Tensor)]
    for alg in (one, other)
  ]
  for ours, theirs in zip(*states, strict=True):
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", ["optimizer", "multiplier_optimizer"])
def test_moments_of_another_shape_are_refused(agent, name):
  """Fused Adam would read and write beyond them."""
  alg = agent.build(LagrangianCfg())
  agent.rollout(alg)
  alg.update()
  state = copy.deepcopy(alg.state_dict())
  state[f"{name}_state_dict"]["state"][0]["exp_avg"] = torch.zeros(1)
  with pytest.raises(ValueError, match="moments of weight 0 have another shape"):
    alg.load_state_dict(state)


def test_rsl_rl_loads_the_saved_actor(agent):
  alg = agent.build()
  agent.rollout(alg)
  alg.update()
  obs = TensorDict(agent.make_obs(4), [agent.num_envs])
  actor = MLPModel(
    obs,
    {"actor": ["actor"]},
    "actor",
    agent.num_actions,
    (16, 8),
    obs_normalization=True,
    distribution_cfg={"class_name": "GaussianDistribution"},
  )
  actor.load_state_dict(copy.deepcopy(alg.save()["actor_state_dict"]))
  torch.testing.assert_close(actor(obs), alg.actor(obs))


def aided(agent, seed: int):
  alg = agent.build(
    PpoCfg(
      survival=True, entropy_coef=0.01, entropy_final=0.0001, entropy_iterations=10
    ),
    seed,
  )
  groups = {"all": BodyGroupCfg((".*",), p_max=0.5)}
  limits = Composition({"rate": {"all": 10.0}}, groups, ("a", "b", "c"))
  alg.feasibility = Feasibility(FeasibilityCfg(quantile=None), limits)
  return alg


def test_what_robots_have_achieved_goes_on(agent):
  """Steps to the end of exploration and the aid's budget are part of the state."""
  one, other = aided(agent, 0), aided(agent, 1)
  one.feasibility.budget.fill_(0.123)
  one.progress.steady_iterations.fill_(5.0)
  one.progress.best.fill_(0.7)
  assert other.load(copy.deepcopy(one.save()), None, strict=True) is True
  assert float(other.feasibility.budget) == pytest.approx(0.123)
  assert float(other.progress.steady_iterations) == 5.0
  assert float(other.progress.best[0]) == pytest.approx(0.7)
  # Half-way by factors.
  assert float(other._weight("entropy")) == pytest.approx(-0.001)
  assert torch.equal(agent.weights(one), agent.weights(other))


@pytest.mark.parametrize(("load_cfg", "strict"), [({}, True), (None, False)])
def test_parts_of_a_state_are_refused(agent, load_cfg, strict):
  alg = agent.build()
  with pytest.raises(ValueError, match="whole checkpoints"):
    alg.load(alg.save(), load_cfg, strict)
