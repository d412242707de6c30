"""Terms of stock mjlab get our equivalents; terms that take a mask work in mjlab too."""

import torch
from mjlab.envs import mdp as mjlab_mdp
from mjlab.tasks.registry import load_env_cfg

from decap.envs.constrained_env import ConstrainedEnv, constrain
from decap.envs.constraint_manager import ConstraintTermCfg
from decap.envs.masked import masked


def test_masked_terms_get_a_mask_made_of_indices():
  seen = []

  @masked
  def note(env, mask, value):
    seen.append((mask if mask is None else mask.tolist(), value))

  class Env:
    num_envs, device = 4, "cpu"

  note(Env(), torch.tensor([0, 2]), value=3)
  note(Env(), None, value=3)
  assert seen == [([True, False, True, False], 3), (None, 3)]


def test_a_stock_config_stays_as_it_is():
  cfg = load_env_cfg("Mjlab-Cartpole-Balance")
  cfg.scene.num_envs = 2
  limited = {"joint_vel": ConstraintTermCfg(func=made_up, limits=1.0)}
  constrained = constrain(cfg, constraints=limited, constrained_entity="cartpole")
  ConstrainedEnv(constrained, "cpu")
  ours, theirs = constrained.events["reset_slider"], cfg.events["reset_slider"]
  assert ours.func is not mjlab_mdp.reset_joints_by_offset
  assert theirs.func is mjlab_mdp.reset_joints_by_offset


def made_up(env) -> torch.Tensor:
  return torch.zeros(env.num_envs)
