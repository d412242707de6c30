"""Terms of the loss, by hand."""

import pytest
import torch

from decap.rl import losses

CLIP = 0.2


def test_the_surrogate_takes_the_worse_of_ratio_and_clipped_ratio():
  advantages, ratio = torch.tensor([2.0, 2.0, -1.0]), torch.tensor([1.5, 0.9, 0.5])
  # min(3, 2.4), min(1.8, 1.8), min(-0.5, -0.8)
  expected = -(2.4 + 1.8 - 0.8) / 3
  assert float(losses.surrogate(advantages, ratio, CLIP)) == pytest.approx(expected)


def test_a_value_that_jumps_is_judged_where_the_clip_ends():
  values, returns, old = (torch.tensor([x]) for x in (3.0, 3.5, 1.0))
  assert float(losses.value(values, returns, CLIP)) == pytest.approx(0.25)
  assert float(losses.value(values, returns, CLIP, old)) == pytest.approx(
    (1.2 - 3.5) ** 2
  )


def test_the_distance_to_the_mirror_image_is_in_sigma_and_leaves_sigma_alone():
  std = torch.tensor([0.5, 2.0], requires_grad=True)
  mean = torch.tensor([[1.0, 2.0]], requires_grad=True)
  loss = losses.mirror(mean, torch.tensor([[0.5, 6.0]]), std)
  assert loss.item() == pytest.approx((1.0 + 4.0) / 2)
  loss.backward()
  assert std.grad is None and mean.grad is not None
