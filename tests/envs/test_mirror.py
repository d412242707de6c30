"""Left and right exchanged: in the model, in observations, in the simulation."""

import mujoco
import numpy as np
import pytest
import torch

from decap.envs.constrained_env import ConstrainedEnv
from decap.envs.mirror import joint_mirror
from decap.envs.mirror import mirrors as mirrors_of
from decap.errors import UserError
from decap.tasks import TASKS, env_cfg

SIDES = {"left": "right", "FL": "FR", "RL": "RR"}


def other_side(name: str) -> str:
  for left, right in SIDES.items():
    for here, there in ((left, right), (right, left)):
      if name.startswith(here):
        return there + name[len(here) :]
  return name


def model_of(task: str) -> tuple[mujoco.MjModel, list[str]]:
  robot = TASKS[task].describe()
  return robot.entity.spec_fn().compile(), list(robot.joint_names)


@pytest.mark.parametrize("task", ["g1-flat", "g1-23dof-flat", "go1-flat"])
def test_a_mirrored_pose_is_the_mirror_image(task):
  model, names = model_of(task)
  mirror = joint_mirror(model, names)
  # A signed permutation that undoes itself.
  assert np.array_equal(mirror @ mirror, np.eye(len(names)))
  assert np.array_equal(np.abs(mirror).sum(0), np.ones(len(names)))
  image = {a: names[j] for a, j in zip(names, np.abs(mirror).argmax(1), strict=True)}
  assert image == {name: other_side(name) for name in names}
  places = model.jnt_qposadr[[model.joint(name).id for name in names]]
  rng = np.random.default_rng(0)
  q = 0.5 * rng.standard_normal(len(names))
  found = []
  for pose in (q, q @ mirror):
    data = mujoco.MjData(model)
    data.qpos[places] = pose
    mujoco.mj_kinematics(model, data)
    root = data.xpos[model.body_rootid[model.jnt_bodyid[model.joint(names[0]).id]]]
    found.append(
      {model.body(i).name: data.xpos[i] - root for i in range(1, model.nbody)}
    )
  here, there = found
  moved = 0
  for name, position in here.items():
    expected = position * (1.0, -1.0, 1.0)
    # The two halves of a real robot's model differ by a few millimetres.
    np.testing.assert_allclose(there[other_side(name)], expected, atol=0.008)
    moved += np.linalg.norm(there[name] - position) > 0.05
  assert moved >= 4  # The pose was not its own image.


def test_a_robot_that_is_not_symmetric_is_refused():
  xml = """<mujoco><worldbody><body><freejoint/><geom size=".1"/>
    <body name="arm" pos="0 0.3 0"><joint name="arm" axis="0 1 0"/><geom size=".1"/></body>
    </body></worldbody></mujoco>"""
  with pytest.raises(UserError, match="joint 'arm' has no mirror image"):
    joint_mirror(mujoco.MjModel.from_xml_string(xml), ["arm"])


@pytest.fixture(scope="module")
def env() -> ConstrainedEnv:
  """Two robots that nothing tells apart."""
  cfg = env_cfg("g1-flat", play=True)
  cfg.scene.num_envs = 2
  cfg.events = {}
  cfg.seed = 0
  env = ConstrainedEnv(cfg, "cpu")
  env.reset(seed=0)
  return env


def test_mirrors_undo_themselves(env):
  mirrors = env.mirrors()
  # What the critic alone sees need not have a mirror image.
  assert set(mirrors) == {"actor", "actions"}
  for name, mirror in mirrors.items():
    assert torch.equal(mirror @ mirror, torch.eye(len(mirror))), name
  assert (
    mirrors["actor"].shape[0] == env.observation_manager.compute()["actor"].shape[1]
  )


def test_a_mirrored_robot_stays_the_mirror_image(env):
  mirrors = mirrors_of(env, ("actor", "critic"))
  data, joints = env.sim.data, mirrors["actions"]
  torch.manual_seed(0)
  quat, vector, turn = (
    torch.tensor(signs) for signs in ((1.0, -1, 1, -1), (1.0, -1, 1), (-1.0, 1, -1))
  )
  data.qpos[0, 3:7] = torch.nn.functional.normalize(
    torch.tensor([1.0, 0.1, -0.05, 0.2]), dim=0
  )
  data.qpos[0, 7:] += 0.2 * torch.randn(29)
  data.qvel[0] = 0.5 * torch.randn(35)
  data.qpos[:, 2] += 0.2  # In the air: contact forces would depend on the last digit.
  data.qpos[1, 2] = data.qpos[0, 2]
  data.qpos[1, 3:7] = data.qpos[0, 3:7] * quat
  data.qpos[1, 7:] = data.qpos[0, 7:] @ joints
  data.qvel[1, :3] = data.qvel[0, :3] * vector
  data.qvel[1, 3:6] = data.qvel[0, 3:6] * turn
  data.qvel[1, 6:] = data.qvel[0, 6:] @ joints
  env.sim.forward()
  term = env.command_manager.get_term("twist")
  term.is_standing_env[:] = False
  term.vel_command_b[:] = torch.tensor([[0.5, 0.2, 0.3], [0.5, -0.2, -0.3]])
  # Half a period apart: the other foot is due.
  env.episode_length_buf[:] = torch.tensor([7, 27])
  action = 0.3 * torch.randn(1, 29)
  for _ in range(3):
    obs, *_ = env.step(torch.cat((action, action @ joints)))
    for group in ("actor", "critic"):
      here, there = obs[group]
      assert (here - there).abs().max() > 0.1
      torch.testing.assert_close(there, here @ mirrors[group], atol=0.03, rtol=0.03)
