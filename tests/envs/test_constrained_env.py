"""The control step: free of waiting, resets by mask, the same as mjlab's."""

import re

import pytest
import torch
from mjlab.envs import ManagerBasedRlEnv

from decap.envs import mdp
from decap.envs.constrained_env import ConstrainedEnv
from decap.sim.backend import simulation_backend
from decap.tasks import TASKS, env_cfg
from decap.testing import waits
from tests.envs.robots import make_env

NUM_ENVS = 8


@pytest.fixture(scope="module")
def env() -> ConstrainedEnv:
  env = make_env()
  env.reset(seed=3)
  return env


def actions(env: ConstrainedEnv, scale: float = 1.0) -> torch.Tensor:
  shape = env.num_envs, env.action_manager.total_action_dim
  return scale * torch.randn(shape, device=env.device)


@pytest.mark.parametrize("task", list(TASKS))
def test_a_step_with_resets_never_waits(task):
  env = make_env(task, 4)
  env.reset(seed=1)
  env.step(actions(env))
  env.episode_length_buf[:2] = int(env.max_episode_length)
  assert waits(lambda: env.step(actions(env))) == []
  assert env.waiting_terms == []
  assert env.reset_time_outs[:2].all()


@pytest.mark.gpu
@pytest.mark.parametrize("task", list(TASKS))
def test_a_step_on_the_gpu_with_resets_never_waits(task):
  env = make_env(task, 64, "cuda:0")
  env.reset(seed=1)
  # The first steps compile kernels and hand out the slots of the log.
  for _ in range(2):
    env.step(actions(env))
  env.episode_length_buf[:2] = int(env.max_episode_length)
  action = actions(env)
  torch.cuda.set_sync_debug_mode("error")
  try:
    *_, time_outs, _ = env.step(action)
  finally:
    torch.cuda.set_sync_debug_mode("default")
  assert time_outs[:2].all()


def test_waits_finds_what_makes_the_host_wait():
  x = torch.arange(4.0)
  assert "nonzero" in waits(lambda: (x > 1).nonzero())[0]
  assert "item" in waits(lambda: x.sum().item())[0]
  assert "item" in waits(lambda: x if x.any() else None)[0]
  assert "boolean indexing" in waits(lambda: x[x > 1])[0]
  assert "host values" in waits(lambda: torch.tensor([1.0, 2.0]))[0]
  assert "normal" in waits(lambda: torch.normal(x, x + 1))[0]
  assert "equal" in waits(lambda: torch.equal(x, x))[0]
  assert "unique" in waits(lambda: torch.unique_consecutive(x))[0]
  assert "repeat_interleave" in waits(lambda: x.repeat_interleave(x.long()))[0]
  assert ".cpu() in test_constrained_env" in waits(x.cpu)[0]
  assert ".tolist() in test_constrained_env" in waits(lambda: x.tolist())[0]
  device = torch.zeros(4, device="meta")  # Another one than the host.
  assert "between devices" in waits(lambda: x.to("meta"))[0]
  assert "between devices" in waits(lambda: device.copy_(x))[0]
  assert waits(lambda: torch.where(x > 1, x, 0.0)) == []
  assert waits(lambda: x.double().copy_(x)) == []


def test_only_finished_episodes_are_reset(env):
  env.reset(seed=5)
  for _ in range(3):
    env.step(actions(env, 0.1))
  env.episode_length_buf[0] = int(env.max_episode_length) - 1
  before = env.sim.data.qpos[:].clone()
  env.step(actions(env, 0.1))
  moved = (env.sim.data.qpos[:] - before).abs().amax(1)
  assert env.episode_length_buf.tolist() == [0] + [4] * (NUM_ENVS - 1)
  # One step moves a standing robot by millimetres; a reset turns and displaces it.
  assert moved[0] > 0.1
  assert (moved[1:] < 0.1).all()
  assert (env.action_manager.action[0] == 0).all()
  assert (env.action_manager.action[1:] != 0).all()
  assert env.reward_manager._episode_sums["alive"][0] == 0
  assert (env.reward_manager._episode_sums["alive"][1:] > 0).all()


def test_the_log_holds_finished_episodes_only(env):
  env.reset(seed=5)
  env.flush_log()
  for _ in range(5):
    env.step(actions(env, 0.1))
  assert "Train/episode_length" not in env.flush_log()
  env.episode_length_buf[0] = int(env.max_episode_length) - 1
  env.step(actions(env, 0.1))
  log = env.flush_log()
  assert log["Train/episode_length"] == env.max_episode_length
  assert log["Episode_Termination/time_out"] == 1.0
  # Six steps of 0.02 s at weight 0.15, over 20 s.
  assert log["Episode_Reward/alive"] == pytest.approx(6 * 0.02 * 0.15 / 20)
  assert 0 <= log["Constraint/delta"] <= 1
  assert log["Constraint/joint_vel/upper/max"] > log["Constraint/joint_vel/upper/mean"]


def test_extras_are_what_the_documentation_says(env):
  env.reset(seed=5)
  *_, extras = env.step(actions(env))
  constraints = extras["constraints"]
  assert constraints["delta"].shape == (NUM_ENVS,)
  names = env.constraint_manager.cost_names
  assert names[:2] == ("action_rate/upper", "action_rate/lower")
  assert constraints["costs"].shape == (NUM_ENVS, len(names))
  speed = env.scene["robot"].data.joint_vel.abs()
  torch.testing.assert_close(constraints["quantities"]["joint_vel"], speed)
  elbow = env.scene["robot"].joint_names.index("left_elbow_joint")
  torch.testing.assert_close(
    constraints["margins"]["joint_vel"][:, elbow], speed[:, elbow] / 1.5
  )


def test_costs_say_where_any_joint_is_above_its_limit(env):
  env.reset(seed=5)
  *_, extras = env.step(actions(env))
  constraints = extras["constraints"]
  for group, ids in (("upper", range(15, 29)), ("lower", range(15))):
    above = (constraints["margins"]["action_rate"][:, list(ids)] > 1).any(1)
    k = env.constraint_manager.cost_names.index(f"action_rate/{group}")
    assert torch.equal(constraints["costs"][:, k], above.float())


def test_a_changed_limit_takes_effect(env):
  env.reset(seed=5)
  manager = env.constraint_manager
  manager.set_limit("joint_vel/upper", 1e-6)
  k = manager.cost_names.index("joint_vel/upper")
  *_, extras = env.step(actions(env))
  assert (extras["constraints"]["costs"][:, k] == 1).all()
  manager.set_limit("joint_vel/upper", 3.1)
  assert re.search(r"joint_vel/upper +\| +3\.1 ", str(manager))
  manager.set_limit("joint_vel/upper", 3.0)
  joint = env.scene["robot"].joint_names.index("left_elbow_joint")
  elbow = manager.composition.columns["joint_vel"].start + joint
  assert manager.composition.limit[elbow] == 3.0
  assert manager.composition.scale.floor[elbow].item() == pytest.approx(0.03)
  manager.set_limit("joint_vel/upper", 1.5)
  with pytest.raises(ValueError, match="no constraint 'joint_vel/tail'"):
    manager.set_limit("joint_vel/tail", 1.0)


def test_action_rate_is_zero_on_the_first_step(env):
  env.reset(seed=5)
  *_, extras = env.step(actions(env))
  assert (extras["constraints"]["quantities"]["action_rate"] == 0).all()
  *_, extras = env.step(actions(env))
  assert (extras["constraints"]["quantities"]["action_rate"] > 0).all()


def test_state_dict_continues_bit_for_bit():
  first, second = make_env(), make_env()
  first.reset(seed=1)
  for _ in range(30):
    first.step(actions(first))
  saved, rng = first.state_dict(), torch.get_rng_state()

  def go_on(env):
    torch.set_rng_state(rng)
    for _ in range(30):
      obs, reward, *_, extras = env.step(actions(env))
    return obs["critic"].clone(), reward.clone(), extras["constraints"]["delta"].clone()

  expected = go_on(first)
  second.reset(seed=2)
  second.step(actions(second))
  second.load_state_dict(saved)
  for a, b in zip(expected, go_on(second), strict=True):
    assert torch.equal(a, b)


def test_state_of_another_environment_is_refused(env):
  other = make_env(num_envs=3)
  with pytest.raises(ValueError, match="shape"):
    other.load_state_dict(env.state_dict())


# Parity with mjlab.


def quiet(cfg):
  """No noise, no pushes, commands that stay."""
  cfg.observations["actor"].enable_corruption = False
  del cfg.events["push"]
  cfg.commands["twist"].resampling_time_range = (1e9, 1e9)
  return cfg


def stock_env(cfg, num_envs: int) -> ManagerBasedRlEnv:
  cfg.scene.num_envs = num_envs
  with simulation_backend("native"):
    return ManagerBasedRlEnv(cfg, "cpu")


def test_a_step_agrees_with_stock_mjlab():
  ours_cfg, stock_cfg = (quiet(env_cfg("g1-flat")) for _ in range(2))
  stock = stock_env(stock_cfg, NUM_ENVS)
  ours_cfg.scene.num_envs = NUM_ENVS
  ours = ConstrainedEnv(ours_cfg, "cpu")
  ours.reset(seed=1)
  stock.reset(seed=1)
  for name in ("body_mass", "body_inertia", "geom_friction"):
    getattr(ours.sim.model, name)[:] = getattr(stock.sim.model, name)[:]
  for env in (ours, stock):
    env.sim.recompute_constants(_set_const())
  command = ours.command_manager.get_term("twist")
  for _ in range(20):
    for name in ("qpos", "qvel", "qacc_warmstart", "ctrl", "time"):
      getattr(ours.sim.data, name)[:] = getattr(stock.sim.data, name)[:]
    for name in ("_action", "_prev_action", "_prev_prev_action"):
      source = getattr(stock.action_manager, name)
      getattr(ours.action_manager, name).copy_(source)
    command.vel_command_b.copy_(stock.command_manager.get_command("twist"))
    ours.episode_length_buf.copy_(stock.episode_length_buf)
    action = 0.5 * torch.randn(NUM_ENVS, 29)
    obs, reward, terminated, time_outs, _ = ours.step(action)
    expected = stock.step(action)
    assert torch.equal(terminated, expected[2])
    assert torch.equal(time_outs, expected[3])
    going_on = ~(terminated | time_outs)
    torch.testing.assert_close(reward, expected[1], rtol=1e-4, atol=1e-5)
    for group in ("actor", "critic"):
      torch.testing.assert_close(
        obs[group][going_on], expected[0][group][going_on], rtol=1e-4, atol=1e-4
      )


def _set_const():
  from mjlab.managers.event_manager import RecomputeLevel

  return RecomputeLevel.set_const


def test_resets_commands_and_pushes_have_mjlabs_statistics():
  num_envs = 512
  ours_cfg, stock_cfg = (env_cfg("g1-flat") for _ in range(2))
  stock = stock_env(stock_cfg, num_envs)
  ours_cfg.scene.num_envs = num_envs
  ours = ConstrainedEnv(ours_cfg, "cpu")
  samples = {}
  for label, env in (("ours", ours), ("stock", stock)):
    env.reset(seed=7)
    start = torch.cat((env.sim.data.qpos[:], env.sim.data.qvel[:]), 1).clone()
    start[:, :2] -= env.scene.env_origins[:, :2]
    command = env.command_manager.get_command("twist").clone()
    # The push: same state before, velocity after.
    before = env.sim.data.qvel[:, :6].clone()
    mask = torch.ones(num_envs, dtype=torch.bool)
    push = env.event_manager.get_term_cfg("push")
    push.func(env, mask if label == "ours" else mask.nonzero()[:, 0], **push.params)
    pushed = env.sim.data.qvel[:, :6] - before
    samples[label] = torch.cat((start, command, pushed), 1)
  ours_s, stock_s = samples["ours"], samples["stock"]
  spread = stock_s.std(0)
  # Five standard errors of a mean of 512; half as much again for the spread.
  error = 5 * spread / num_envs**0.5
  assert ((ours_s.mean(0) - stock_s.mean(0)).abs() <= 1.5 * error + 1e-5).all()
  assert ((ours_s.std(0) - spread).abs() <= 1.5 * error + 1e-5).all()
  assert (ours_s.amin(0) >= stock_s.amin(0) - 0.1).all()
  assert (ours_s.amax(0) <= stock_s.amax(0) + 0.1).all()


def test_a_reset_to_the_same_values_twice_is_a_reset(env):
  env.reset(seed=5)
  env.reset(seed=5)
  robot = env.scene["robot"].data
  env.step(torch.zeros(NUM_ENVS, 29))
  # Only the initial velocities of up to 1 rad/s moved the joints.
  assert (robot.joint_pos - robot.default_joint_pos).abs().max() < 0.05


def test_a_diverged_environment_is_reset_and_named(env):
  env.reset(seed=5)
  env.not_finite()
  env.sim.data.qvel[2, 3] = float("nan")
  *_, terminated, _, extras = env.step(actions(env, 0.1))
  assert terminated.tolist() == [i == 2 for i in range(NUM_ENVS)]
  assert extras["constraints"]["delta"][2] == 1.0
  # What it did would be NaN for all robots, and stay it in the guard's averages.
  assert extras["progress"].isfinite().all()
  assert env.not_finite()["physics state"] == 2
  obs, reward, *_ = env.step(actions(env, 0.1))
  assert obs["actor"].isfinite().all() and reward.isfinite().all()
  assert env.not_finite() == {}


def test_a_changed_reward_weight_takes_effect(env):
  env.reset(seed=5)
  term = env.reward_manager.get_term_cfg("alive")
  term.weight = 100.0
  env.reward_manager.load_weights()
  _, reward, *_ = env.step(actions(env, 0.1))
  assert (reward > 1.5).all()
  term.weight = 0.15
  env.reward_manager.load_weights()


def test_a_weight_that_is_no_number_is_refused(env):
  term = env.reward_manager.get_term_cfg("alive")
  weight = term.weight
  for bad in (float("nan"), float("inf")):
    term.weight = bad
    with pytest.raises(ValueError, match=f"weight of reward 'alive' must be .* {bad}"):
      env.reward_manager.load_weights()
  term.weight = weight
  env.reward_manager.load_weights()


def test_an_environment_may_have_no_rewards():
  env = make_env(num_envs=2, rewards={})
  env.reset(seed=1)
  env.episode_length_buf[:1] = int(env.max_episode_length)
  _, reward, *_ = env.step(actions(env))
  assert reward.tolist() == [0.0, 0.0]
  assert env.flush_log()["Episode_Termination/time_out"] > 0.0


def test_other_definitions_of_the_rate(env):
  env.reset(seed=5)
  first, second = actions(env), actions(env)
  env.step(first)
  env.step(second)
  per_second = (second - first).abs() / 0.02
  torch.testing.assert_close(mdp.action_rate(env, raw=True), per_second)
  scale = env.action_manager.get_term("joint_pos").scale
  expected = (second - first).abs() * scale / 0.02
  torch.testing.assert_close(mdp.action_rate(env), expected)
