import numpy as np
import pytest

from decap.deploy.sensors import REPORTS_AT_ONCE, Gyro, NoisyBody

DT = 0.0005


@pytest.mark.parametrize("rate", [200.0, 400.0, 1050.0])
def test_gyro_samples_on_the_nearest_step(rate: float):
  gyro = Gyro(address=1, rate_hz=rate, dt_s=DT, noise=0.0, seed=0)
  for step in range(4000):
    gyro.look(step, np.array([9.0, step, 2.0 * step, 3.0 * step]))
  times, values = gyro.samples()
  assert len(times) == round(2.0 * rate)
  ideal = np.arange(len(times)) / rate
  assert np.abs(times - ideal).max() <= 0.5 * DT + 1e-9
  np.testing.assert_allclose(values, np.outer(times / DT, (1, 2, 3)))


def test_gyro_noise_and_bias_are_reproducible():
  def samples(seed: int) -> np.ndarray:
    gyro = Gyro(address=0, rate_hz=400.0, dt_s=DT, noise=1.0, seed=seed)
    for step in range(20_000):
      gyro.look(step, np.zeros(3))
    return gyro.samples()[1]

  np.testing.assert_array_equal(samples(3), samples(3))
  assert np.abs(samples(3) - samples(4)).max() > 0
  assert np.allclose(samples(3).std(0), 0.01, rtol=0.1)


def _report(body: NoisyBody, joints: int, quat=(1.0, 0.0, 0.0, 0.0)):
  zeros = np.zeros(joints)
  return body.report(zeros, zeros, np.array(quat), np.zeros(3), np.zeros(3))


def test_body_without_noise_reports_the_truth_in_arrays_of_its_own():
  body = NoisyBody(0.0, joints=3, seed=0)
  truth = (np.arange(3.0), np.ones(3), np.array([1.0, 0, 0, 0]), np.ones(3), np.ones(3))
  seen = body.report(*truth)
  for reported, true in zip(seen, truth, strict=True):
    np.testing.assert_array_equal(reported, true)
    reported[:] = 7.0
    assert true[1] != 7.0


def test_noise_is_white_around_a_bias_that_holds():
  body = NoisyBody(1.0, joints=2, seed=5)
  seen = np.array([_report(body, 2)[0] for _ in range(4000)])
  assert np.allclose(seen.std(0), 0.002, rtol=0.1)
  assert np.allclose(seen[:2000].mean(0), seen[2000:].mean(0), atol=3e-4)
  assert np.abs(seen.mean(0)).max() > 1e-3  # The bias of this seed.


def test_no_two_reports_have_the_same_noise():
  body = NoisyBody(1.0, joints=2, seed=5)
  seen = [_report(body, 2) for _ in range(3 * REPORTS_AT_ONCE)]
  for values in zip(*seen, strict=True):
    assert len(np.unique(values, axis=0)) == len(seen)


def test_tilt_keeps_the_quaternion_a_rotation():
  body = NoisyBody(10.0, joints=1, seed=1)
  quat = _report(body, 1)[2]
  assert np.isclose(np.linalg.norm(quat), 1.0)
  assert quat[0] < 1.0
