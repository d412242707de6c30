"""DeCap in rsl_rl's own loop: over the toy's arm, and over mjlab's wrapper."""

import math
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import onnxruntime
import pytest
import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

from decap.errors import UserError
from decap.testing import waits

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import toy

PAGE = Path(__file__).parents[2] / "docs" / "isaac-lab.md"
OURS = "decap.rl.stock_runner:SurvivalPPO"
STEPS = 16


class Env(VecEnv):
  """The toy's arm as rsl_rl has environments; its one group is Isaac Lab's."""

  num_actions, device, cfg = len(toy.JOINTS), "cpu", {}
  max_episode_length = toy.Arm.episode_steps

  def __init__(self, num_envs: int = 16) -> None:
    torch.manual_seed(1)
    self.num_envs = num_envs
    self.arm = toy.Arm(num_envs, toy.METHODS["DeCap"])
    self.composition = self.arm.composition

  @property
  def episode_length_buf(self):
    return self.arm.age.squeeze(1)

  @episode_length_buf.setter
  def episode_length_buf(self, value):
    self.arm.age = value.unsqueeze(1)

  def get_observations(self):
    return TensorDict({"policy": self.arm.observe()["actor"]}, [self.num_envs])

  def step(self, actions):
    _, reward, dones, extras = self.arm.step(actions)
    return self.get_observations(), reward, dones.long(), extras


def make_cfg(class_name: str = OURS, noise=0.3, **algorithm) -> dict:
  network = {
    "class_name": "MLPModel",
    "hidden_dims": [32, 32],
    "activation": "elu",
    "obs_normalization": True,
  }
  distribution = {"class_name": "GaussianDistribution", "init_std": noise}
  return {
    "num_steps_per_env": STEPS,
    "save_interval": 100,
    "max_iterations": 10,
    "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
    "actor": {**network, "distribution_cfg": {**distribution, "std_type": "log"}},
    "critic": {**network, "hidden_dims": [16]},
    "algorithm": {"class_name": class_name, **toy.COMMON, **algorithm},
  }


def make_runner(cfg: dict | None = None, env=None, log_dir=None) -> OnPolicyRunner:
  torch.manual_seed(1)
  log_dir = None if log_dir is None else str(log_dir)
  return OnPolicyRunner(env or Env(), cfg or make_cfg(), log_dir, "cpu")


def test_a_config_says_what_networks_and_algorithm_are():
  cfg = make_cfg(lam=0.9, action_names=toy.JOINTS, noise={"reach": 0.4, "carry": 0.1})
  alg = make_runner(cfg).alg
  assert alg.lam == 0.9 and alg.gamma == toy.COMMON["gamma"]
  assert alg.std.tolist() == pytest.approx([0.4, 0.1])
  widths = [layer.out_features for layer in alg.critic.mlp if hasattr(layer, "weight")]
  assert widths == [16, 1]
  assert alg.cfg.survival and alg.cfg.reward_rule == "clip"


def test_groups_of_observations_are_joined_as_the_config_says():
  class Privileged(Env):
    def get_observations(self):
      groups = {"policy": self.arm.observe()["actor"], "extra": self.arm.target}
      return TensorDict({**groups, "unused": self.arm.age}, [self.num_envs])

  cfg = make_cfg()
  cfg["obs_groups"]["critic"] = ["policy", "extra"]
  runner = make_runner(cfg, Privileged())
  runner.learn(2)
  assert runner.alg.critic.obs_dim == runner.alg.actor.obs_dim + 1
  assert set(runner.alg.storage.observations) == {"policy", "extra"}


def test_delta_is_in_the_returns():
  """With λ = 1, R_t = r_t + γ (1 − d_t) (1 − δ̄_t) R_{t+1}."""
  env = Env()
  alg = make_runner(make_cfg(lam=1.0, feasibility=None), env).alg
  seen, obs = [], env.get_observations()
  with torch.inference_mode():
    for _ in range(STEPS):
      value = alg.critic(obs).squeeze(1)
      obs, reward, done, extras = env.step(alg.act(obs))
      alg.process_env_step(obs, reward, done, extras)
      delta = extras["constraints"]["delta"].clone()
      late = extras["time_outs"] * alg.gamma * (1 - delta) * value
      seen.append((reward + late, done, delta))
    alg.compute_returns(obs)
    following = alg.critic(obs).squeeze(1)
    for t, (reward, done, delta) in reversed(list(enumerate(seen))):
      following = reward + alg.gamma * (1 - done) * (1 - delta) * following
      torch.testing.assert_close(alg.storage.returns[t], following)
  assert max(float(delta.max()) for *_, delta in seen) == 1.0


def violation_and_task(runner: OnPolicyRunner) -> tuple[float, float]:
  """Of the mean action: how often the calm joint is too fast, and the task's reward."""
  env, policy = Env(64), runner.get_inference_policy()
  above, reward = [], []
  with torch.inference_mode():
    for _ in range(100):
      _, r, _, extras = env.step(policy(env.get_observations()))
      above.append(extras["constraints"]["costs"][:, 3].mean())
      reward.append(r.mean())
  return float(torch.stack(above).mean()), float(torch.stack(reward).mean())


def test_it_violates_less_than_rsl_rl_and_does_the_task():
  aid = {"budget": 0.04, "quantile": None}
  runners = [
    make_runner(make_cfg("PPO"), Env(128)),
    make_runner(make_cfg(feasibility=aid), Env(128)),
  ]
  for runner in runners:
    runner.learn(60)
  (above, task), (our_above, our_task) = map(violation_and_task, runners)
  assert our_above < 0.5 * above
  assert our_task > 0.6 * task


def logged(runner: OnPolicyRunner, iterations: int) -> list[dict[str, float]]:
  """What each iteration of a training logs among the losses."""
  update, log = runner.alg.update, []
  runner.alg.update = lambda: log.append(update()) or log[-1]
  runner.learn(iterations)
  return log


def test_violations_are_logged_without_survival_too():
  plain = {"survival": False, "reward_rule": "raw", "feasibility": None}
  log = logged(make_runner(make_cfg(**plain)), 2)
  assert 0.0 < log[-1]["Constraint/joint_velocity/carry/violation"] < 1.0


def test_an_environment_that_reports_nothing_is_named():
  class Silent(Env):
    def step(self, actions):
      obs, reward, dones, extras = super().step(actions)
      del extras["constraints"]
      return obs, reward, dones, extras

  with pytest.raises(UserError, match=r"Silent reports no extras\['constraints'\]"):
    make_runner(env=Silent()).learn(1)


def test_more_mini_batches_than_samples_are_refused():
  with pytest.raises(ValueError, match="256 samples per iteration are too few for 300"):
    make_runner(make_cfg(num_mini_batches=300))


def test_an_update_reads_back_once():
  """From the second on; the first asks whether there are normalisers to fit."""
  runner = make_runner()
  runner.learn(2)
  (found,) = waits(runner.alg.update)
  assert found.startswith(".tolist() in stock_runner.py")


def test_a_run_is_logged_saved_and_goes_on(tmp_path):
  def start(log_dir=None):
    env = Env()
    cfg = make_cfg(p_max_ramp=(0.2, 0.5))
    return env, make_runner(cfg, env, log_dir)

  env, runner = start(tmp_path)
  losses, log = [], runner.logger.log
  runner.logger.log = lambda **values: (
    losses.append(values["loss_dict"]),
    log(**values),
  )
  runner.learn(4, init_at_random_ep_len=True)
  assert losses[0] == {}  # normalisers alone
  assert all(type(value) is float for value in losses[-1].values())
  assert {"surrogate", "Constraint/budget"} <= losses[-1].keys()
  assert 0.0 < losses[-1]["Constraint/joint_velocity/carry/violation"] < 1.0
  other_env, other = start()
  other.load(str(tmp_path / "model_3.pt"))
  # 3 of 10 iterations: the lifetime is 5 − 0.6 · 4 times as long.
  whole = torch.tensor([0.25, 0.5, 0.25, 0.5])
  torch.testing.assert_close(other_env.composition.p_max, whole / 2.6)
  torch.testing.assert_close(env.composition.p_max, whole / 2.6)
  for saved, loaded in zip(
    runner.alg.actor.state_dict().values(),
    other.alg.actor.state_dict().values(),
    strict=True,
  ):
    assert torch.equal(saved, loaded)
  assert other.alg.learning_rate == runner.alg.learning_rate
  torch.testing.assert_close(
    other.alg.feasibility.state_dict(), runner.alg.feasibility.state_dict()
  )
  other.learn(2)
  assert other.alg.iteration == 5


def test_exported_policies_give_the_mean(tmp_path):
  noise = {"reach": 0.4, "carry": 0.1}
  runner = make_runner(make_cfg(action_names=toy.JOINTS, noise=noise))
  runner.learn(2)
  obs = runner.env.get_observations()
  with torch.no_grad():
    mean = runner.get_inference_policy()(obs)
  runner.export_policy_to_jit(str(tmp_path))
  torch.testing.assert_close(
    torch.jit.load(tmp_path / "policy.pt")(obs["policy"]), mean
  )
  runner.export_policy_to_onnx(str(tmp_path))
  session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
  (action,) = session.run(None, {"obs": obs["policy"][:1].numpy()})
  torch.testing.assert_close(torch.from_numpy(action), mean[:1])


def test_the_budget_moves_only_by_what_the_environment_reports():
  alone = make_runner().alg
  assert alone.feasibility.cfg.target is None
  env = Env()
  env.progress_names = ("forward",)
  guarded = make_runner(make_cfg(feasibility={"budget": 0.01}), env).alg
  assert guarded.feasibility.cfg.target == 0.85
  assert guarded.feasibility.cfg.budget == 0.01
  assert guarded.progress.names == ("forward", "upright")
  asked = make_runner(make_cfg(feasibility={"target": 0.9})).alg
  assert asked.feasibility.cfg.target == 0.9


def change(cfg: dict, where: str, value) -> dict:
  *path, last = where.split(".")
  inner = cfg
  for name in path:
    inner = inner[name]
  inner[last] = value
  return cfg


@pytest.mark.parametrize(
  ("where", "value", "sentence"),
  [
    ("algorithm.rnd_cfg", {"weight": 1.0}, "rnd_cfg=None only"),
    ("algorithm.symmetry_cfg", {"use_mirror_loss": True}, "symmetry_cfg=None only"),
    ("algorithm.optimizer", "sgd", "optimizer='adam' only, not 'sgd'"),
    ("algorithm.mirror_loss_coef", 1.0, "mirror_loss_coef=0.0 only"),
    ("algorithm.lamda", 0.9, "value of the algorithm 'lamda' .did you mean 'lam'"),
    ("algorithm.action_names", ["reach"], "2 actions, but 1 action_names"),
    ("torch_compile_mode", "default", "torch_compile_mode=None only"),
    ("actor.class_name", "RNNModel", "needs a MLPModel, not RNNModel"),
    ("critic.class_name", "rsl_rl.models:CNNModel", "needs a MLPModel, not rsl_rl"),
    (
      "actor.distribution_cfg.class_name",
      "HeteroscedasticGaussianDistribution",
      "needs a GaussianDistribution",
    ),
  ],
)
def test_what_cannot_be_carried_is_refused(where, value, sentence):
  with pytest.raises(UserError, match=sentence):
    make_runner(change(make_cfg(), where, value))


def test_several_gpus_are_refused():
  cfg = make_cfg() | {"multi_gpu": {"world_size": 2}}
  with pytest.raises(UserError, match="multi_gpu=None only"):
    construct(cfg, Env())


def test_what_follows_the_run_needs_its_length():
  cfg = make_cfg(p_max_ramp=(0.2, 0.5))
  del cfg["max_iterations"]
  with pytest.raises(UserError, match="need the runner's max_iterations"):
    make_runner(cfg)


def test_an_environment_without_composition_is_named():
  env = Env()
  del env.composition
  with pytest.raises(UserError, match="Env has no `composition`"):
    make_runner(env=env)


def construct(cfg, env):
  from decap.rl.stock_runner import SurvivalPPO

  return SurvivalPPO.construct_algorithm(env.get_observations(), env, cfg, "cpu")


def test_limits_on_another_device_are_named():
  env = Env()
  env.composition.limit = env.composition.limit.to("meta")
  with pytest.raises(UserError, match="limits are on meta, the agent on cpu"):
    construct(make_cfg(), env)


def test_mjlabs_wrapper_of_a_constrained_environment():
  from mjlab.rl import RslRlVecEnvWrapper

  from decap.envs.constrained_env import ConstrainedEnv
  from tests.envs import cartpole

  env = ConstrainedEnv(cartpole.make_cfg(), "cpu")
  calls = []
  env.between_iterations = lambda: calls.append(env.common_step_counter)
  cfg = make_cfg()
  cfg["obs_groups"] = {"actor": ["actor"], "critic": ["critic"]}
  runner = make_runner(cfg, RslRlVecEnvWrapper(env))
  flush, flushed = env.flush_log, []
  env.flush_log = lambda: flushed.append(env.common_step_counter) or flush()
  runner.learn(2)
  before = runner.alg.actor.state_dict()["mlp.0.weight"].clone()
  log = logged(runner, 1)
  assert calls == [2 * STEPS, 3 * STEPS]
  # What the rollout measured that only fits the normalisers is not logged later.
  assert flushed == [STEPS, 2 * STEPS, 3 * STEPS]
  assert {"Constraint/joint_vel/all/mean", "Train/reward"} <= log[0].keys()
  assert not torch.equal(runner.alg.actor.state_dict()["mlp.0.weight"], before)


def test_the_term_of_the_page_measures_what_isaac_lab_has(monkeypatch):
  """Its code, with a stand-in for Isaac Lab's managers and a robot of two joints."""

  class ManagerTermBase:
    def __init__(self, cfg, env):
      self.cfg, self._env = cfg, env

  managers = ModuleType("isaaclab.managers")
  managers.ManagerTermBase = ManagerTermBase
  managers.TerminationTermCfg = lambda func, params: SimpleNamespace(
    func=func, params=params
  )
  monkeypatch.setitem(sys.modules, "isaaclab", ModuleType("isaaclab"))
  monkeypatch.setitem(sys.modules, "isaaclab.managers", managers)
  names: dict = {}
  for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
    exec(block, names)
  data = SimpleNamespace(
    joint_acc=torch.tensor([[-5.0, 0.0], [0.0, 0.0]]),
    applied_torque=torch.tensor([[0.0, -10.0], [0.0, 0.0]]),
    joint_vel=torch.tensor([[-1.0, 0.0], [3.0, 0.0]]),
  )
  joints = ["left_elbow", "left_hip_pitch"]
  names["GROUPS"] = {
    "upper": names["BodyGroupCfg"]((".*_elbow",), p_max=0.5),
    "lower": names["BodyGroupCfg"]((".*_hip_.*",), p_max=0.25),
  }
  env = SimpleNamespace(
    num_envs=2,
    device="cpu",
    step_dt=0.02,
    extras={},
    scene={"robot": SimpleNamespace(data=data, joint_names=joints)},
    episode_length_buf=torch.tensor([1, 2]),
    action_manager=SimpleNamespace(
      action=torch.tensor([[1.0, 0.0], [0.0, 0.2]]), prev_action=torch.zeros(2, 2)
    ),
  )
  cfg = names["constraints"]
  term = cfg.func(cfg, env)
  assert term(env, **cfg.params).tolist() == [False, False]
  report = env.extras["constraints"]
  # 0.2 · 0.5 rad in 0.02 s; nothing on the first step.
  expected = torch.tensor([[0.0, 0.0], [0.0, 5.0]])
  torch.testing.assert_close(report["quantities"]["action_rate"], expected)
  assert report["margins"]["joint_torque"].tolist() == [[0.0, 0.5], [0.0, 0.0]]
  assert report["margins"]["joint_acc"].tolist() == [[0.25, 0.0], [0.0, 0.0]]
  assert report["costs"].sum(0).tolist() == [0.0] * 6 + [1.0, 0.0]
  assert report["delta"].tolist() == [0.0, 1.0]
  agent = SimpleNamespace(algorithm=SimpleNamespace(class_name="PPO"))
  names["use_decap"](agent)
  assert agent.algorithm.class_name == OURS
  assert math.isclose(env.composition.p_max[0], 0.5)
