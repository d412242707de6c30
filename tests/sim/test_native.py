"""The native backend against plain C MuJoCo, and the promises it makes."""

from __future__ import annotations

import copy

import mujoco
import numpy as np
import pytest
import torch
from mjlab.managers.event_manager import RecomputeLevel
from mjlab.scene import Scene

from decap.errors import UserError
from decap.sim.native import NativeSimulation
from decap.sim.native_model import MIN_SOLVER_ITERATIONS
from tests.sim.scenes import native, stand, targets, task_cfg

# Single precision of what is read, and a sparse solver against a dense one.
TOLERANCE = 2e-5


def reference(model: mujoco.MjModel) -> tuple[mujoco.MjModel, mujoco.MjData]:
  """Plain MuJoCo with the solver's cap that the native backend uses."""
  model = copy.copy(model)
  model.opt.iterations = MIN_SOLVER_ITERATIONS
  return model, mujoco.MjData(model)


def rollout(sim, model, steps: int, start: int = 0) -> None:
  for step in range(start, start + steps):
    sim.data.ctrl[:] = targets(model, sim.num_envs, step)
    sim.step_many(4)
    sim.forward()


@pytest.mark.parametrize("robot", ["g1", "go1"])
def test_steps_as_plain_mujoco_does(robot, request):
  model = request.getfixturevalue(robot)
  sim = native(model, num_envs=3, robot=robot)
  stand(sim, model)
  plain, data = reference(model)
  data.qpos[:] = sim.data.qpos[2].numpy()
  for step in range(3):
    sim.data.ctrl[:] = targets(model, 3, step)
    sim.step_many(4)
    data.ctrl[:] = sim.data.ctrl[2].numpy()
    for _ in range(4):
      mujoco.mj_step(plain, data)
  # Before a forward pass, derived quantities lag by a substep in both.
  np.testing.assert_allclose(sim.data.xpos[2], data.xpos, atol=TOLERANCE)
  sim.forward()
  mujoco.mj_forward(plain, data)
  assert data.ncon > 0
  for name in ("qpos", "xpos", "xquat", "xipos", "site_xpos", "subtree_com"):
    np.testing.assert_allclose(
      getattr(sim.data, name)[2], getattr(data, name), atol=TOLERANCE, err_msg=name
    )
  for name in ("qvel", "cvel", "actuator_force", "qfrc_actuator"):
    np.testing.assert_allclose(
      getattr(sim.data, name)[2], getattr(data, name), atol=1e-3, err_msg=name
    )


def test_contact_sensor_agrees_with_the_contact_forces(g1):
  sim = native(g1, num_envs=2)
  stand(sim, g1)
  sim.data.qpos[:] = torch.tensor(g1.key_qpos[0], dtype=torch.float32)
  sim.data.ctrl[:] = torch.tensor(g1.key_qpos[0, 7:], dtype=torch.float32)
  for _ in range(5):
    sim.step_many(4)
  sim.forward()
  plain, data = reference(g1)
  data.qpos[:], data.qvel[:] = sim.data.qpos[1].numpy(), sim.data.qvel[1].numpy()
  data.ctrl[:] = sim.data.ctrl[1].numpy()
  mujoco.mj_forward(plain, data)

  # The net force that a foot exerts is the sum over its contacts, in the world's frame.
  name = "feet_ground_contact_left_ankle_roll_link_force"
  foot = g1.body("robot/left_ankle_roll_link").id
  expected = np.zeros(3)
  for i in range(data.ncon):
    wrench = np.zeros(6)
    mujoco.mj_contactForce(plain, data, i, wrench)
    force = data.contact[i].frame.reshape(3, 3).T @ wrench[:3]
    first, second = plain.geom_bodyid[data.contact[i].geom]
    expected += force * (int(first == foot) - int(second == foot))
  adr = g1.sensor(name).adr[0]
  assert expected[2] < -50.0
  np.testing.assert_allclose(
    sim.data.sensordata[1, adr : adr + 3], expected, rtol=1e-3, atol=0.05
  )


@pytest.mark.parametrize(
  ("field", "factor", "recompute"),
  [
    ("geom_friction", 0.1, False),
    ("body_mass", 1.5, True),
    ("actuator_gainprm", 1.3, False),
    ("actuator_biasprm", 1.3, False),
    ("dof_armature", 2.0, True),
  ],
)
def test_randomised_fields_act_as_an_edited_model_does(g1, field, factor, recompute):
  sim = native(g1, num_envs=2)
  sim.expand_model_fields((field,))
  getattr(sim.model, field)[1] *= factor
  if recompute:
    sim.recompute_constants(RecomputeLevel.set_const)
  sim.data.qpos[:] = torch.tensor(g1.key_qpos[0], dtype=torch.float32)
  sim.data.qvel[:, 0] = 1.0
  sim.data.ctrl[:] = targets(g1, 1, 0)

  edited, data = reference(g1)
  getattr(edited, field)[:] *= factor
  if recompute:
    mujoco.mj_setConst(edited, data)
  mujoco.mj_resetData(edited, data)
  data.qpos[:] = g1.key_qpos[0]
  data.qvel[0] = 1.0
  data.ctrl[:] = targets(g1, 1, 0)[0].numpy()

  sim.step_many(8)
  for _ in range(8):
    mujoco.mj_step(edited, data)
  velocity = sim.data.qvel[:]
  assert (velocity[1] - velocity[0]).abs().max() > 1e-2
  np.testing.assert_allclose(velocity[1], data.qvel, atol=2e-3)


def test_centre_of_mass_moves_where_the_compiler_took_a_shortcut():
  # The sphere's frame, its inertia's and its body's coincide, which C MuJoCo exploits.
  model = mujoco.MjModel.from_xml_string("""
    <mujoco><worldbody><body pos="0 0 1"><joint type="hinge"/>
      <geom size=".1"/></body></worldbody></mujoco>""")
  sim = native(model, num_envs=2)
  sim.expand_model_fields(("body_ipos",))
  sim.model.body_ipos[1, 1] = torch.tensor([0.0, 0.2, 0.0])
  sim.forward()
  assert sim.data.xipos[0, 1].tolist() == [0.0, 0.0, 1.0]
  torch.testing.assert_close(sim.data.xipos[1, 1], torch.tensor([0.0, 0.2, 1.0]))


def test_refuses_to_move_the_centre_of_mass_of_a_lone_free_body():
  model = mujoco.MjModel.from_xml_string("""
    <mujoco><worldbody><body name="ball"><freejoint/><geom size=".1"/></body>
    </worldbody></mujoco>""")
  sim = native(model, num_envs=2)
  with pytest.raises(UserError, match="'ball'"):
    sim.expand_model_fields(("body_ipos",))


def test_results_do_not_depend_on_the_number_of_threads(g1):
  rows = []
  for num_threads in (1, 2, 3):
    sim = native(g1, num_envs=7, num_threads=num_threads)
    assert sim.num_threads == num_threads
    stand(sim, g1)
    rollout(sim, g1, steps=4)
    rows.append(sim.state_dict())
  for other in rows[1:]:
    assert torch.equal(rows[0]["rows"], other["rows"])
    for name, value in rows[0]["fields"].items():
      assert torch.equal(value, other["fields"][name]), name


def test_a_loaded_state_continues_bit_for_bit(g1):
  def build():
    sim = native(g1, num_envs=3)
    sim.expand_model_fields(("body_mass", "body_subtreemass", "body_invweight0"))
    return sim

  sim = build()
  stand(sim, g1)
  sim.model.body_mass[1] *= 1.2
  sim.recompute_constants(RecomputeLevel.set_const)
  rollout(sim, g1, steps=4)
  sim.data.qvel[0, 0] += 0.5  # A push that no call has taken up yet.
  saved, masses = sim.state_dict(), sim.model.body_mass.clone()
  rollout(sim, g1, steps=3, start=4)

  other = build()
  stand(other, g1)
  rollout(other, g1, steps=1)
  other.data.qpos[1, 2] = 3.0
  other.model.body_mass[:] = masses
  other.load_state_dict(saved)
  for name, value in saved["fields"].items():
    assert torch.equal(other.state_dict()["fields"][name], value), name
  rollout(other, g1, steps=3, start=4)
  expected, found = sim.state_dict(), other.state_dict()
  assert torch.equal(expected["rows"], found["rows"])
  assert torch.equal(expected["qvel_prev"], found["qvel_prev"])
  for name, value in expected["fields"].items():
    assert torch.equal(found["fields"][name], value), name


def test_a_state_of_another_size_is_refused(g1):
  saved = native(g1, num_envs=2).state_dict()
  with pytest.raises(UserError, match="number of environments"):
    native(g1, num_envs=3).load_state_dict(saved)


def test_reset_touches_masked_environments_only(g1):
  sim = native(g1, num_envs=4)
  stand(sim, g1)
  rollout(sim, g1, steps=3)
  sim.data.xfrc_applied[:, 3, 0] = 5.0
  sim.data.qvel[:, 0] = 1.0  # A push just before the reset must not survive it.
  before = sim.state_dict()
  mask = torch.tensor([True, False, True, False])
  sim.reset_masked(mask)
  after = sim.state_dict()
  assert torch.equal(after["rows"][~mask], before["rows"][~mask])
  for name, value in before["fields"].items():
    assert torch.equal(after["fields"][name][~mask], value[~mask]), name
  for name in ("qvel", "ctrl", "xfrc_applied", "sensordata", "qacc", "time"):
    assert not after["fields"][name][mask].any(), name

  # A reset environment goes on as a new one does.
  new = native(g1, num_envs=4)
  for simulation in (sim, new):
    simulation.data.ctrl[:] = targets(g1, 4, 9)
    simulation.step_many(4)
  assert torch.equal(sim.state_dict()["rows"][mask], new.state_dict()["rows"][mask])
  assert not torch.equal(sim.data.qpos[~mask], new.data.qpos[~mask])


def test_reset_takes_indices_and_randomised_initial_poses(g1):
  sim = native(g1, num_envs=3)
  sim.expand_model_fields(("qpos0",))
  sim.model.qpos0[1, 2] = 1.5
  rollout(sim, g1, steps=1)
  sim.reset(torch.tensor([1]))
  sim.forward()
  assert sim.data.qpos[1, 2] == 1.5
  assert sim.data.time.tolist() == [pytest.approx(0.02), 0.0, pytest.approx(0.02)]


def test_several_substeps_at_once_are_single_ones_and_keep_the_last_velocity(g1):
  together, apart = native(g1, num_envs=2), native(g1, num_envs=2)
  for sim in (together, apart):
    stand(sim, g1)
    sim.data.ctrl[:] = targets(g1, 2, 0)
  together.step_many(4)
  for _ in range(3):
    apart.step()
  before_last = apart.data.qvel.clone()
  apart.step()
  assert torch.equal(together.qvel_prev, before_last)
  assert torch.equal(apart.qvel_prev, before_last)
  assert apart.data.sensordata[:].abs().sum() > 0.0
  for name in ("qvel", "sensordata"):
    assert torch.equal(getattr(together.data, name)[:], getattr(apart.data, name)[:])


def test_a_split_forward_pass_changes_no_trajectory(g1):
  whole, split = native(g1, 6), native(g1, 6, split=True)
  mask = torch.arange(6) == 2
  for sim in (whole, split):
    stand(sim, g1)
    sim.forward()
  for i in range(12):
    for sim in (whole, split):
      sim.data.ctrl[:] = targets(g1, 6, i)
      sim.step_many(4)
    # Forces are those of the last substep in both, and stay so in one of them.
    forces = split.data.sensordata[:].clone(), split.data.qacc[:].clone()
    assert torch.equal(whole.data.sensordata[:], forces[0])
    for sim in (whole, split):
      if i == 6:
        sim.reset_masked(mask)
      sim.forward()
    if i != 6:
      assert torch.equal(split.data.qacc[:], forces[1])
    for name in ("qpos", "qvel", "xpos", "xquat", "cvel", "site_xpos"):
      a, b = getattr(whole.data, name)[:], getattr(split.data, name)[:]
      assert torch.equal(a, b), name


def test_a_diverged_environment_is_seen_and_spoils_no_other(g1, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  sim, untouched = native(g1, num_envs=2), native(g1, num_envs=2)
  for simulation in (sim, untouched):
    stand(simulation, g1)
  sim.data.qpos[0, 3] = float("nan")
  for simulation in (sim, untouched):
    rollout(simulation, g1, steps=2)
  assert sim.data.qpos[0].isnan().any()
  assert torch.equal(sim.data.qpos[1], untouched.data.qpos[1])
  sim.reset(torch.tensor([0]))
  rollout(sim, g1, steps=1)
  assert sim.data.qpos[:].isfinite().all()
  assert list(tmp_path.iterdir()) == []  # No MUJOCO_LOG.TXT.


def test_a_policy_that_answers_nan_leaves_no_log_file(g1, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  sim = native(g1, num_envs=2)
  stand(sim, g1)
  sim.data.ctrl[0, 10] = float("nan")
  sim.step_many(4)
  assert list(tmp_path.iterdir()) == []


def test_a_field_first_read_late_is_current_and_changes_nothing(g1):
  sim = native(g1, num_envs=2)
  stand(sim, g1)
  rollout(sim, g1, steps=2)
  before = sim.state_dict()
  data = mujoco.MjData(g1)
  data.qpos[:] = sim.data.qpos[1].numpy()
  mujoco.mj_kinematics(g1, data)
  found = sim.data.geom_xmat[1].reshape(-1, 9)
  np.testing.assert_allclose(found, data.geom_xmat, atol=TOLERANCE)
  after = sim.state_dict()
  assert torch.equal(before["rows"], after["rows"])
  for name, value in before["fields"].items():
    assert torch.equal(after["fields"][name], value), name


def test_what_c_mujoco_has_not_in_batches_is_refused(g1):
  sim = native(g1, num_envs=2)
  with pytest.raises(AttributeError, match="warp backend"):
    _ = sim.data.contact
  with pytest.raises(AttributeError, match="native backend has no nefc"):
    _ = sim.data.nefc


def test_a_robot_steps_the_same_without_its_visual_geoms(g1):
  cfg = task_cfg("g1", 2)
  spec = Scene(cfg.scene, device="cpu").spec
  seen = native(g1, num_envs=2)
  light = NativeSimulation(2, cfg.sim, spec=spec, num_threads=1)
  assert g1.nbvh > 500_000 and light._batch.model.nbvh < 100
  for sim in (seen, light):
    sim.expand_model_fields(("geom_friction", "body_mass"))
    sim.model.geom_friction[1] *= 0.5
    sim.model.body_mass[1] *= 1.1
    sim.recompute_constants(RecomputeLevel.set_const)
    stand(sim, g1)
    rollout(sim, g1, steps=8)
  for name in ("qpos", "qvel", "sensordata", "actuator_force", "subtree_com"):
    assert torch.equal(getattr(light.data, name)[:], getattr(seen.data, name)[:]), name
