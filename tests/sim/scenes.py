"""Stock mjlab tasks as test models, without their ray-cast sensor."""

from __future__ import annotations

import mujoco
import torch
from mjlab.envs import ManagerBasedRlEnvCfg
from mjlab.scene import Scene
from mjlab.tasks.velocity.config.g1.env_cfgs import unitree_g1_flat_env_cfg
from mjlab.tasks.velocity.config.go1.env_cfgs import unitree_go1_flat_env_cfg

from decap.sim import NativeSimulation, make_simulation

_TASKS = {"g1": unitree_g1_flat_env_cfg, "go1": unitree_go1_flat_env_cfg}


def task_cfg(robot: str, num_envs: int) -> ManagerBasedRlEnvCfg:
  """A flat velocity task whose foot heights are not ray-cast."""
  cfg = _TASKS[robot]()
  cfg.seed = 1
  cfg.scene.num_envs = num_envs
  cfg.scene.sensors = tuple(
    s for s in cfg.scene.sensors if s.name != "foot_height_scan"
  )
  del cfg.observations["critic"].terms["foot_height"]
  for name in ("foot_clearance", "foot_swing_height"):
    del cfg.rewards[name]
  return cfg


def compiled(robot: str) -> mujoco.MjModel:
  cfg = task_cfg(robot, num_envs=1)
  model = Scene(cfg.scene, device="cpu").spec.compile()
  cfg.sim.mujoco.apply(model)
  return model


def native(
  model: mujoco.MjModel,
  num_envs: int,
  num_threads: int = 1,
  robot: str = "g1",
  split: bool = False,
) -> NativeSimulation:
  """A native simulation with the options of a robot's task."""
  sim = make_simulation(
    num_envs,
    task_cfg(robot, 1).sim,
    model,
    backend="native",
    num_threads=num_threads,
    split=split,
  )
  assert isinstance(sim, NativeSimulation)
  return sim


def stand(sim, model: mujoco.MjModel) -> None:
  """All environments in the keyframe, each with joints a little off it."""
  num_envs, nu = sim.num_envs, model.nu
  generator = torch.Generator().manual_seed(0)
  noise = 0.1 * torch.randn(num_envs, nu, generator=generator)
  sim.data.qpos[:] = torch.tensor(model.key_qpos[0], dtype=torch.float32)
  sim.data.qpos[:, 7:] += noise.to(sim.device)
  sim.data.qvel[:] = 0.0


def targets(model: mujoco.MjModel, num_envs: int, step: int) -> torch.Tensor:
  """Position targets [B, nu] around the keyframe; the same for the same step."""
  generator = torch.Generator().manual_seed(100 + step)
  home = torch.tensor(model.key_qpos[0, 7:], dtype=torch.float32)
  return home + 0.3 * torch.randn(num_envs, model.nu, generator=generator)
