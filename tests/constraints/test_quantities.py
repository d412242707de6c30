import torch

from decap.constraints import (
  action_rate,
  energy,
  joint_acceleration,
  joint_torque,
  joint_velocity,
)


def test_action_rate_is_the_rate_of_the_joint_target():
  action = torch.tensor([[1.0, -2.0]])
  previous = torch.tensor([[0.5, 1.0]])
  scale = torch.tensor([0.4, 0.1])
  # |0.5| · 0.4 / 0.02 = 10 and |−3| · 0.1 / 0.02 = 15 rad/s.
  rate = action_rate(action, previous, scale, dt=0.02)
  torch.testing.assert_close(rate, torch.tensor([[10.0, 15.0]]))


def test_action_rate_of_raw_actions_with_unit_scale_and_step():
  rate = action_rate(torch.tensor([[1.0]]), torch.tensor([[-2.0]]), 1.0, dt=1.0)
  torch.testing.assert_close(rate, torch.tensor([[3.0]]))


def test_action_rate_is_zero_on_a_first_step():
  action = torch.randn(4, 3)
  assert torch.equal(action_rate(action, action, 0.5, dt=0.02), torch.zeros(4, 3))


def test_joint_acceleration_is_the_difference_over_dt():
  after = torch.tensor([[0.3, -0.5]])
  before = torch.tensor([[0.2, 0.5]])
  # 0.1 / 0.005 = 20 and |−1| / 0.005 = 200 rad/s².
  acceleration = joint_acceleration(after, before, dt=0.005)
  torch.testing.assert_close(acceleration, torch.tensor([[20.0, 200.0]]))


def test_torque_velocity_and_energy_are_absolute_values():
  torque = torch.tensor([[2.0, -3.0, -4.0]])
  velocity = torch.tensor([[-1.5, 0.5, -0.25]])
  assert torch.equal(joint_torque(torque), torch.tensor([[2.0, 3.0, 4.0]]))
  assert torch.equal(joint_velocity(velocity), torch.tensor([[1.5, 0.5, 0.25]]))
  assert torch.equal(energy(torque, velocity), torch.tensor([[3.0, 1.5, 1.0]]))
