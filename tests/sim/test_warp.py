"""The Warp backend on the CPU, which compiles for a minute, and on a GPU."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch

from decap.errors import UserError
from decap.rl.capture import Captured, on_stream
from decap.sim import WarpSimulation, make_simulation
from decap.sim.warp import contacts_stand_alone
from tests.sim.scenes import native, stand, targets, task_cfg

# One control step from the same state. Warp works in single precision.
QPOS_TOLERANCE = 1e-5
QVEL_TOLERANCE = 1e-3
FORCE_TOLERANCE = 0.5  # N, of several hundred


def warp(model, num_envs: int, device: str = "cpu", **options) -> WarpSimulation:
  sim = make_simulation(
    num_envs, task_cfg("g1", 1).sim, model, device, backend="warp", **options
  )
  assert isinstance(sim, WarpSimulation)
  return sim


def control_step(sim, model, step: int, mask: torch.Tensor | None = None) -> None:
  """As an environment does it: controls, physics, masked resets, kinematics."""
  sim.data.ctrl[:] = targets(model, sim.num_envs, step).to(sim.device)
  sim.step_many(4)
  if mask is not None:
    sim.reset_masked(mask)
  sim.forward()


def test_split_refuses_what_it_cannot_split(g1):
  cfg = task_cfg("g1", 1).sim
  cfg.mujoco.enableflags = ("sleep",)
  try:
    with pytest.raises(UserError, match="sleeping"):
      WarpSimulation(1, cfg, g1, "cpu", split=True)
  finally:
    g1.opt.enableflags &= ~int(mujoco.mjtEnableBit.mjENBL_SLEEP)


def test_contacts_run_beside_velocities_where_neither_needs_the_other(g1):
  assert contacts_stand_alone(g1)
  ball = '<body name="a"><joint name="j"/><geom size="1"/></body>'
  for kind, tag in (
    ("actuator", '<motor joint="j"/>'),
    ("actuator", '<adhesion body="a" ctrlrange="0 1"/>'),
    ("equality", '<joint joint1="j"/>'),
    ("tendon", '<fixed><joint joint="j" coef="1"/></fixed>'),
  ):
    model = mujoco.MjModel.from_xml_string(
      f"<mujoco><worldbody>{ball}</worldbody><{kind}>{tag}</{kind}></mujoco>"
    )
    assert contacts_stand_alone(model) is ("motor" in tag), tag


@pytest.mark.slow
def test_native_agrees_with_warp(g1):
  c, w = native(g1, num_envs=16), warp(g1, num_envs=16)
  stand(c, g1)
  errors: dict[str, list[np.ndarray]] = {"qpos": [], "qvel": [], "sensordata": []}
  for step in range(15):
    c.data.ctrl[:] = targets(g1, 16, step)
    c.forward()
    for name in ("qpos", "qvel", "ctrl"):
      getattr(w.data, name)[:] = getattr(c.data, name)[:]
    w.data.qacc_warmstart[:] = c.data.qacc_warmstart[:]
    for sim in (c, w):
      sim.step_many(4)
    for name, found in errors.items():
      difference = getattr(c.data, name)[:] - getattr(w.data, name)[:]
      found.append(difference.abs().amax(dim=1).numpy())
    np.testing.assert_allclose(c.qvel_prev, w.qvel_prev, atol=0.1)
    for sim in (c, w):
      sim.forward()
    np.testing.assert_allclose(c.data.xpos[:], w.data.xpos[:], atol=1e-3)
  # A contact that one of them makes a substep earlier parts them: hence quantiles.
  for name, tolerance in (
    ("qpos", QPOS_TOLERANCE),
    ("qvel", QVEL_TOLERANCE),
    ("sensordata", FORCE_TOLERANCE),
  ):
    worst = np.quantile(np.concatenate(errors[name]), 0.98)
    assert worst < tolerance, f"{name}: {worst}"


@pytest.mark.slow
def test_split_physics_gives_the_same_numbers(g1):
  whole, split = warp(g1, num_envs=3), warp(g1, num_envs=3, split=True)
  mask = torch.tensor([False, True, False])
  for sim in (whole, split):
    stand(sim, g1)
    sim.forward()
  for step in range(12):
    for sim in (whole, split):
      control_step(sim, g1, step, mask if step == 5 else None)
    for name in ("qpos", "qvel", "xpos", "cvel", "qacc_warmstart", "time"):
      assert torch.equal(getattr(whole.data, name)[:], getattr(split.data, name)[:])
    assert torch.equal(whole.qvel_prev, split.qvel_prev)
  # Rewards read sensors before the closing pass; contacts must still be there.
  for sim in (whole, split):
    sim.step_many(4)
  assert torch.equal(whole.data.sensordata[:], split.data.sensordata[:])
  contacts = split.data.sensordata[:].clone()
  split.forward()
  adr = g1.sensor("feet_ground_contact_left_ankle_roll_link_force").adr[0]
  force = split.data.sensordata[:, adr : adr + 3]
  assert force.any()
  assert torch.equal(force, contacts[:, adr : adr + 3])


@pytest.mark.slow
def test_warp_resets_and_restores(g1):
  sim = warp(g1, num_envs=3)
  stand(sim, g1)
  for step in range(3):
    control_step(sim, g1, step)
  saved = sim.state_dict()
  assert sim.overflow().max() < 1.0
  assert sim.overflow().min() > 0.0
  # As many pairs of geoms again as there is room for: some contacts were not found.
  sim.data.ncollision[:] = 2 * sim.wp_data.naconmax
  assert sim.overflow()[1] == 2.0
  mask = torch.tensor([True, False, False])
  sim.reset_masked(mask)
  qpos0 = torch.tensor(g1.qpos0, dtype=torch.float32)
  assert torch.equal(sim.data.qpos[0], qpos0)
  assert torch.equal(sim.data.qpos[1:], saved["fields"]["qpos"][1:])
  sim.load_state_dict(saved)
  assert torch.equal(sim.data.qpos[:], saved["fields"]["qpos"])
  with pytest.raises(UserError, match="number of environments"):
    warp(g1, num_envs=2).load_state_dict(saved)


@pytest.mark.gpu
@pytest.mark.parametrize("split", [False, True])
def test_a_control_step_can_be_captured(g1, split):
  device = "cuda:0"
  eager = warp(g1, 64, device, split=split)
  captured = warp(g1, 64, device, split=split)
  captured.use_cuda_graph = False
  mask = torch.zeros(64, dtype=torch.bool, device=device)
  mask[3] = True
  control = torch.empty(64, g1.nu, device=device)

  def step(sim: WarpSimulation) -> None:
    sim.data.ctrl[:] = control
    sim.step_many(4)
    sim.reset_masked(mask)
    sim.forward()

  for sim in (eager, captured):
    stand(sim, g1)
    sim.forward()
  control.copy_(targets(g1, 64, 0))
  stream = torch.cuda.Stream()
  captured.use_stream(stream)
  torch.cuda.synchronize()
  for _ in range(2):
    step(eager)
    with on_stream(stream):
      step(captured)
  graph = Captured(lambda: step(captured), stream)
  for i in range(1, 4):
    control.copy_(targets(g1, 64, i))
    torch.cuda.synchronize()
    step(eager)
    graph()
    torch.cuda.synchronize()
  # Atomic additions in the solver come in any order, and contacts amplify it.
  error = (eager.data.qpos[:] - captured.data.qpos[:]).abs().amax(dim=1)
  assert error.median() < 1e-3
  assert torch.equal(captured.data.qpos[3], eager.data.qpos[3])
