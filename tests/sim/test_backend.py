from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
import warp as wp
from mjlab.envs import ManagerBasedRlEnv, manager_based_rl_env
from mjlab.sim.sim import Simulation
from mjlab.tasks.velocity.config.g1.env_cfgs import unitree_g1_flat_env_cfg

from decap.errors import UserError
from decap.sim import (
  NativeSimulation,
  WarpSimulation,
  make_simulation,
  resolve_backend,
  simulation_backend,
)
from tests.sim.scenes import task_cfg


def test_auto_takes_the_devices_backend(monkeypatch):
  assert resolve_backend("cpu", "auto") == "native"
  assert resolve_backend("cpu", "warp") == "warp"
  monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
  assert resolve_backend("cuda:0", "auto") == "warp"


@pytest.mark.parametrize(
  ("device", "backend", "gpus", "sentence"),
  [
    ("cuda", "auto", 0, "no NVIDIA GPU is available"),
    ("cuda:1", "auto", 1, "'cuda:1' was asked for, but 1 NVIDIA GPU is available"),
    ("cuda:0", "native", 1, "runs on the CPU"),
    ("cpu", "jax", 0, "use auto, warp or native"),
    ("mps", "auto", 0, "use cpu, cuda or cuda:N"),
    ("cuda:first", "auto", 1, "use cpu, cuda or cuda:N"),
  ],
)
def test_impossible_choices_are_refused(device, backend, gpus, sentence, monkeypatch):
  monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
  with pytest.raises(UserError, match=sentence):
    resolve_backend(device, backend)


def test_number_of_environments_must_be_positive(g1):
  with pytest.raises(UserError, match="not 0"):
    make_simulation(0, task_cfg("g1", 1).sim, g1)


def test_mesh_variants_are_refused_natively(g1):
  with pytest.raises(UserError, match="needs the warp backend"):
    NativeSimulation(1, task_cfg("g1", 1).sim, g1, variant_info=[("box/", None)])


def test_warp_is_built_when_asked(g1):
  sim = make_simulation(2, task_cfg("g1", 1).sim, g1, backend="warp", split=True)
  assert isinstance(sim, WarpSimulation)
  assert sim.split


@pytest.mark.parametrize("robot", ["g1", "go1"])
def test_a_stock_task_runs_without_compiling_anything(robot, monkeypatch):
  def launch(*args, **kwargs):
    raise AssertionError("a Warp kernel was launched")

  monkeypatch.setattr(wp, "launch", launch)
  cfg = task_cfg(robot, num_envs=4)
  with simulation_backend("auto", num_threads=2):
    env = ManagerBasedRlEnv(cfg, "cpu")
  assert isinstance(env.sim, NativeSimulation)
  assert env.sim.num_threads == 2
  env.reset()
  for _ in range(30):
    obs, reward, *_ = env.step(
      2.0 * torch.randn(4, env.action_manager.total_action_dim)
    )
  assert reward.isfinite().all()
  assert all(o.isfinite().all() for o in obs.values())
  # Standing robots touch the ground, and the critic sees it.
  assert env.scene["feet_ground_contact"].data.found.any()
  env.close()


@pytest.mark.slow
def test_ray_casts_go_through_warp():
  cfg = unitree_g1_flat_env_cfg()
  cfg.scene.num_envs = 3
  with simulation_backend("native"):
    env = ManagerBasedRlEnv(cfg, "cpu")
  env.reset()
  for _ in range(5):
    env.step(torch.randn(3, env.action_manager.total_action_dim))
  # On a plane a foot's height is the z of the site that its rays start from; a sole
  # that sinks in has none.
  robot = env.scene["robot"]
  feet = [robot.site_names.index(f"{side}_foot") for side in ("left", "right")]
  torch.testing.assert_close(
    env.scene["foot_height_scan"].data.heights,
    robot.data.site_pos_w[:, feet, 2].clamp(min=0.0),
    atol=1e-4,
    rtol=0.0,
  )
  env.close()


def test_mjlab_is_left_as_it_was():
  with pytest.raises(RuntimeError, match="on purpose"):
    with simulation_backend("native"):
      assert manager_based_rl_env.Simulation is not Simulation
      raise RuntimeError("on purpose")
  assert manager_based_rl_env.Simulation is Simulation


def test_an_environment_on_c_mujoco_says_nothing_of_gpus():
  """In a process of its own: Warp tells its devices once, where it starts."""
  code = """
from decap.envs.constrained_env import ConstrainedEnv
from decap.runs import RunSpec, build_configs
cfg, _ = build_configs(RunSpec("g1-flat", "decap"))
cfg.scene.num_envs = 1
ConstrainedEnv(cfg, device="cpu").close()
"""
  done = subprocess.run(
    [sys.executable, "-c", code],
    env={k: v for k, v in os.environ.items() if k != "MJLAB_WARP_QUIET"},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  said = done.stdout + done.stderr
  assert "ConstraintManager" in said
  assert not [line for line in said.splitlines() if "Warp" in line or "CUDA" in line]
