"""What a process measures of reductions; whole measurements are in test_scaling.py."""

import torch

from benchmarks.scaling_process import alone, counted
from decap import collective
from tests.rl.test_together import group_of_one


def test_alone_there_is_no_group():
  x = torch.ones(2)
  with group_of_one():
    assert collective.active() and collective.maximum(x) is not x
    with alone():
      assert not collective.active() and collective.maximum(x) is x
    assert collective.active()
  assert not collective.active()


def test_reductions_are_counted_by_their_bytes():
  with group_of_one():
    with counted() as sizes:
      collective.mean(torch.ones(2))
      collective.average([torch.ones(3), torch.ones(5)])
      with alone():
        collective.mean(torch.ones(2))
    collective.total(torch.ones(7))
  # Of four bytes each; several tensors are one reduction.
  assert sizes == [8, 32]
