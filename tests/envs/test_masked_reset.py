"""Resets by mask do all that mjlab's resets by index do, on its smallest task."""

import pytest
import torch
from mjlab.actuator import BuiltinMotorActuatorCfg
from mjlab.actuator.xml_actuator import XmlActuatorCfg
from mjlab.entity import EntityArticulationInfoCfg
from mjlab.managers import (
  CurriculumTermCfg,
  EventTermCfg,
  MetricsTermCfg,
  RewardTermCfg,
)
from mjlab.utils.noise import NoiseModelCfg, UniformNoiseCfg

from decap.envs import mdp
from decap.envs.constrained_env import ConstrainedEnv, ConstrainedEnvCfg
from decap.envs.masked import masked
from tests.envs.cartpole import NUM_ENVS, STEPS, age, make_cfg, start, step


class Noted:
  """A term that notes the environments that it is reset for."""

  def __init__(self, cfg, env: ConstrainedEnv):
    del cfg
    self.resets: list[list[int]] = []
    self.manager = env.reward_manager if hasattr(env, "reward_manager") else None

  def reset(self, env_ids: torch.Tensor) -> None:
    self.resets.append(env_ids.tolist())


class NotedReward(Noted):
  def __call__(self, env: ConstrainedEnv) -> torch.Tensor:
    return torch.zeros(env.num_envs)


class NotedCurriculum(Noted):
  def __call__(self, env: ConstrainedEnv, env_ids) -> None:
    del env, env_ids


class NotedConstraint(Noted):
  def __call__(self, env: ConstrainedEnv, **params) -> torch.Tensor:
    del params
    return torch.zeros(env.num_envs, 2)


def test_metrics_are_reduced_as_mjlab_does():
  cfg = make_cfg()
  cfg.metrics = {
    reduce: MetricsTermCfg(func=age, reduce=reduce)
    for reduce in ("mean", "last", "max", "sum")
  }
  cfg.metrics["substeps"] = MetricsTermCfg(func=age, per_substep=True)
  env = start(cfg)
  for _ in range(2):  # The second episode remembers nothing of the first.
    step(env, STEPS)
    log = env.flush_log()
    found = {n: log[f"Episode_Metrics/{n}"] for n in cfg.metrics}
    # Ages 1 to 4; substeps run before the age is raised.
    expected = {"mean": 2.5, "last": 4.0, "max": 4.0, "sum": 10.0, "substeps": 1.5}
    assert found == pytest.approx(expected)


def test_reset_events_rest_between_two_runs():
  ran = torch.zeros(NUM_ENVS, dtype=torch.long)

  @masked
  def note(env, mask):
    ran.add_(mask)

  cfg = make_cfg()
  cfg.events["rare"] = EventTermCfg(
    func=note, mode="reset", min_step_count_between_reset=STEPS + 1
  )
  env = start(cfg)
  assert ran.tolist() == [1, 1, 1]
  step(env, STEPS)
  assert ran.tolist() == [1, 1, 1]  # Reset after four steps: too early.
  env.episode_length_buf[0] = STEPS - 1
  step(env)
  assert ran.tolist() == [2, 1, 1]
  assert env.waiting_terms == ["event rare"]


def test_actions_of_the_episode_before_are_forgotten():
  """Also the one before the last, which second differences need."""
  env = start(make_cfg())
  for _ in range(2):
    env.step(torch.ones(NUM_ENVS, env.action_manager.total_action_dim))
  manager = env.action_manager
  history = (manager.action, manager.prev_action, manager.prev_prev_action)
  env.episode_length_buf[1] = STEPS - 1
  env.step(torch.ones(NUM_ENVS, manager.total_action_dim))
  for buffer in history:
    assert buffer.flatten().tolist() == [1.0, 0.0, 1.0]


def test_interval_events_come_on_time_and_start_again_with_an_episode():
  """Every 0.1 s at steps of 0.05 s: in steps 2, 4, …; a reset starts the time anew."""
  ran: list[list[int]] = []

  @masked
  def note(env, mask):
    ran.append(mask.long().tolist())

  cfg = make_cfg()
  cfg.episode_length_s = 100.0
  cfg.events["often"] = EventTermCfg(
    func=note, mode="interval", interval_range_s=(0.1, 0.1)
  )
  env = start(cfg)
  ran.clear()
  step(env, 4)
  assert ran == [[0, 0, 0], [1, 1, 1], [0, 0, 0], [1, 1, 1]]
  ran.clear()
  env.episode_length_buf[1] = int(env.max_episode_length) - 1
  step(env, 4)
  # Robot 1 ends in the first of these steps: its time is full again after it.
  assert ran == [[0, 0, 0], [1, 0, 1], [0, 1, 0], [1, 0, 1]]


def test_terms_with_a_memory_are_reset():
  cfg = make_cfg(NotedConstraint)
  cfg.rewards["noted"] = RewardTermCfg(func=NotedReward, weight=1.0)
  cfg.curriculum["noted"] = CurriculumTermCfg(func=NotedCurriculum)
  env = start(cfg)
  env.episode_length_buf[1] = STEPS - 1
  step(env)
  for manager in (env.constraint_manager, env.reward_manager, env.curriculum_manager):
    (term,) = manager._class_term_cfgs
    assert term.func.resets == [[0, 1, 2], [1]], manager
  assert env.waiting_terms == [
    "state of NotedReward",
    "state of NotedCurriculum",
    "state of NotedConstraint",
  ]


def test_reward_terms_are_built_once():
  cfg = make_cfg()
  cfg.curriculum["noted"] = CurriculumTermCfg(func=NotedCurriculum)
  env = start(cfg)
  held = env.curriculum_manager.get_term_cfg("noted").func.manager
  assert held is env.reward_manager
  held.get_term_cfg("smooth_reward").weight = 0.0
  env.between_iterations()
  step(env)
  assert not env.reward_buf.any()


def test_noise_without_a_memory_does_not_wait():
  cfg = make_cfg()
  noise = NoiseModelCfg(noise_cfg=UniformNoiseCfg(n_min=-1.0, n_max=1.0))
  cfg.observations["actor"].terms["cart_pos"].noise = noise
  assert start(cfg).waiting_terms == []


def test_the_simulations_nan_guard_waits():
  cfg = make_cfg()
  cfg.sim.nan_guard.enabled = True
  assert start(cfg).waiting_terms == ["NaN guard of the simulation"]


def test_an_environment_without_terminations():
  cfg = make_cfg()
  cfg.terminations = {}
  env = start(cfg)
  step(env, STEPS + 1)
  assert env.episode_length_buf.tolist() == [STEPS + 1] * NUM_ENVS


def remembering(cfg: ConstrainedEnvCfg) -> ConstrainedEnvCfg:
  """Histories, delays of observations and of both kinds of actuators, a curriculum."""
  actor = cfg.observations["actor"].terms
  actor["cart_pos"].history_length = 3
  actor["pole_vel"].delay_max_lag = 3
  delays = {"delay_min_lag": 1, "delay_max_lag": 3}
  cfg.scene.entities["cartpole"].articulation = EntityArticulationInfoCfg(
    actuators=(
      XmlActuatorCfg(target_names_expr=("slider",), **delays),
      BuiltinMotorActuatorCfg(
        target_names_expr=("hinge_1",), effort_limit=1.0, **delays
      ),
    )
  )
  cfg.actions["effort"].actuator_names = (".*",)
  # The task's own is for one action.
  cfg.rewards = {"age": RewardTermCfg(func=age, weight=1.0)}
  cfg.episode_length_s = 7 * 0.05

  def progress(env, env_ids):
    return {"steps": torch.tensor(float(env.common_step_counter))}

  cfg.curriculum["progress"] = CurriculumTermCfg(func=progress)
  return cfg


def test_everything_that_remembers_is_saved():
  first, second = (
    ConstrainedEnv(remembering(make_cfg(mdp.joint_acc_control)), "cpu")
    for _ in range(2)
  )
  first.reset(seed=1)

  def go_on(env: ConstrainedEnv, steps: int) -> list[torch.Tensor]:
    seen = []
    for _ in range(steps):
      obs, reward, *_, extras = env.step(torch.randn(NUM_ENVS, 2))
      seen += [obs["actor"].clone(), reward.clone()]
      seen.append(extras["constraints"]["quantities"]["joint_vel"])
    return seen

  go_on(first, 11)
  first.between_iterations()
  saved, rng = first.state_dict(), torch.get_rng_state()
  expected = go_on(first, 9)
  second.reset(seed=2)
  second.load_state_dict(saved)
  torch.set_rng_state(rng)
  for a, b in zip(expected, go_on(second, 9), strict=True):
    assert torch.equal(a, b)


def test_state_of_another_form_is_refused():
  env = start(make_cfg())
  saved, path = env.state_dict(), "constraint_manager/composition/scale/value"
  value = saved["tensors"].pop(path)
  with pytest.raises(ValueError, match=f"other state than this one: {path}"):
    env.load_state_dict(saved)
  saved["tensors"][path] = value.unsqueeze(0)
  with pytest.raises(ValueError, match=rf"{path} of shape \(1, 2\), this one \(2,\)"):
    env.load_state_dict(saved)


def test_delays_count_substeps():
  env = start(remembering(make_cfg()))
  buffer = env.scene["cartpole"]._builtin_group._delayed_groups[0].delay_buffer._buffer
  assert buffer._num_pushes.tolist() == [1, 1, 1]  # At the reset.
  step(env, 2)
  # Five substeps each.
  assert buffer._num_pushes.tolist() == [11, 11, 11]
  env.episode_length_buf[1] = 6
  step(env)
  # The controls of a new episode are written for all, as in mjlab.
  assert buffer._num_pushes.tolist() == [17, 1, 17]


def test_a_partial_reset_leaves_the_histories_of_others():
  env = start(remembering(make_cfg()))
  step(env, 2)
  before = env.obs_buf["actor"].clone()
  obs, _ = env.reset(env_ids=torch.tensor([1]))
  history = obs["actor"][:, :3]  # Of the cart's position.
  assert torch.equal(history[[0, 2]], before[[0, 2], :3])
  assert torch.equal(history[1], env.scene["cartpole"].data.joint_pos[1, [0, 0, 0]])
