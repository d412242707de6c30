"""Writing by mask touches what the mask says, also through views."""

import pytest
import torch

from decap.envs.masked import kept, redraw_where, write_where

MASK = torch.tensor([True, False, True])


def test_write_where_into_columns():
  target = torch.zeros(3, 4)
  values = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
  write_where(target[:, 1:4:2], MASK, values)
  assert target.tolist() == [[0, 1, 0, 2], [0, 0, 0, 0], [0, 5, 0, 6]]
  write_where(target[:, :2], None, values)
  assert target.tolist() == [[1, 2, 0, 2], [3, 4, 0, 0], [5, 6, 0, 6]]


@pytest.mark.parametrize("bounds", [(2.0, 3.0), (2.0, 2.0)])
def test_redraw_where(bounds):
  target = torch.zeros(3)
  redraw_where(target, MASK, bounds)
  assert target[1] == 0
  assert ((target[MASK] >= bounds[0]) & (target[MASK] <= bounds[1])).all()
  assert (target[0] == target[2]).item() is (bounds[0] == bounds[1])


def test_kept_is_made_once():
  class Env:
    pass

  first, second, made = Env(), Env(), []
  for env in (first, first, second):
    assert kept(env, "key", lambda: made.append(1) or len(made)) in (1, 2)
  assert len(made) == 2
