"""What the simulated robot's sensors make of its motion: rates, noise and bias."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

GYROS: dict[str, tuple[str, float]] = {
  "head": ("imu_in_head", 200.0),
  "torso": ("imu_in_torso", 1050.0),
  "wrist": ("right_palm", 400.0),
}
"""Gyros that the paper's robot carries: site in the model and rate in Hz."""


@dataclass(frozen=True)
class Noise:
  """Standard deviations of white noise, and of biases that hold for a whole run.

  Assumed, of the size that data sheets and public sim-to-real work give; training draws
  larger ones, uniform, at every step.
  """

  joint_pos: float = 0.002
  """rad"""
  joint_pos_bias: float = 0.005
  """rad: encoders that were zeroed by hand"""
  joint_vel: float = 0.1
  """rad/s"""
  gyro: float = 0.02
  """rad/s"""
  gyro_bias: float = 0.01
  """rad/s"""
  tilt: float = 0.003
  """rad"""
  tilt_bias: float = 0.01
  """rad"""
  acceleration: float = 0.1
  """m/s²"""


class NoisyBody:
  """Joint sensors and the pelvis' IMU, with noise `scale` times the nominal one."""

  def __init__(self, scale: float, joints: int, seed: int, noise: Noise | None = None):
    self._scale = scale
    self._rng = np.random.default_rng(seed)
    nominal = noise or Noise()
    self._joint_noise = scale * np.array([[nominal.joint_pos], [nominal.joint_vel]])
    self._imu_noise = scale * np.repeat(
      (nominal.tilt, nominal.gyro, nominal.acceleration), (2, 3, 3)
    )
    self._joint_bias = self._normal(nominal.joint_pos_bias, joints)
    self._gyro_bias = self._normal(nominal.gyro_bias, 3)
    self._tilt_bias = self._normal(nominal.tilt_bias, 2)

  def joints(self, q: np.ndarray, dq: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions and velocities as encoders report them. # [J]"""
    if not self._scale:
      return q.copy(), dq.copy()
    white = self._rng.standard_normal((2, len(q)))
    white *= self._joint_noise
    return q + self._joint_bias + white[0], dq + white[1]

  def imu(
    self, quat: np.ndarray, gyro: np.ndarray, acceleration: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Orientation, angular velocity and specific force as an IMU reports them."""
    if not self._scale:
      return quat.copy(), gyro.copy(), acceleration.copy()
    white = self._rng.standard_normal(8) * self._imu_noise
    tilt = 0.5 * (self._tilt_bias + white[:2])
    turned = np.zeros(4)
    mujoco.mju_mulQuat(turned, quat, np.array([1.0, tilt[0], tilt[1], 0.0]))
    mujoco.mju_normalize4(turned)
    return turned, gyro + self._gyro_bias + white[2:5], acceleration + white[5:]

  def _normal(self, size: float, count: int) -> np.ndarray:
    return self._rng.normal(0.0, 1.0, count) * (size * self._scale)


class Gyro:
  """A gyro that samples at its own rate, on the physics step nearest to each sample.

  Its samples carry the time of that step, so a rate that does not divide the physics
  rate (1050 Hz of 2000) keeps its count without samples that were interpolated.
  """

  def __init__(
    self, address: int, rate_hz: float, dt_s: float, noise: float, seed: int
  ):
    self.rate_hz = rate_hz
    self._address = address
    self._dt_s = dt_s
    self._rng = np.random.default_rng(seed)
    self._noise = noise * 0.01
    self._bias = self._rng.normal(0.0, noise * 0.005, 3)
    self._steps_per_sample = 1.0 / (rate_hz * dt_s)
    self.clear()

  def clear(self) -> None:
    """Forget all samples; the next step is the first one."""
    self._first: int | None = None
    self._next = 0
    self.due = 0
    """Physics step of the next sample; 0 at the beginning."""
    self._steps: list[int] = []
    self._values: list[np.ndarray] = []

  def look(self, step: int, sensordata: np.ndarray) -> None:
    """Take a sample if one is due at this physics step."""
    if self._first is None:
      self._first = self.due = step
    if step < self.due:
      return
    self._steps.append(step)
    self._values.append(sensordata[self._address : self._address + 3].copy())
    self._next += 1
    self.due = self._first + round(self._next * self._steps_per_sample)

  def samples(self) -> tuple[np.ndarray, np.ndarray]:
    """Times in s [N] and angular velocities in rad/s, with noise and bias [N, 3]."""
    values = np.array(self._values).reshape(-1, 3)
    noise = self._rng.normal(0.0, 1.0, values.shape) * self._noise
    return np.array(self._steps) * self._dt_s, values + self._bias + noise


def add_sensors(spec: mujoco.MjSpec) -> None:
  """Gyros at their sites and the pelvis' accelerometer."""
  for name, (site, _) in GYROS.items():
    _add(spec, name, mujoco.mjtSensor.mjSENS_GYRO, site)
  _add(spec, "acceleration", mujoco.mjtSensor.mjSENS_ACCELEROMETER, "imu_in_pelvis")


def _add(spec: mujoco.MjSpec, name: str, kind: mujoco.mjtSensor, site: str) -> None:
  sensor = spec.add_sensor(name=name, type=kind, objname=site)
  sensor.objtype = mujoco.mjtObj.mjOBJ_SITE
