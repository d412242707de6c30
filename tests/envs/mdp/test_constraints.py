"""Constrained quantities against values computed by hand."""

import re
from pathlib import Path

import pytest
import torch

from decap.constraints import quantities
from decap.envs import mdp
from decap.envs.constrained_env import ConstrainedEnv
from decap.envs.constraint_manager import ConstraintTermCfg
from tests.envs.robots import make_env


@pytest.fixture(scope="module")
def shared_env() -> ConstrainedEnv:
  return make_env(num_envs=2)


@pytest.fixture
def env(shared_env) -> ConstrainedEnv:
  shared_env.reset(seed=0)
  return shared_env


def test_contact_force_is_the_larger_foot(env):
  for _ in range(25):  # Let the robot stand.
    env.step(torch.zeros(2, 29))
  force = env.scene["feet_contact"].data.force.norm(dim=-1)
  result = mdp.contact_force(env, "feet_contact")
  assert torch.equal(result, force.max(dim=1).values)
  assert 100.0 < result[0] < 400.0  # 33 kg weigh 327 N.


def test_action_rate(env):
  env.reset(seed=0)
  robot = env.scene["robot"]
  first = torch.full((2, 29), 0.3)
  rates = env.step(first)[-1]["constraints"]["quantities"]["action_rate"]
  assert (rates == 0).all()  # No previous action on an episode's first step.
  second = first.clone()
  elbow = robot.joint_names.index("left_elbow_joint")
  knee = robot.joint_names.index("right_knee_joint")
  second[:, elbow] += 0.1
  second[:, knee] -= 0.2
  rates = env.step(second)[-1]["constraints"]["quantities"]["action_rate"]
  # Action scales 0.4386 and 0.3507 rad, control step 0.02 s.
  assert rates[0, elbow].item() == pytest.approx(0.1 * 0.4386 / 0.02, rel=1e-3)
  assert rates[0, knee].item() == pytest.approx(0.2 * 0.3507 / 0.02, rel=1e-3)
  assert rates[0].count_nonzero() == 2


def test_joint_acceleration_of_a_substep(env):
  result = env.step(torch.randn(2, 29))[-1]["constraints"]["quantities"]
  change = env.sim.data.qvel[:, 6:] - env.sim.qvel_prev[:, 6:]
  assert torch.allclose(result["joint_acc"], change.abs() / 0.005)
  assert result["joint_acc"].max() > 1.0


def test_joint_acceleration_of_a_control_step(env):
  term = mdp.joint_acc_control(
    ConstraintTermCfg(func=mdp.joint_acc_control, limits={}), env
  )
  adr = env.scene["robot"].indexing.joint_v_adr
  env.sim.data.qvel[:, adr] = torch.full((2, 29), 0.5)
  env.episode_length_buf[:] = 1
  assert (term(env) == 0).all()
  env.sim.data.qvel[:, adr] = torch.full((2, 29), 0.2)
  env.episode_length_buf[:] = 2
  assert torch.allclose(term(env), torch.tensor(0.3 / 0.02))
  env.episode_length_buf[:] = torch.tensor([1, 3])  # The first one was reset.
  env.sim.data.qvel[:, adr] = torch.full((2, 29), 0.4)
  result = term(env)
  assert (result[0] == 0).all()
  assert torch.allclose(result[1], torch.tensor(0.2 / 0.02))


def test_torque_and_velocity(env):
  action = torch.zeros(2, 29)
  robot = env.scene["robot"]
  elbow = robot.joint_names.index("left_elbow_joint")
  action[:, elbow] = -20.0  # 8.8 rad away: the motor gives its 25 Nm.
  result = env.step(action)[-1]["constraints"]["quantities"]
  assert result["joint_torque"][0, elbow].item() == pytest.approx(25.0, rel=1e-3)
  expected = quantities.joint_velocity(env.sim.data.qvel[:, 6:])
  assert torch.equal(result["joint_vel"], expected)


def test_the_docs_list_every_term():
  page = Path(__file__).parents[3] / "docs" / "constraints.md"
  section = page.read_text("utf-8").split("## Groups and limits")[0]
  listed = re.findall(r"^\| `(\w+)` \| \[B", section, re.MULTILINE)
  module = mdp.action_rate.__module__
  terms = [
    n for n, term in vars(mdp).items() if getattr(term, "__module__", "") == module
  ]
  assert sorted(listed) == sorted(n for n in terms if not n.startswith("_"))
