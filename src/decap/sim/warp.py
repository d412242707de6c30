"""MuJoCo Warp as mjlab runs it, plus what a control step without waiting needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mujoco
import mujoco_warp as mjwarp
import numpy as np
import torch
import warp as wp
from mjlab.managers.event_manager import RecomputeLevel
from mjlab.sim.sim import Simulation
from mjlab.sim.sim_data import TorchArray, WarpBridge

from decap import mjlab_private
from decap.errors import UserError

STATE_FIELDS = (
  "time",
  "qpos",
  "qvel",
  "act",
  "qacc_warmstart",
  "ctrl",
  "qfrc_applied",
  "xfrc_applied",
  "eq_active",
  "mocap_pos",
  "mocap_quat",
)
_INTEGRATORS = {
  mjwarp.IntegratorType.EULER: mjwarp.euler,
  mjwarp.IntegratorType.IMPLICIT: mjwarp.implicit,
  mjwarp.IntegratorType.IMPLICITFAST: mjwarp.implicit,
}


@wp.kernel
def _zero_columns(
  chosen: wp.array(dtype=bool),  # type: ignore[valid-type]
  values: wp.array2d(dtype=float),  # type: ignore[valid-type]
):
  world, column = wp.tid()  # type: ignore[misc, not-iterable]
  if chosen[column]:
    values[world, column] = 0.0


class WarpSimulation(Simulation):
  """mjlab's Simulation with whole control steps, masked resets and a split loop.

  A substep computes positions and velocities first, then forces and accelerations, and
  integrates. mjlab's closing ``forward()`` repeats the first half of the next control
  step's first substep. With ``split``, ``forward()`` computes that half alone and
  ``step_many`` begins with the second: the same trajectory for about a quarter less
  work. Then nobody may write qpos, qvel or the model between ``forward()`` and
  ``step_many()``; and forces, accelerations and their sensors (contacts too) stay
  those of the last substep when observations read them, not of the state after it.
  Sensors are computed where somebody can read them: in the last substep of
  ``step_many`` and in ``forward()``.

  With ``use_cuda_graph`` set to False, every method only launches kernels on Warp's
  current stream, so a caller may capture a whole control step; see ``use_stream``.
  """

  def __init__(self, *args: Any, split: bool = False, **kwargs: Any):
    self.split = split
    # Which half of a substep the data holds: the first of the present state, and any
    # second one at all.
    self._positions_current = False
    self._forces_known = False
    super().__init__(*args, **kwargs)

  # Methods.

  def create_graph(self) -> None:
    super().create_graph()
    self._positions_current = False
    self._stage_graphs = {}
    if self.use_cuda_graph and self.split:
      with mjlab_private.suspended_gc(), wp.ScopedDevice(self.wp_device):
        for stage in (self._position_stage, self._force_stage):
          for sensed in (False, True):
            with wp.ScopedCapture() as capture:
              stage(sensed)
            self._stage_graphs[stage, sensed] = capture.graph

  def recompute_constants(self, level: RecomputeLevel) -> None:
    super().recompute_constants(level)
    self._positions_current = False

  def forward(self) -> None:
    if self.split and self._forces_known:
      with wp.ScopedDevice(self.wp_device):
        self._run_stage(self._position_stage, sensed=True)
    else:
      super().forward()
    self._positions_current = self._forces_known = True

  def step(self) -> None:
    super().step()
    self._positions_current = False
    self._forces_known = True

  def step_many(self, n: int) -> None:
    """``n`` substeps with constant controls; see ``qvel_prev``."""
    with wp.ScopedDevice(self.wp_device), self.nan_guard.watch(self.data):
      for i in range(n):
        last = i == n - 1
        if last:
          wp.copy(self._qvel_prev_wp, self.wp_data.qvel)
        self._substep(sensed=last or self._sensors_remember)

  def reset(self, env_ids: torch.Tensor | None = None) -> None:
    super().reset(env_ids)
    self._positions_current = False

  def reset_masked(self, mask: torch.Tensor) -> None:
    """Puts the masked environments [B] at the model's initial state."""
    chosen, chosen_wp = mjlab_private.reset_masks(self)
    chosen[:] = mask
    with wp.ScopedDevice(self.wp_device):
      self._launch(
        self.reset_graph,
        lambda: mjwarp.reset_data(self.wp_model, self.wp_data, reset=chosen_wp),
      )
    self._positions_current = False

  def use_stream(self, stream: torch.cuda.Stream) -> None:
    """Makes writes through ``data`` and ``model`` run on a stream.

    mjlab's arrays remember the stream on which they were first used, and would write
    there even while another one is being captured.
    """
    for array in _torch_arrays(*mjlab_private.bridges(self)):
      mjlab_private.set_stream(array, stream)
    mjlab_private.set_stream(mjlab_private.reset_masks(self)[0], stream)

  def overflow(self) -> torch.Tensor:
    """Shares of constraint and contact capacity in use, [2]; beyond 1 some were lost.

    They are of the last substep: read them after it, before a reset. Pairs of geoms
    that may touch need as much room as contacts.
    """
    data = self.wp_data
    contacts = torch.maximum(self.data.nacon[0], self.data.ncollision[0])
    return torch.stack((self.data.nefc.max() / data.njmax, contacts / data.naconmax))

  def state_dict(self) -> dict[str, Any]:
    """The state; expanded fields of ``model`` are to be saved beside it."""
    return {
      "fields": {
        name: getattr(self.data, name).cpu().clone()
        for name in (*STATE_FIELDS, "sensordata", "qacc")
        if getattr(self.wp_data, name).size
      },
      "qvel_prev": self.qvel_prev.cpu().clone(),
    }

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Continues from a saved state; forces and contacts are computed anew."""
    for name, value in state["fields"].items():
      array = getattr(self.data, name)
      if value.shape != array.shape:
        raise UserError(
          f"the saved simulation has {name} of shape {tuple(value.shape)}, this one "
          f"{tuple(array.shape)}: number of environments or model differ"
        )
      array[:] = value.to(self.device)
    self.qvel_prev.copy_(state["qvel_prev"])
    self._forces_known = False
    self.forward()

  # Private methods.

  def _finish_init(self) -> None:
    model = self.mj_model
    if self.split and model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4:
      raise UserError("split physics needs the euler or an implicit integrator")
    if self.split and model.opt.enableflags & mujoco.mjtEnableBit.mjENBL_SLEEP:
      raise UserError("split physics does not work with sleeping bodies")
    needs_forces = force_columns(model)
    self._force_columns = wp.array(needs_forces, dtype=bool)
    self._position_columns = wp.array(~needs_forces, dtype=bool)
    self._qvel_prev_wp = wp.zeros((self.num_envs, model.nv), dtype=float)
    self.qvel_prev = wp.to_torch(self._qvel_prev_wp)
    """Joint-space velocity before the last substep. # [B, nv]"""
    self._sensors_remember = model.nhistory > 0
    self._second_stream = self._make_second_stream()
    super()._finish_init()

  def _launch(self, graph: Any, launch: Callable[[], None]) -> None:
    if self.use_cuda_graph and graph is not None:
      wp.capture_launch(graph)
    else:
      launch()

  def _run_stage(self, stage: Callable[[bool], None], sensed: bool) -> None:
    self._launch(self._stage_graphs.get((stage, sensed)), lambda: stage(sensed))

  def _substep(self, sensed: bool) -> None:
    if not self.split:
      self._launch(self.step_graph, lambda: mjwarp.step(self.wp_model, self.wp_data))
    else:
      if not self._positions_current:
        self._run_stage(self._position_stage, sensed)
      self._run_stage(self._force_stage, sensed)
    self._positions_current = False
    self._forces_known = True

  def _make_second_stream(self) -> wp.Stream | None:
    """For what contacts need not wait for, on a GPU."""
    if self.wp_device.is_cuda and contacts_stand_alone(self.mj_model):
      return wp.Stream(self.wp_device)
    return None

  def _position_stage(self, sensed: bool) -> None:
    """The first half of mujoco_warp.forward: what depends on qpos and qvel alone."""
    m, d = self.wp_model, self.wp_data
    if self._second_stream is None:
      mjwarp.fwd_position(m, d, factorize=False)
      mjwarp.fwd_velocity(m, d)
    else:
      self._positions_and_velocities_side_by_side(self._second_stream)
    energy = m.opt.enableflags & mjwarp.EnableBit.ENERGY
    if sensed:
      self._zero_sensors(self._position_columns)
      mjwarp.sensor_pos(m, d)
      mjwarp.sensor_vel(m, d)
    if not energy:
      d.energy.zero_()
    elif m.sensor_e_potential == 0:
      mjwarp.energy_pos(m, d)
    if energy and m.sensor_e_kinetic == 0:
      mjwarp.energy_vel(m, d)

  def _positions_and_velocities_side_by_side(self, second: wp.Stream) -> None:
    """Contacts and their constraints on one stream, inertia and velocities on another.

    Both are chains of small kernels that leave most of a GPU idle.
    """
    m, d = self.wp_model, self.wp_data
    mjwarp.fwd_kinematics(m, d)
    mjwarp.transmission(m, d)
    second.wait_stream(wp.get_stream(self.wp_device))
    with wp.ScopedStream(second, sync_enter=False):
      mjwarp.crb(m, d)
      mjwarp.fwd_velocity(m, d)
    if m.opt.run_collision_detection:
      mjwarp.collision(m, d)
    mjwarp.make_constraint(m, d)
    wp.wait_stream(second)

  def _force_stage(self, sensed: bool) -> None:
    """The second half of mujoco_warp.forward, and the integration."""
    m, d = self.wp_model, self.wp_data
    actuated = not m.opt.disableflags & mjwarp.DisableBit.ACTUATION
    if actuated and m.callback.control:
      m.callback.control(m, d)
    mjwarp.fwd_actuation(m, d)
    mjwarp.fwd_acceleration(m, d, factorize=True)
    mjwarp.solve(m, d)
    if sensed:
      self._zero_sensors(self._force_columns)
      mjwarp.sensor_acc(m, d)
    _INTEGRATORS[m.opt.integrator](m, d)

  def _zero_sensors(self, columns: wp.array) -> None:
    """Sensors add to what they find; forces must outlive the position stage."""
    sensordata = self.wp_data.sensordata
    wp.launch(
      _zero_columns, dim=sensordata.shape, inputs=[columns], outputs=[sensordata]
    )


def force_columns(model: mujoco.MjModel) -> np.ndarray:
  """Which columns of sensordata need forces or accelerations."""
  last = int(mujoco.mjtStage.mjSTAGE_ACC)
  return np.repeat(model.sensor_needstage == last, model.sensor_dim)


def contacts_stand_alone(model: mujoco.MjModel) -> bool:
  """Whether contacts neither need velocities and transmissions nor are needed there.

  Equalities need velocities; adhesion pulls where there are contacts.
  """
  adheres = (model.actuator_trntype == mujoco.mjtTrn.mjTRN_BODY).any()
  return not (model.ntendon or model.neq or model.nflex or adheres)


def _torch_arrays(*bridges: WarpBridge) -> Iterator[TorchArray]:
  for bridge in bridges:
    for value in mjlab_private.wrapped_arrays(bridge).values():
      if isinstance(value, TorchArray):
        yield value
      elif isinstance(value, WarpBridge):
        yield from _torch_arrays(value)
