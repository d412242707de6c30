"""Our tasks in mjlab's registry, whoever is imported first."""

import subprocess
import sys

import pytest

from decap.tasks import TASKS, mjlab_id

IDS = sorted(map(mjlab_id, TASKS))


def run(*lines: str) -> str:
  """The output of a fresh interpreter; a plugin that fails to load only warns."""
  process = subprocess.run(
    [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True
  )
  assert process.returncode == 0, process.stderr
  assert "Failed to load" not in process.stderr, process.stderr
  return process.stdout.strip().splitlines()[-1]


def test_names_need_neither_torch_nor_mjlab():
  out = run(
    "import sys, decap.tasks",
    "tuple(decap.tasks.TASKS)",
    "print([m for m in ('torch', 'mjlab', 'mujoco') if m in sys.modules])",
  )
  assert out == "[]"


@pytest.mark.parametrize(
  "first",
  [
    "decap.tasks",
    pytest.param("mjlab", marks=pytest.mark.slow),
    # These import mjlab in the middle of their own import.
    pytest.param("decap.envs.constrained_env", marks=pytest.mark.slow),
    pytest.param("decap.tasks.velocity", marks=pytest.mark.slow),
    pytest.param("decap.tasks.registration", marks=pytest.mark.slow),
  ],
)
def test_registered_in_any_import_order(first):
  out = run(
    f"import {first}",
    "import mjlab",
    "from mjlab.tasks.registry import list_tasks",
    "print([t for t in list_tasks() if t.startswith('Decap')])",
  )
  assert out == str(IDS)


def test_what_the_registry_gives():
  from mjlab.tasks.registry import load_env_cfg, load_rl_cfg, load_runner_cls

  from decap.rl.config import AgentCfg
  from decap.tasks.mjlab_runner import MjlabRunner

  cfg = load_env_cfg("Decap-G1-Flat")
  assert cfg.rewards["track_xy"].weight == 1.5
  cfg.rewards["track_xy"].weight = 0.0
  assert load_env_cfg("Decap-G1-Flat").rewards["track_xy"].weight == 1.5
  assert load_env_cfg("Decap-G1-Rough", play=True).scene.num_envs == 1
  assert load_runner_cls("Decap-G1-23dof-Flat") is MjlabRunner
  theirs, ours = load_rl_cfg("Decap-G1-Flat"), AgentCfg()
  assert theirs.actor.hidden_dims == theirs.critic.hidden_dims
  assert theirs.actor.hidden_dims == ours.policy.hidden_dims
  assert theirs.num_steps_per_env == ours.num_steps_per_env
  for name in ("learning_rate", "gamma", "lam", "entropy_coef", "clip_param"):
    assert getattr(theirs.algorithm, name) == getattr(ours.algorithm, name), name
  for name in ("num_learning_epochs", "num_mini_batches", "desired_kl"):
    assert getattr(theirs.algorithm, name) == getattr(ours.algorithm, name), name


def test_rsl_rl_gets_our_agent():
  from decap.rl.config import AgentCfg, PolicyCfg
  from decap.tasks.mjlab_runner import rsl_rl_cfg

  agent = AgentCfg(policy=PolicyCfg(hidden_dims=(32, 16), init_std={".*": 0.3}))
  agent.algorithm.gamma = 0.9
  agent.num_steps_per_env = 7
  cfg = rsl_rl_cfg(agent)
  assert cfg.num_steps_per_env == 7
  assert cfg.actor.hidden_dims == cfg.critic.hidden_dims == (32, 16)
  assert cfg.algorithm.gamma == 0.9
  assert cfg.algorithm.class_name == "PPO"
  assert cfg.algorithm.num_learning_epochs == agent.algorithm.num_learning_epochs
  assert cfg.algorithm.entropy_coef == agent.algorithm.entropy_coef
