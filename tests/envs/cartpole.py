"""mjlab's smallest task, constrained: three robots, and episodes of four steps."""

import torch
from mjlab.managers import SceneEntityCfg
from mjlab.tasks.registry import load_env_cfg

from decap.constraints.groups import BodyGroupCfg
from decap.envs import mdp
from decap.envs.constrained_env import ConstrainedEnv, ConstrainedEnvCfg, constrain
from decap.envs.constraint_manager import ConstraintTermCfg

NUM_ENVS = 3
STEPS = 4
"""Steps of an episode."""


def make_cfg(func=mdp.joint_vel) -> ConstrainedEnvCfg:
  cfg = constrain(
    load_env_cfg("Mjlab-Cartpole-Balance"),
    constraints={
      "joint_vel": ConstraintTermCfg(
        func=func, params={"asset_cfg": SceneEntityCfg("cartpole")}, limits={"all": 9.0}
      )
    },
    groups={"all": BodyGroupCfg((".*",), 0.5)},
    constrained_entity="cartpole",
  )
  cfg.scene.num_envs = NUM_ENVS
  cfg.episode_length_s = STEPS * 0.05
  return cfg


def start(cfg: ConstrainedEnvCfg) -> ConstrainedEnv:
  env = ConstrainedEnv(cfg, "cpu")
  env.reset(seed=1)
  return env


def step(env: ConstrainedEnv, times: int = 1) -> None:
  for _ in range(times):
    env.step(torch.zeros(NUM_ENVS, env.action_manager.total_action_dim))


def age(env: ConstrainedEnv) -> torch.Tensor:
  """1, 2, 3, … over an episode."""
  return env.episode_length_buf.float()
