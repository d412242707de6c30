"""C MuJoCo behind mjlab's Simulation, many simulations on a pool of threads.

mjlab keeps its Warp arrays as storage; here their memory is that of an mjbatch batch,
which steps C MuJoCo. So entities, sensors and managers read and write what they always
do, no kernel is ever launched, and nothing is compiled at start-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
import torch
import warp as wp
from mjlab.managers.event_manager import RecomputeLevel
from mjlab.sim.sim import Simulation, SimulationCfg
from mjlab.sim.sim_data import WarpBridge

from decap import mjlab_private
from decap.errors import UserError
from decap.sim.native_model import native_model, without_visual_geoms
from decap.sim.threads import available_cpus, start_batch
from decap.sim.warp import STATE_FIELDS, force_columns

if TYPE_CHECKING:
  from mjlab.entity.variants import VariantMetadata
  from mjlab.sensor.sensor_context import SensorContext

# What entities and sensors read. Each costs a copy per call; others join on first use.
_USUAL_FIELDS = (
  "time",
  "qpos",
  "qvel",
  "act",
  "ctrl",
  "qacc",
  "qfrc_applied",
  "xfrc_applied",
  "qfrc_actuator",
  "actuator_force",
  "mocap_pos",
  "mocap_quat",
  "xpos",
  "xquat",
  "xmat",
  "xipos",
  "cvel",
  "subtree_com",
  "site_xpos",
  "sensordata",
  # Resets write the whole state through its fields.
  "qacc_warmstart",
  "eq_active",
)
_FORCE_FIELDS = ("qacc", "qfrc_actuator", "actuator_force")
_NO_FORCES = int(
  mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
)
_NO_SENSORS = int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
_SENSED_FIELDS = ("xpos", "xmat", "geom_xpos", "geom_xmat", "cam_xpos", "cam_xmat")
_COLLISION_FRAMES = {"geom_pos", "geom_quat", "geom_size", "geom_aabb"}
_INERTIA_FRAMES = {"body_ipos", "body_iquat"}
_BAD_NUMBER_WARNINGS = [
  int(mujoco.mjtWarning.mjWARN_BADQPOS),
  int(mujoco.mjtWarning.mjWARN_BADQVEL),
  int(mujoco.mjtWarning.mjWARN_BADQACC),
  int(mujoco.mjtWarning.mjWARN_BADCTRL),
]


class NativeData(WarpBridge):
  """mjlab's view of the simulation data, bound to C MuJoCo on first use."""

  def __init__(self, struct: Any, bind: Callable[[str], None]) -> None:
    super().__init__(struct)
    object.__setattr__(self, "_bind", bind)

  def __getattr__(self, name: str) -> Any:
    if name not in mjlab_private.wrapped_arrays(self):
      self._bind(name)
    return super().__getattr__(name)


class NativeSimulation(Simulation):
  """mjlab's Simulation on C MuJoCo; results do not depend on the number of threads.

  States are kept in double precision. An element that somebody writes through
  ``data`` replaces the state's before the next call, all others keep their precision.
  """

  def __init__(
    self,
    num_envs: int,
    cfg: SimulationCfg,
    model: mujoco.MjModel | None = None,
    device: str = "cpu",
    *,
    spec: mujoco.MjSpec | None = None,
    variant_info: list[tuple[str, VariantMetadata]] | None = None,
    num_threads: int = 0,
    split: bool = False,
  ):
    if variant_info:
      raise UserError(
        "the native backend has one mesh per geom for all environments: "
        f"entity {variant_info[0][0]!r} with mesh variants needs the warp backend"
      )
    self._num_threads = num_threads or available_cpus()
    self._spec = spec
    self._fields: dict[str, np.ndarray] = {}
    self._called = False
    self._split = split
    self._constants_recomputed = False
    super().__init__(num_envs, cfg, model, device, spec=spec)

  # Properties.

  @property
  def num_threads(self) -> int:
    return self._batch.num_threads

  # Methods.

  def expand_model_fields(self, fields: tuple[str, ...]) -> None:
    """Gives every environment its own values of these model fields."""
    missing = [f for f in fields if not hasattr(self.mj_model, f)]
    if missing:
      raise ValueError(f"Fields not found in model: {missing}")
    self._refuse_frozen(fields)
    for name in fields:
      current = getattr(self.wp_model, name, None)
      if name in self.expanded_fields or not isinstance(current, wp.array):
        continue
      _adopt(self.wp_model, name, self._batch.expand)
      self.expanded_fields.add(name)
    if _COLLISION_FRAMES & set(fields):
      # The mid-phase's bounding volumes come from the compiler and would be stale.
      self._flags |= int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)
    mjlab_private.bridges(self)[1].clear_cache()
    context = mjlab_private.sensor_context(self)
    if context is not None:
      context.recreate(self.mj_model, self.expanded_fields)

  def recompute_constants(self, level: RecomputeLevel) -> None:
    """Recomputes all constants derived from the model, whatever the level."""
    if level != RecomputeLevel.none:
      self._batch.set_const()
      self._constants_recomputed = True

  def forward(self) -> None:
    """Makes derived quantities current; with ``split``, all but forces."""
    if self._split and self._called:
      self._forward_kinematics()
    else:
      self._called = True
      self._batch.forward()

  def step(self) -> None:
    self.step_many(1)

  def step_many(self, n: int) -> None:
    """``n`` substeps with constant controls; see ``qvel_prev``."""
    self._called = True
    with self.nan_guard.watch(self.data):
      if n > 1:
        # Sensors are read after the last substep only.
        with self._disabled(_NO_SENSORS):
          self._batch.step(nstep=n - 1)
      self.qvel_prev.copy_(self.data.qvel[:])
      self._batch.step()

  def reset(self, env_ids: torch.Tensor | None = None) -> None:
    mask = torch.full((self.num_envs,), env_ids is None)
    if env_ids is not None:
      mask[env_ids] = True
    self.reset_masked(mask)

  def reset_masked(self, mask: torch.Tensor) -> None:
    """Puts the masked environments [B] at the model's initial state.

    As on Warp, sensors and accelerations become zero and other derived quantities
    stay as they are until the next forward pass.
    """
    chosen = mask.numpy()
    qpos0 = self.wp_model.qpos0.numpy()  # [1 or B, nq]
    # Through the fields alone. mjbatch takes up an element that differs from what it
    # showed last: written to the rows as well, a reset would outlive a later write of
    # that same last value.
    for name, field in self._fields.items():
      where = chosen.reshape(-1, *[1] * (field.ndim - 1))
      if name == "qpos":
        np.copyto(field, qpos0, where=where)
      elif name in self._reset_values:
        np.copyto(field, self._reset_values[name], where=where)

  def set_sensor_context(self, ctx: SensorContext) -> None:
    """Lets cameras and ray-casts go through Warp's kernels, on our arrays."""
    for name in _SENSED_FIELDS:
      self._bind(name)
    super().set_sensor_context(ctx)

  def overflow(self) -> torch.Tensor:
    """Shares of constraint and contact capacity in use: none, C MuJoCo has no caps."""
    return torch.zeros(2)

  def state_dict(self) -> dict[str, Any]:
    """The exact state; expanded fields of ``model`` are to be saved beside it."""
    return {
      "rows": torch.from_numpy(self._rows.copy()),
      "fields": {n: torch.from_numpy(f.copy()) for n, f in self._fields.items()},
      "qvel_prev": self.qvel_prev.clone(),
      "constants_recomputed": self._constants_recomputed,
    }

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Continues from a saved state bit for bit; load ``model`` before."""
    rows = state["rows"].numpy()
    if rows.shape != self._rows.shape:
      raise UserError(
        f"the saved simulation has states of shape {rows.shape}, this one "
        f"{self._rows.shape}: number of environments or model differ"
      )
    for name in state["fields"]:
      self._bind(name)
    if state["constants_recomputed"]:
      self.recompute_constants(RecomputeLevel.set_const)
    # The first call takes up writes still waiting in the fields, the second shows the
    # saved state there: what is written below is then no change to any of them.
    self._batch.forward()
    self._rows[:] = rows
    self._batch.forward()
    # Derived quantities may be those of a substep before.
    for name, value in state["fields"].items():
      self._fields[name][:] = value.numpy()
    self.qvel_prev.copy_(state["qvel_prev"])

  # Private methods.

  def _finish_init(self) -> None:
    super()._finish_init()
    model = self.mj_model
    if self._spec is not None:
      model = without_visual_geoms(model, self._spec)
      self.cfg.mujoco.apply(model)
    self._batch = start_batch(native_model(model), self.num_envs, self._num_threads)
    self._flags = self._batch.expand("disableflags")  # [B]
    self._rows = self._batch.bind("state")  # [B, nstate] float64
    self._quieten_bad_numbers()
    row, self._reset_values = _initial_state(self.mj_model)
    self._rows[:] = row
    mjlab_private.set_data_bridge(self, NativeData(self.wp_data, self._bind))
    for name in _USUAL_FIELDS:
      self._bind(name)
    self.qvel_prev = torch.zeros(self.num_envs, self.mj_model.nv)
    self._force_columns = force_columns(self.mj_model)

  def _forward_kinematics(self) -> None:
    """A forward pass without contacts and solver, most of its cost.

    Forces, accelerations and their sensors stay those of the last substep, as on Warp.
    """
    kept = [self._fields[name] for name in _FORCE_FIELDS if name in self._fields]
    sensors = self._fields.get("sensordata")
    before = [field.copy() for field in kept]
    forces = None if sensors is None else sensors[:, self._force_columns]
    with self._disabled(_NO_FORCES):
      self._batch.forward()
    for field, value in zip(kept, before, strict=True):
      field[:] = value
    if sensors is not None:
      sensors[:, self._force_columns] = forces

  @contextmanager
  def _disabled(self, parts: int) -> Iterator[None]:
    """Calls within leave these parts of the physics out."""
    flags = self._flags.copy()
    self._flags |= parts
    try:
      yield
    finally:
      self._flags[:] = flags

  def _bind(self, name: str) -> None:
    """Backs an array of mjlab's data with the batch's own."""
    current = getattr(self.wp_data, name)
    if name in self._fields or isinstance(current, (int, float)):
      return
    if not isinstance(current, wp.array):
      raise AttributeError(
        f"the native backend has no data.{name}; the warp backend does"
      )
    if current.size == 0:
      return
    state = self.state_dict() if self._called else None
    initial = current.numpy()
    self._fields[name] = _adopt(self.wp_data, name, self._batch.bind)
    self._fields[name][:] = initial
    if state is not None:
      # A field bound between calls is filled by the next; have that without a step.
      self.load_state_dict(state)

  def _refuse_frozen(self, fields: tuple[str, ...]) -> None:
    """Inertia matrices that the compiler took for diagonal must stay diagonal."""
    model = self.mj_model
    simple = (model.body_simple > 0) & (model.body_dofnum > 1)
    if simple.any() and _INERTIA_FRAMES & set(fields):
      name = model.body(int(simple.argmax())).name
      raise UserError(
        f"the native backend cannot move the centre of mass of body {name!r} "
        "(a lone free body); use the warp backend"
      )

  def _quieten_bad_numbers(self) -> None:
    """Keeps MuJoCo from writing a log file when a state or a policy diverges.

    It warns where the count of a warning is zero. Diverged numbers are found, as on
    Warp, by terminations or mjlab's NaN guard.
    """
    self._batch.bind("warning")[:, _BAD_NUMBER_WARNINGS, 1] = 1


def _initial_state(
  model: mujoco.MjModel,
) -> tuple[np.ndarray, dict[str, np.ndarray | float]]:
  """The state after a reset, as a row and by field, rounded to single precision."""
  data = mujoco.MjData(model)
  mujoco.mj_resetData(model, data)
  spec = int(mujoco.mjtState.mjSTATE_INTEGRATION)
  row = np.empty(mujoco.mj_stateSize(model, spec))
  mujoco.mj_getState(model, data, row, spec)
  values: dict[str, np.ndarray | float] = {
    name: np.array(getattr(data, name)) for name in (*STATE_FIELDS, "userdata")
  }
  values |= {"sensordata": 0.0, "qacc": 0.0}
  return row.astype(np.float32).astype(np.float64), values


def _adopt(struct: Any, name: str, source: Callable[..., np.ndarray]) -> np.ndarray:
  """Replaces a Warp array by one over the batch's memory, which it returns."""
  current = getattr(struct, name)
  shape = current.numpy().shape
  try:
    if current.numpy().dtype == np.float32:
      values = source(name, np.float32)
    else:
      values = source(name)
    values = values.reshape(len(values), *shape[1:])
  except ValueError as error:
    raise AttributeError(f"the native backend has no {name}: {error}") from None
  setattr(
    struct, name, wp.array(data=values, dtype=current.dtype, copy=False, device="cpu")
  )
  return values
