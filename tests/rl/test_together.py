"""A group of one process: the whole code path of several, and the numbers of none."""

import contextlib

import pytest
import torch
from torch import distributed as dist

from decap import collective
from decap.rl.display import Stopwatch
from tests.rl.test_capture import _compare_updates, make_runner


@contextlib.contextmanager
def group_of_one(backend: str):
  """What torchrun makes, for a world of this process alone."""
  store = dist.HashStore()
  dist.init_process_group(backend, store=store, rank=0, world_size=1)
  try:
    yield
  finally:
    dist.destroy_process_group()


def trained(iterations: int = 2) -> list[torch.Tensor]:
  torch.manual_seed(0)
  runner = make_runner(4, device="cpu", num_steps=6)
  for _ in range(iterations):
    runner.iterate(Stopwatch())
  return [p for net in runner.alg.networks.values() for p in net.parameters()]


def test_a_group_of_one_learns_the_same_bit_for_bit():
  plain = trained()
  with group_of_one("gloo"), collective.counted() as reductions:
    together = trained()
  assert all(torch.equal(a, b) for a, b in zip(plain, together, strict=True))
  # Of each mini-batch the gradients, 2 × 20 of them, are by far the largest.
  largest = max(reductions)
  assert reductions.count(largest) == 40
  assert largest == 4 * sum(p.numel() for p in together if p.grad is not None)
  assert sum(reductions) < 1.01 * 40 * largest


def test_paused_is_alone():
  x = torch.ones(2)
  with group_of_one("gloo"):
    assert collective.active() and collective.maximum(x) is not x
    with collective.paused():
      assert not collective.active() and collective.maximum(x) is x
    assert collective.active()
  assert not collective.active()


@pytest.mark.gpu
def test_under_nccl_captured_equals_the_plain_run():
  """One world-size-1 group on a GPU: its reductions are part of the graphs."""
  torch.cuda.set_device(0)
  with group_of_one("nccl"):
    runner = make_runner()
    with runner.graphs.stream():
      runner.iterate(Stopwatch("cuda:0"))
      with collective.counted() as recorded:
        runner.iterate(Stopwatch("cuda:0"))  # Records.
      assert len(recorded) > 20
      with collective.counted() as replayed:
        runner.iterate(Stopwatch("cuda:0"))
      assert replayed == []
      eager = runner.learn_from_rollout

      def alone():
        with collective.paused():
          eager()

      # Eager and alone against recorded and together, from the same rollout and state.
      runner.learn_from_rollout = alone
      _compare_updates(runner, runner.graphs.update)
