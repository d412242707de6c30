"""Motors that are late and of different strength: arithmetic, and no waiting."""

import pytest
import torch

from decap.envs.constrained_env import ConstrainedEnv
from decap.envs.mdp.actuation import ActuationCfg, DelayedJointPositionAction
from decap.errors import UserError
from decap.tasks import env_cfg
from decap.testing import waits


def make_env(
  delay_s=(0.0, 0.0), strength=(1.0, 1.0), num_envs=16, device="cpu"
) -> ConstrainedEnv:
  cfg = env_cfg("g1-flat")
  cfg.scene.num_envs = num_envs
  cfg.actuation = ActuationCfg(delay_s, strength)
  for name in ("friction", "torso_mass"):  # So that environments are alike.
    del cfg.events[name]
  env = ConstrainedEnv(cfg, device)
  env.reset(seed=1)
  return env


def test_targets_arrive_after_each_environments_delay():
  env = make_env(delay_s=(0.0, 0.02))
  term = env.action_manager.get_term("joint_pos")
  assert isinstance(term, DelayedJointPositionAction)
  late = term._late_substeps.flatten()
  assert set(late.tolist()) <= {0, 1, 2, 3, 4} and len(set(late.tolist())) > 2
  default = term.offset
  first, second = torch.ones(16, 29), -torch.ones(16, 29)
  targets = []
  for action in (first, second):
    env.action_manager.process_action(action)
    for _ in range(4):
      env.action_manager.apply_action()
      targets.append(env.scene["robot"].data.joint_pos_target.clone())
  wanted = [default + term.scale * a for a in (torch.zeros(16, 29), first, second)]
  for substep, target in enumerate(targets):
    for row in range(16):
      arrived = (substep - int(late[row])) // 4 + 1  # Actions that reached the motors.
      torch.testing.assert_close(target[row], wanted[arrived][row])


def test_resets_draw_new_delays_and_forget_old_targets():
  env = make_env(delay_s=(0.0, 0.02), num_envs=64)
  term = env.action_manager.get_term("joint_pos")
  env.step(torch.ones(64, 29))
  before, target = term._late_substeps.clone(), term._target.clone()
  mask = torch.arange(64) < 32
  term.reset_masked(mask)
  assert (term._late_substeps[:32] != before[:32]).any()
  assert torch.equal(term._late_substeps[32:], before[32:])
  torch.testing.assert_close(term._target[:32], term._start[:32])
  torch.testing.assert_close(term._target[32:], target[32:])


def test_a_step_with_late_motors_and_resets_never_waits():
  env = make_env(delay_s=(0.0, 0.02), strength=(0.9, 1.1), num_envs=4)
  action = torch.zeros(4, 29)
  env.step(action)
  env.episode_length_buf[:2] = int(env.max_episode_length)
  assert waits(lambda: env.step(action)) == []
  assert env.waiting_terms == []


@pytest.mark.gpu
def test_late_motors_are_captured_and_replayed():
  """Replays of one graph do what eager steps do, delays and old targets included."""
  envs = [make_env((0.0, 0.02), (0.9, 1.1), 64, "cuda:0") for _ in range(2)]
  term = [env.action_manager.get_term("joint_pos") for env in envs]
  term[1]._late_substeps.copy_(term[0]._late_substeps)
  actions = torch.randn(6, 64, 29, device="cuda:0")
  inputs = torch.zeros(64, 29, device="cuda:0")

  def substeps(env: ConstrainedEnv) -> torch.Tensor:
    env.action_manager.process_action(inputs)
    found = []
    for _ in range(4):
      env.action_manager.apply_action()
      found.append(env.scene["robot"].data.joint_pos_target.clone())
    return torch.stack(found)

  graph = torch.cuda.CUDAGraph()
  with torch.cuda.graph(graph):
    replayed = substeps(envs[1])
  for env in envs:
    env.action_manager.get_term("joint_pos")._target.copy_(term[0]._start)
  for action in actions:
    inputs.copy_(action)
    graph.replay()
    torch.testing.assert_close(replayed, substeps(envs[0]))


def test_strength_scales_gains_and_peaks_alike():
  env = make_env(strength=(0.8, 1.2))
  model, default = env.sim.model, env.sim.get_default_field
  factor = model.actuator_gainprm[:, :, 0] / default("actuator_gainprm")[:, 0]
  assert 0.8 <= factor.min() < 0.9 and 1.1 < factor.max() <= 1.2
  for name, column in (
    ("actuator_biasprm", 1),
    ("actuator_biasprm", 2),
    ("actuator_forcerange", 0),
    ("actuator_forcerange", 1),
  ):
    found = getattr(model, name)[:, :, column] / default(name)[:, column]
    torch.testing.assert_close(found, factor)


def test_weak_motors_hold_less():
  strong, weak = make_env(), make_env(strength=(0.3, 0.3))
  for env in (strong, weak):
    for _ in range(10):
      env.step(torch.zeros(env.num_envs, 29))
  knee = strong.scene["robot"].joint_names.index("left_knee_joint")
  bend = [env.scene["robot"].data.joint_pos[:, knee].mean() for env in (strong, weak)]
  assert bend[1] > bend[0] + 0.05


def test_delay_that_does_nothing_is_the_stock_action():
  ideal = make_env()
  assert type(ideal.action_manager.get_term("joint_pos")).__name__ == (
    "JointPositionAction"
  )
  assert ideal._constant_controls
  assert "motor_strength" not in ideal.cfg.events


def test_zero_delay_moves_as_without_one():
  """A delay drawn as 0 substeps steps physics one by one: same motion."""
  ideal, late = make_env(), make_env(delay_s=(0.0, 0.001))
  torch.manual_seed(0)
  action, start = torch.randn(16, 29), ideal.sim.data.qpos[:].clone()
  for env in (ideal, late):
    env.sim.data.qpos[:] = start
    env.sim.data.qvel[:] = 0.0
    env.sim.forward()
    env.action_manager.process_action(action)
    env._advance_physics()
  torch.testing.assert_close(late.sim.data.qpos[:], ideal.sim.data.qpos[:])


@pytest.mark.parametrize(
  ("edit", "word"),
  [
    ({"delay_s": (0.0, 0.03)}, "delay_s"),
    ({"delay_s": (0.02, 0.01)}, "delay_s"),
    ({"strength": (0.0, 1.0)}, "strength"),
    ({"strength": (float("nan"), 1.0)}, "strength"),
  ],
)
def test_what_makes_no_sense_is_refused(edit, word):
  with pytest.raises(UserError, match=word):
    make_env(**edit)
