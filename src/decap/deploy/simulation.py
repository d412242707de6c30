"""A simulated G1 behind the same protocol as the real one: C MuJoCo at 2 kHz.

The motors close their loops at every physics step, as the robot's do: position targets
arrive late by the actuation delay, torque is limited by what the motor has left at its
speed. Time is simulated time; `sleep_until` steps physics, so that controller and robot
run in lockstep on any machine. Needs numpy and MuJoCo only.
"""

from __future__ import annotations

import math
from collections import deque
from pathlib import Path

import mujoco
import numpy as np

from decap.deploy.grounds import TERRAINS
from decap.deploy.robot_io import COMMAND_DT_S, Robot, RobotCommand, RobotState
from decap.deploy.sensors import GYROS, Gyro, NoisyBody, add_sensors
from decap.deploy.sim_cfg import SimCfg
from decap.deploy.stops import tilt
from decap.deploy.terrain import add_terrain, ground_height
from decap.robots.motors import RobotMotors

PHYSICS_DT_S = 0.0005
STEPS_PER_COMMAND = round(COMMAND_DT_S / PHYSICS_DT_S)
MODELS = Path(__file__).parent.parent / "robots" / "models"
PAYLOAD_BODY = "right_wrist_yaw_link"
KNEE_SHARE = 0.6
"""Share of its top speed up to which a motor has its full torque; from there on it falls
to none in a straight line. Assumed: the vendor publishes the two ends only."""
PUSH_S = 0.1
"""A push is a constant force of this length."""
_START_HEIGHT_M = 0.79
_MEASURED = int(mujoco.mjtStage.mjSTAGE_ACC)
_LEFT_OUT = int(mujoco.mjtStage.mjSTAGE_NONE)
_START = (0.0, 0.0, _START_HEIGHT_M)


def build_spec(motors: RobotMotors, cfg: SimCfg) -> mujoco.MjSpec:
  """The robot on its terrain, with sensors and payload."""
  spec = mujoco.MjSpec.from_file(str(MODELS / f"{motors.name}.xml"))
  spec.option.timestep = PHYSICS_DT_S
  # The neck's damping is all that is implicit in implicitfast here, and in this, too.
  spec.option.integrator = mujoco.mjtIntegrator.mjINT_EULER
  if TERRAINS[cfg.terrain].is_plane:
    # Bodies have too few shapes for trees of them; elsewhere contacts would change order.
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_MIDPHASE
  add_terrain(spec, cfg.terrain, cfg.ground_friction, cfg.seed)
  add_sensors(spec)
  if cfg.payload_kg:
    _add_payload(spec, cfg.payload_kg)
  return spec


class SimulatedRobot(Robot):
  """The robot of `robot_io`, in MuJoCo."""

  def __init__(self, motors: RobotMotors, cfg: SimCfg | None = None):
    self.cfg = cfg or SimCfg()
    self.cfg.check()
    self.motors = motors
    self.joint_names = self.motors.joint_names
    self.model = build_spec(motors, self.cfg).compile()
    self.data = mujoco.MjData(self.model)
    self.held = True
    """Whether the gantry holds the robot; it does until `release`."""
    self.gyros: dict[str, Gyro] = {}
    """Gyros of the paper by site; they sample all the time."""
    self._index_joints()
    self._limit_motors()
    self.reset()

  # Methods: the protocol.

  def read(self) -> RobotState | None:
    """One state per command period, noisy."""
    if self._steps < self._next_state:
      return None
    self._next_state = self._steps + STEPS_PER_COMMAND
    q, dq, quat, gyro, acceleration = self._sensors.report(
      self._q, self._dq, self._quat, self._spin, self._acceleration
    )
    now_s = self.now_s()
    return RobotState(
      q=q,
      dq=dq,
      tau_est=self.torque.copy(),
      quat=quat,
      gyro=gyro,
      acc=acceleration,
      temperature=self._temperature.copy(),
      mode_machine=self._mode_machine,
      tick=round(now_s * 1000),
      stamp_s=now_s,
    )

  def write(self, command: RobotCommand) -> None:
    """The motors follow the command after the actuation delay."""
    strength = self.cfg.motor_strength if command.mode else 0.0
    kp, kd, push = command.kp, command.kd, command.tau_ff
    if strength != 1.0:
      kp, kd, push = strength * kp, strength * kd, strength * push
    push = kp * command.q_target + kd * command.dq_target + push
    self._pending.append((self._steps + self._delay, (push, kp, kd)))

  def now_s(self) -> float:
    return self._steps * PHYSICS_DT_S

  def sleep_until(self, time_s: float) -> None:
    for _ in range(math.ceil((time_s - 1e-9) / PHYSICS_DT_S) - self._steps):
      self.step()

  # Methods: the world.

  def reset(self) -> None:
    """Back to the start, held by the gantry, motors off, time zero."""
    mujoco.mj_resetData(self.model, self.data)
    self.data.qpos[2] = _START_HEIGHT_M
    self.data.qpos[self.joint_qpos] = self.motors.array("default_pos")
    self._stage[0] = _MEASURED
    mujoco.mj_forward(self.model, self.data)
    cfg, joints = self.cfg, len(self.joint_names)
    self.held = True
    self._temperature = np.full(joints, 35.0)
    self._steps = self._next_state = self._next_sample = 0
    self._delay = round(cfg.delay_s / PHYSICS_DT_S)
    # Commands under way: the step at which they arrive, and torque = push − kp·q − kd·q̇.
    self._pending: deque[tuple[int, tuple[np.ndarray, ...]]] = deque()
    self._gains = (np.zeros(joints),) * 3
    self._sensors = NoisyBody(cfg.noise, joints, cfg.seed)
    self._pushes = np.random.default_rng(cfg.seed + 1)
    self._push_ends = 0
    self._fade, self._free = 0, -1
    for index, (name, (_, rate)) in enumerate(GYROS.items()):
      address = int(self.model.sensor(name).adr[0])
      seed = 1000 * cfg.seed + index
      self.gyros[name] = Gyro(address, rate, PHYSICS_DT_S, cfg.noise, seed)

  def release(self, fade_s: float = 0.0) -> None:
    """Let the robot out of the gantry, at once or over a time."""
    self.held = False
    self._fade = round(fade_s / PHYSICS_DT_S)
    self._free = self._steps + self._fade
    if not fade_s:
      self.data.xfrc_applied[:] = 0.0

  def step(self) -> None:
    """One physics step."""
    now, pending = self._steps, self._pending
    while pending and pending[0][0] <= now:
      self._gains = pending.popleft()[1]
    self._actuate()
    if self.held:
      self._hold(1.0)
    elif now <= self._free:
      self._hold((self._free - now) / max(1, self._fade))
    elif self.cfg.push_m_s:
      self._push()
    # The accelerometer takes a pass over all bodies: where a state can be read next.
    self._stage[0] = _MEASURED if now + 1 >= self._next_state else _LEFT_OUT
    mujoco.mj_step(self.model, self.data)
    if now >= self._next_sample:
      self._next_sample = min([g.look(now, self._sensed) for g in self.gyros.values()])
    self._steps = now + 1

  def restart_gyros(self) -> None:
    """Forget the gyros' samples; the next step is their first."""
    for gyro in self.gyros.values():
      gyro.clear()
    self._next_sample = self._steps

  def base_height(self) -> float:
    """Height of the pelvis above the ground under it, m."""
    x, y, z = self._position.tolist()
    return z - ground_height(self.model, self.data, x, y, z)

  def tilt(self) -> float:
    """Angle between the pelvis' up and the world's, rad."""
    return tilt(self._quat)

  def velocity(self) -> np.ndarray:
    """vx, vy in the pelvis' heading frame in m/s, yaw rate in rad/s. # [3]"""
    yaw = self.yaw()
    vx, vy, _ = self._velocity.tolist()
    turn = np.zeros(3)
    mujoco.mju_rotVecQuat(turn, self._spin, self._quat)
    cos, sin = math.cos(yaw), math.sin(yaw)
    return np.array([cos * vx + sin * vy, cos * vy - sin * vx, turn[2]])

  def yaw(self) -> float:
    """Heading of the pelvis, rad."""
    w, x, y, z = self._quat.tolist()
    return math.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))

  def fallen(self) -> bool:
    """Whether the robot lies or is about to: tilted above 1 rad or below 0.35 m."""
    return self.tilt() > 1.0 or self.base_height() < 0.35

  # Private methods.

  def _index_joints(self) -> None:
    q = [int(self.model.joint(name).qposadr[0]) for name in self.joint_names]
    v = [int(self.model.joint(name).dofadr[0]) for name in self.joint_names]
    controls = [self.model.actuator(name).id for name in self.joint_names]
    self._motors = _as_slice(controls)
    self.joint_qpos, self.joint_qvel = _as_slice(q), _as_slice(v)
    # Views, which stay as long as the data does: making them takes longer than a sum.
    data, qpos, qvel = self.data, self.data.qpos, self.data.qvel
    self._position, self._quat, self._q = qpos[:3], qpos[3:7], qpos[self.joint_qpos]
    self._velocity, self._spin, self._dq = qvel[:3], qvel[3:6], qvel[self.joint_qvel]
    self._control = data.ctrl[self._motors]
    self.torque = data.actuator_force[self._motors]
    """Torque of each motor at the last step, Nm. # [J]"""
    self._sensed = data.sensordata
    accelerometer = self.model.sensor("acceleration")
    first = int(accelerometer.adr[0])
    self._acceleration = self._sensed[first : first + 3]
    self._stage = self.model.sensor_needstage[accelerometer.id :]
    pelvis = self.model.body("pelvis").id
    self._force = data.xfrc_applied[pelvis]
    self._mass = float(self.model.body_subtreemass[pelvis])
    self._mode_machine = self.motors.mode_machines[1]

  def _limit_motors(self) -> None:
    strength = self.cfg.motor_strength
    effort = self.motors.array("effort_limit") * strength
    speed = self.motors.array("velocity_limit")
    self._speed = speed
    self._knee = KNEE_SHARE * speed
    self._slowest_knee = float(self._knee.min()) ** 2
    self._slope = effort / (speed * (1.0 - KNEE_SHARE))
    # At any speed; what is left of it beyond the knee is told at every step.
    self.model.actuator_forcelimited[:] = True
    self.model.actuator_forcerange[self._motors] = np.stack([-effort, effort], axis=1)
    self.model.dof_frictionloss[self.joint_qvel] = (
      self.cfg.joint_friction * self.motors.array("effort_limit")
    )

  def _actuate(self) -> None:
    dq, torque = self._dq, self._control
    push, kp, kd = self._gains
    np.subtract(push, kp * self._q, torque)
    np.subtract(torque, kd * dq, torque)
    # No joint can be beyond its knee while all together are below the lowest one's.
    if dq.dot(dq) > self._slowest_knee and (np.abs(dq) > self._knee).any():
      # What is left in the direction of motion: at least nothing.
      forward = np.maximum(self._slope * (self._speed - dq), 0.0)
      backward = np.maximum(self._slope * (self._speed + dq), 0.0)
      np.maximum(np.minimum(torque, forward), -backward, out=torque)

  def _hold(self, share: float) -> None:
    """The gantry: springs that keep the pelvis where it started, upright."""
    turn, spin = np.zeros(3), np.zeros(3)
    mujoco.mju_quat2Vel(turn, self._quat, 1.0)
    mujoco.mju_rotVecQuat(spin, self._spin, self._quat)
    moves = zip(_START, self._position.tolist(), self._velocity.tolist(), strict=True)
    force = [4000.0 * (start - now) - 600.0 * speed for start, now, speed in moves]
    turns = zip(turn.tolist(), spin.tolist(), strict=True)
    force += [-400.0 * angle - 40.0 * speed for angle, speed in turns]
    self._force[:] = [share * part for part in force]

  def _push(self) -> None:
    force = self._force
    every = round(self.cfg.push_every_s / PHYSICS_DT_S)
    if self._steps % every == every - 1:
      angle = self._pushes.uniform(0.0, 2.0 * math.pi)
      size = self._mass * self.cfg.push_m_s / PUSH_S
      force[:2] = size * math.cos(angle), size * math.sin(angle)
      self._push_ends = self._steps + round(PUSH_S / PHYSICS_DT_S)
    elif self._steps >= self._push_ends:
      force[:2] = 0.0


def _add_payload(spec: mujoco.MjSpec, mass: float) -> None:
  """A ball in the right hand, with the inertia of one of 4 cm radius."""
  palm = spec.site("right_palm")
  ball = spec.body(PAYLOAD_BODY).add_body(name="payload", pos=palm.pos)
  ball.mass, ball.inertia = mass, [0.4 * mass * 0.04**2] * 3
  ball.explicitinertial = True
  ball.add_geom(
    size=(0.04, 0, 0),
    pos=(0.02, 0.0, -0.06),
    contype=0,
    conaffinity=0,
    group=2,
    rgba=(0.8, 0.3, 0.1, 1.0),
  )


def _as_slice(indices: list[int]) -> slice:
  """Consecutive indices as a slice: the models have their joints in motors' order."""
  first, count = indices[0], len(indices)
  assert indices == list(range(first, first + count)), indices
  return slice(first, first + count)
