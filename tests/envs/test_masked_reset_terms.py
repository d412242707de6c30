"""Every kind of term, stock or masked, gets its events, resets and log entries."""

from dataclasses import dataclass

import pytest
import torch
from mjlab.envs.mdp import dr
from mjlab.envs.mdp.actions import JointEffortActionCfg
from mjlab.envs.mdp.actions.actions import JointEffortAction
from mjlab.managers import (
  CommandTerm,
  CommandTermCfg,
  CurriculumTermCfg,
  EventTermCfg,
  MetricsTermCfg,
  SceneEntityCfg,
)
from mjlab.sensor import (
  BuiltinSensor,
  BuiltinSensorCfg,
  ContactMatch,
  ContactSensorCfg,
  ObjRef,
)
from mjlab.utils.noise import NoiseModelWithAdditiveBiasCfg, UniformNoiseCfg

from decap.envs.constrained_env import ConstrainedEnv
from decap.envs.masked import masked
from decap.envs.masked_reset import MaskedReset
from decap.envs.mdp.commands import MaskedCommandTerm
from tests.envs.cartpole import NUM_ENVS, STEPS, make_cfg, start, step


def end(env: ConstrainedEnv, robot: int = 1) -> None:
  """A step in which one robot's episode ends."""
  env.episode_length_buf[robot] = env.max_episode_length - 1
  env.step(torch.ones(NUM_ENVS, env.action_manager.total_action_dim))


def noting(ran: list):
  """An event by index, and what it was run for."""

  def note(env, env_ids):
    ran.append(None if env_ids is None else env_ids.tolist())

  return note


def test_step_events_are_for_all_robots():
  ran: list = []
  cfg = make_cfg()
  cfg.events["always"] = EventTermCfg(func=noting(ran), mode="step")
  env = start(cfg)
  step(env, 2)
  assert ran == [None, None]
  assert env.waiting_terms == ["event always"]


def test_every_interval_event_has_its_own_robots():
  ran: dict[float, list] = {0.1: [], 0.05: []}
  cfg = make_cfg()
  for time_s, found in ran.items():
    cfg.events[f"{time_s}"] = EventTermCfg(
      func=noting(found), mode="interval", interval_range_s=(time_s, time_s)
    )
  step(start(cfg), 2)
  assert ran == {0.1: [[0, 1, 2]], 0.05: [[0, 1, 2], [0, 1, 2]]}


def test_every_reset_event_has_its_own_robots():
  ran: dict[str, list] = {"before": [], "rare": [], "after": []}
  cfg = make_cfg()
  for name, found in ran.items():
    pause = STEPS if name == "rare" else 0
    cfg.events[name] = EventTermCfg(
      func=noting(found), mode="reset", min_step_count_between_reset=pause
    )
  env = start(cfg)
  end(env)
  assert ran["before"] == ran["after"] == [[0, 1, 2], [1]]
  assert ran["rare"] == [[0, 1, 2]]


def test_a_reset_event_rests_after_each_run():
  ran: list = []
  cfg = make_cfg()
  cfg.events["rare"] = EventTermCfg(
    func=noting(ran), mode="reset", min_step_count_between_reset=STEPS
  )
  env = start(cfg)
  step(env, STEPS)
  assert ran == [[0, 1, 2]] * 2
  end(env)  # One step after it.
  assert ran == [[0, 1, 2]] * 2
  ran.clear()
  cfg.events["rare"].min_step_count_between_reset = 1
  env = start(cfg)
  env.reset()  # No step after it.
  assert ran == [[0, 1, 2]]


def test_constants_follow_from_what_an_event_changed():
  cfg = make_cfg()
  heavier = {"ranges": (2.0, 2.0), "asset_cfg": SceneEntityCfg("cartpole")}
  cfg.events["mass"] = EventTermCfg(
    func=dr.body_mass, mode="reset", params={**heavier, "operation": "scale"}
  )
  env = start(cfg)
  mass, below = env.sim.model.body_mass, env.sim.model.body_subtreemass
  assert mass[0].sum() > 0.0
  torch.testing.assert_close(below[:, 0], mass[:].sum(1))


def test_masked_curricula_run_with_every_reset():
  seen: list = []

  @masked
  def level(env, mask):
    seen.append(mask.tolist())
    return {"mean": 3.0}

  @masked
  def speed(env, mask):
    return torch.tensor(2.0)

  @masked
  def silent(env, mask):
    return None

  cfg = make_cfg()
  for term in (level, speed, silent):
    cfg.curriculum[term.__name__] = CurriculumTermCfg(func=term)
  env = start(cfg)
  seen.clear()
  end(env)
  assert seen == [[False, True, False]]
  log = {n: v for n, v in env.flush_log().items() if n.startswith("Curriculum")}
  assert log == {"Curriculum/level/mean": 3.0, "Curriculum/speed": 2.0}
  assert not env._masked_reset.host_curricula()


def test_curricula_by_index_run_between_iterations():
  seen: list = []

  def level(env, env_ids):
    seen.append(env_ids)
    return {"mean": torch.tensor(3.0)}

  cfg = make_cfg()
  cfg.curriculum["level"] = CurriculumTermCfg(func=level)
  env = start(cfg)
  end(env)
  assert seen == []
  env.between_iterations()
  assert seen == [slice(None)]
  assert env.flush_log()["Curriculum/level/mean"] == 3.0
  assert dict(env.curriculum_manager.get_active_iterable_terms(0)) == {"level": [3.0]}


class Goal(CommandTerm):
  """Counts up, has an error of 1, 2 and 4, and notes what it is reset for."""

  def __init__(self, cfg, env):
    super().__init__(cfg, env)
    self.resets: list = []
    self.seen = torch.zeros(())
    self.metrics["error"] = torch.zeros(NUM_ENVS)

  @property
  def command(self) -> torch.Tensor:
    return torch.zeros(NUM_ENVS, 1)

  def reset(self, env_ids):
    self.resets.append(env_ids.tolist())
    self.seen = self._env.observation_manager.compute()["actor"][:, 0].clone()
    return super().reset(env_ids)

  def _update_metrics(self) -> None:
    self.metrics["error"].copy_(torch.tensor([1.0, 2.0, 4.0]))

  def _resample_command(self, env_ids) -> None: ...

  def _update_command(self, env_ids) -> None: ...


class MaskedGoal(Goal, MaskedCommandTerm):
  def reset_masked(self, mask):
    self.resets.append(mask.nonzero().flatten().tolist())
    super().reset_masked(mask)

  def _sample(self, mask) -> None: ...


@dataclass(kw_only=True)
class GoalCfg(CommandTermCfg):
  kind: type = Goal

  def build(self, env):
    return self.kind(self, env)


@pytest.mark.parametrize("kind", [Goal, MaskedGoal])
def test_commands_are_reset_and_their_metrics_logged(kind):
  cfg = make_cfg()
  cfg.commands["goal"] = GoalCfg(resampling_time_range=(9.0, 9.0), kind=kind)
  env = start(cfg)
  goal = env.command_manager.get_term("goal")
  goal.resets.clear()
  step(env)
  assert goal.resets == ([[]] if kind is MaskedGoal else [])
  goal.resets.clear()
  end(env)
  assert goal.resets == [[1]]
  assert env.flush_log()["Metrics/goal/error"] == 2.0
  assert env.waiting_terms == ([] if kind is MaskedGoal else ["command goal"])


def test_what_was_observed_before_a_reset_is_forgotten():
  cfg = make_cfg()
  cfg.commands["goal"] = GoalCfg(resampling_time_range=(9.0, 9.0))
  env = start(cfg)
  env.reset()
  seen = env.command_manager.get_term("goal").seen
  assert torch.equal(seen, env.scene["cartpole"].data.joint_pos[:, 0])


def test_targets_of_the_episode_before_are_forgotten():
  env = start(make_cfg())
  end(env)
  assert env.sim.data.ctrl[:, 0].tolist() == [1.0, 0.0, 1.0]
  robot, (action,) = env.scene["cartpole"], env.action_manager._terms.values()
  assert action.raw_action.flatten().tolist() == [1.0, 0.0, 1.0]
  targets = [n for n in vars(robot.data) if n.endswith("_target")]
  assert len(targets) >= 7
  for name in targets:
    getattr(robot.data, name).fill_(1.0)
  env.reset(env_ids=torch.tensor([2]))
  for name in targets:
    found = getattr(robot.data, name)
    assert torch.equal(found, torch.ones_like(found) * torch.tensor([[1], [1], [0]]))


def test_contact_sensors_start_anew():
  touch = ContactSensorCfg(
    name="touch",
    primary=ContactMatch(mode="body", pattern="cart", entity="cartpole"),
    fields=("found", "force"),
    track_air_time=True,
    history_length=2,
  )
  seen: list = []

  @masked
  def look(env, mask):
    seen.append(env.scene["touch"].data.current_air_time[:, 0].tolist())

  cfg = make_cfg()
  cfg.scene.sensors = (touch,)
  cfg.events["look"] = EventTermCfg(func=look, mode="reset")
  env = start(cfg)
  assert env.waiting_terms == ["contact history of touch"]
  step(env, 2)  # Of 0.05 s each, without a contact.
  end(env)
  sensor = env.scene["touch"]
  expected = pytest.approx([0.15, 0.0, 0.15])
  assert sensor.data.current_air_time[:, 0].tolist() == expected
  assert seen[-1] == expected
  sensor.data.force_history.fill_(1.0)
  env.reset(env_ids=torch.tensor([2]))
  history = sensor.data.force_history.flatten(1)  # [B, ...]
  assert torch.equal(history, torch.ones_like(history) * torch.tensor([[1], [1], [0]]))


class NotedSensor(BuiltinSensor):
  def reset(self, env_ids=None) -> None:
    super().reset(env_ids)
    self.__dict__.setdefault("resets", []).append(env_ids.tolist())

  def _compute_data(self) -> torch.Tensor:
    return super()._compute_data().clone()


@dataclass
class NotedSensorCfg(BuiltinSensorCfg):
  def build(self) -> NotedSensor:
    return NotedSensor(self)


def test_sensors_with_a_memory_are_reset():
  seen: list = []

  @masked
  def look(env, mask):
    seen.append((env.scene["cartpole/place"].data != 0.0).flatten().tolist())

  cfg = make_cfg()
  slider = ObjRef("joint", "slider", "cartpole")
  cfg.scene.sensors = (NotedSensorCfg("place", "jointpos", slider),)
  cfg.events["look"] = EventTermCfg(func=look, mode="reset")
  env = start(cfg)
  env.before_reset.append(lambda env: env.scene["cartpole/place"].data)
  end(env)
  # What it told in this step is forgotten: a reset makes sensors zero.
  assert seen[-1] == [True, False, True]
  assert env.scene["cartpole/place"].resets == [[0, 1, 2], [1]]
  assert env.waiting_terms == ["state of sensor cartpole/place"]
  # What rays and cameras need comes from the host.
  env.scene["cartpole/place"].requires_sensor_context = True
  assert (
    MaskedReset(env).waiting_terms[-1] == "ray-cast or camera sensor cartpole/place"
  )


class NotedAction(JointEffortAction):
  def reset(self, env_ids=None) -> None:
    super().reset(env_ids)
    self.__dict__.setdefault("resets", []).append(env_ids.tolist())


@dataclass(kw_only=True)
class NotedActionCfg(JointEffortActionCfg):
  def build(self, env):
    return NotedAction(self, env)


def test_actions_with_a_memory_are_reset():
  cfg = make_cfg()
  cfg.actions["effort"] = NotedActionCfg(
    entity_name="cartpole", actuator_names=("slider",)
  )
  env = start(cfg)
  end(env)
  assert env.action_manager.get_term("effort").resets == [[0, 1, 2], [1]]
  assert env.waiting_terms == ["state of action effort"]


def test_noise_with_a_bias_draws_another():
  cfg = make_cfg()
  cfg.observations["actor"].terms["cart_pos"].noise = NoiseModelWithAdditiveBiasCfg(
    noise_cfg=UniformNoiseCfg(n_min=-1e-9, n_max=1e-9),
    bias_noise_cfg=UniformNoiseCfg(n_min=-1.0, n_max=1.0),
  )
  env = start(cfg)
  assert env.waiting_terms == ["state of noise model of cart_pos"]

  def bias() -> torch.Tensor:
    return env.obs_buf["actor"][:, 0] - env.scene["cartpole"].data.joint_pos[:, 0]

  before = bias()
  end(env)
  changed = (bias() - before).abs() > 1e-6
  assert changed.tolist() == [False, True, False]


def test_histories_start_anew():
  cfg = make_cfg()
  del cfg.observations["critic"]  # It has the same terms.
  cfg.observations["actor"].terms["cart_pos"].history_length = 3
  env = start(cfg)
  assert env.waiting_terms == ["state of history or delay of cart_pos"]
  step(env)
  end(env)
  history = env.obs_buf["actor"][:, :3]
  assert ((history - history[:, :1]).abs().amax(1) > 0).tolist() == [True, False, True]


def test_checks_of_observations_wait():
  cfg = make_cfg()
  cfg.observations["critic"].nan_policy = "sanitize"
  assert start(cfg).waiting_terms == ["NaN check of observations critic"]


def test_an_episode_of_one_step_has_a_mean():
  cfg = make_cfg()
  cfg.metrics = {"one": MetricsTermCfg(func=lambda env: torch.ones(NUM_ENVS))}
  env = start(cfg)
  end(env)
  assert env.flush_log()["Episode_Metrics/one"] == 1.0
