"""The loop trains whatever has the Protocol's members, and uses no others."""

from types import SimpleNamespace

import pytest
import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

from decap.constraints import BodyGroupCfg
from decap.constraints.composition import Composition
from decap.errors import UserError
from decap.rl import checkpoint
from decap.rl.build import algorithm_for
from decap.rl.config import AgentCfg, FeasibilityCfg, PolicyCfg, PpoCfg
from decap.rl.environment import Environment
from decap.rl.runner import Runner

JOINTS = ("left", "right")


class Points:
  """Two joints that go where they are told; fast ones violate their limit."""

  num_envs, device, max_episode_length, common_step_counter = 8, "cpu", 10, 0
  progress_names: tuple[str, ...] = ()
  waiting_terms: list[str] = []

  def __init__(self) -> None:
    self.cfg = SimpleNamespace(is_finite_horizon=False)
    self.sim = None
    self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.long)
    self.position = torch.zeros(self.num_envs, len(JOINTS))
    groups = {"all": BodyGroupCfg((".*",), p_max=0.5)}
    composition = Composition({"speed": {"all": 0.1}}, groups, JOINTS)
    self.constraint_manager = SimpleNamespace(groups=groups, composition=composition)
    term = SimpleNamespace(target_names=JOINTS)
    self.action_manager = SimpleNamespace(
      total_action_dim=2, active_terms=["joints"], get_term=lambda name: term
    )

  def reset(self, *, seed=None):
    torch.manual_seed(seed)
    return {"actor": self.position}, {}

  def step(self, action):
    composition = self.constraint_manager.composition
    speed = (action - self.position).abs()
    self.position = action.clone()
    self.common_step_counter += 1
    self.episode_length_buf += 1
    late = self.episode_length_buf >= self.max_episode_length
    self.episode_length_buf[late] = 0
    constraints = {
      "delta": composition.probabilities(speed).amax(1),
      "costs": composition.costs(speed),
      "quantities": {"speed": speed},
    }
    reward = -(action - 1.0).square().sum(1)
    never = torch.zeros(self.num_envs, dtype=torch.bool)
    return {"actor": self.position}, reward, never, late, {"constraints": constraints}

  def between_iterations(self):
    pass

  def set_step_count(self, steps):
    self.common_step_counter = steps

  def mirrors(self):
    return {}

  def close(self):
    pass

  def flush_log(self):
    return {}

  def not_finite(self):
    return {}

  def state_dict(self):
    return {"position": self.position}

  def load_state_dict(self, saved):
    self.position = saved["position"]


def test_an_environment_with_nothing_but_the_protocol_is_trained_and_resumed(tmp_path):
  cfg = AgentCfg(
    iterations=2,
    num_steps_per_env=6,
    policy=PolicyCfg(hidden_dims=(8,)),
    algorithm=PpoCfg(survival=True, feasibility=FeasibilityCfg(target=None)),
  )
  runner = Runner(Points(), cfg, tmp_path)
  before = [p.detach().clone() for p in runner.alg.actor.parameters()]
  assert runner.learn()
  after = list(runner.alg.actor.parameters())
  assert any((a != b).any() for a, b in zip(after, before, strict=True))
  again = Runner(Points(), cfg, tmp_path)
  again.resume(runner.save())
  assert again.iteration == 2
  assert all(
    torch.equal(a, b) for a, b in zip(again.alg.actor.parameters(), after, strict=True)
  )


class AsVecEnv(VecEnv):
  """The same for rsl_rl's runner."""

  num_actions, num_envs, device, cfg = 2, Points.num_envs, "cpu", {}
  max_episode_length = Points.max_episode_length

  def __init__(self, points: Points) -> None:
    self.unwrapped, self.episode_length_buf = points, points.episode_length_buf

  def get_observations(self):
    return TensorDict({"actor": self.unwrapped.position}, [self.num_envs])

  def step(self, actions):
    self.unwrapped.episode_length_buf = self.episode_length_buf
    _, rewards, never, late, extras = self.unwrapped.step(actions)
    extras["time_outs"] = late
    return self.get_observations(), rewards, (never | late).long(), extras


def test_rsl_rls_loop_learns_to_the_last_bit_what_ours_does():
  own: dict = {"learning_rate": 3e-3, "schedule": "fixed", "rate_final": 0.3}
  own["reward_rule"] = "raw"  # None of these is above 0.
  ppo = PpoCfg(survival=True, feasibility=FeasibilityCfg(target=None), **own)
  policy = PolicyCfg(hidden_dims=(8,))
  cfg = AgentCfg(iterations=3, num_steps_per_env=12, policy=policy, algorithm=ppo)
  ours = Runner(Points(), cfg)
  ours.learn()
  points, network = Points(), {"hidden_dims": [8], "obs_normalization": True}
  points.composition = points.constraint_manager.composition
  stock = {
    "num_steps_per_env": 12,
    "save_interval": 100,
    "max_iterations": 3,
    "obs_groups": {"actor": ["actor"], "critic": ["actor"]},
    "actor": {**network},
    "critic": {**network},
    "algorithm": {"class_name": "decap.rl.stock_runner:SurvivalPPO", **own},
  }
  torch.manual_seed(cfg.seed)
  theirs = OnPolicyRunner(AsVecEnv(points), stock)
  theirs.learn(4, init_at_random_ep_len=True)  # The first fits the normalisers.
  expected = ours.alg.state_dict()
  found = theirs.alg.state_dict()
  assert found.pop("iteration") == 3
  torch.testing.assert_close(found, expected, rtol=0.0, atol=0.0)


@pytest.mark.parametrize(
  ("part", "value"),
  [
    ("iter", None),
    ("infeasible", 7),
    ("watcher", []),
    ("progress", None),
    ("env", None),
    ("obs", {"actor": None}),
  ],
)
def test_a_checkpoint_with_other_contents_is_refused_by_name(part, value, tmp_path):
  runner = Runner(Points(), AgentCfg(policy=PolicyCfg(hidden_dims=(8,))), tmp_path)
  path = runner.save()
  state = checkpoint.load(path)
  checkpoint.save(path, {**state, part: value})
  with pytest.raises(UserError, match="model_0.pt does not fit this run: "):
    runner.resume(path)


def test_a_policy_without_networks_starts_nothing(tmp_path):
  runner = Runner(Points(), AgentCfg(policy=PolicyCfg(hidden_dims=(8,))))
  path = tmp_path / "weights.pt"
  checkpoint.save(path, {"iter": 1})
  with pytest.raises(UserError, match="it has no actor"):
    runner.init_from(path)


def test_joints_that_no_action_moves_may_have_groups_of_their_own():
  env = Points()
  moved, passive = (BodyGroupCfg((name,), p_max=0.5) for name in (".*t", "tail"))
  env.constraint_manager.groups = {"moved": moved, "passive": passive}
  alg = algorithm_for(env, AgentCfg(), {"actor": env.position}, ())
  assert {name: ids.tolist() for name, ids in alg.action_groups.items()} == {
    "moved": [0, 1]
  }


def test_a_single_sample_has_no_deviation_to_learn_by():
  env = Points()
  env.num_envs = 1
  cfg = AgentCfg(num_steps_per_env=1, algorithm=PpoCfg(num_mini_batches=1))
  with pytest.raises(ValueError, match="1 samples per iteration are too few"):
    algorithm_for(env, cfg, {"actor": env.position[:1]}, ())


def test_p_max_rises_with_the_algorithm_whoever_runs_its_loop():
  env = Points()
  p_max = env.constraint_manager.composition.p_max
  cfg = AgentCfg(algorithm=PpoCfg(survival=True, p_max_ramp=(0.2, 0.5)))
  alg = algorithm_for(env, cfg, {"actor": env.position}, ())
  found = [p_max.tolist()]
  for share in (0.25, 0.5, 1.0):
    alg.between_iterations(share)
    found.append(p_max.tolist())
  # Of 0.5: a fifth, then half way of 1 / p from 10 to 2, then all.
  expected = [[0.1] * 2, [1 / 6] * 2, [0.5] * 2, [0.5] * 2]
  torch.testing.assert_close(torch.tensor(found), torch.tensor(expected))


def test_the_points_have_no_more_than_the_protocol():
  """Else the test above would not show what the loop needs."""
  wanted = {n for n in Environment.__dict__ if not n.startswith("_")}
  wanted |= set(Environment.__annotations__)
  has = {n for n in (*vars(Points()), *vars(Points)) if not n.startswith("_")}
  assert has - {"position"} == wanted
