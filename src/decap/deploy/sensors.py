"""What the simulated robot's sensors make of its motion: rates, noise and bias."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import mujoco
import numpy as np

GYROS: dict[str, tuple[str, float]] = {
  "head": ("imu_in_head", 200.0),
  "torso": ("imu_in_torso", 1050.0),
  "wrist": ("right_palm", 400.0),
}
"""Gyros that the paper's robot carries: site in the model and rate in Hz."""

REPORTS_AT_ONCE = 100
"""Reports whose noise is drawn together."""


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

  def __init__(self, scale: float, joints: int, seed: int):
    self._scale = scale
    self._rng = np.random.default_rng(seed)
    nominal = Noise()
    # Of joint positions, their velocities, tilt, gyro and accelerometer, in this order.
    sizes = (nominal.joint_pos, nominal.joint_vel)
    sizes += (nominal.tilt, nominal.gyro, nominal.acceleration)
    counts = (joints, joints, 2, 3, 3)
    self._white_noise = scale * np.repeat(sizes, counts)
    self._ends = np.cumsum(counts)[:-1]
    self._joint_bias = self._normal(nominal.joint_pos_bias, joints)
    self._gyro_bias = self._normal(nominal.gyro_bias, 3)
    self._tilt_bias = self._normal(nominal.tilt_bias, 2)
    self._drawn: Iterator[tuple[np.ndarray, ...]] = iter(())

  def report(
    self,
    q: np.ndarray,
    dq: np.ndarray,
    quat: np.ndarray,
    gyro: np.ndarray,
    acceleration: np.ndarray,
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The same as encoders [J] and the IMU report it, in arrays of its own."""
    if not self._scale:
      return q.copy(), dq.copy(), quat.copy(), gyro.copy(), acceleration.copy()
    white = next(self._drawn, None) or self._draw()
    turned = np.zeros(4)
    mujoco.mju_mulQuat(turned, quat, white[2])
    mujoco.mju_normalize4(turned)
    return (
      q + self._joint_bias + white[0],
      dq + white[1],
      turned,
      gyro + self._gyro_bias + white[3],
      acceleration + white[4],
    )

  def _draw(self) -> tuple[np.ndarray, ...]:
    """Draw the noise of many reports at once, which is quicker; returns the first."""
    shape = (REPORTS_AT_ONCE, len(self._white_noise))
    white = self._rng.standard_normal(shape) * self._white_noise
    q, dq, tilt, gyro, acceleration = np.split(white, self._ends, axis=1)
    turn = np.zeros((len(white), 4))
    turn[:, 0], turn[:, 1:3] = 1.0, 0.5 * (self._tilt_bias + tilt)
    self._drawn = zip(q, dq, turn, gyro, acceleration, strict=True)
    return next(self._drawn)

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
    self._part = slice(address, address + 3)
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
    self._due = 0
    self._steps: list[int] = []
    self._values: list[np.ndarray] = []

  def look(self, step: int, sensordata: np.ndarray) -> int:
    """Take a sample if one is due at this physics step; returns when the next is."""
    if self._first is None:
      self._first = self._due = step
    if step >= self._due:
      self._steps.append(step)
      self._values.append(sensordata[self._part].copy())
      self._next += 1
      self._due = self._first + round(self._next * self._steps_per_sample)
    return self._due

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
