"""A group of one process: the whole code path of several, and the numbers of none."""

import contextlib
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
import torch
from torch import distributed as dist

from benchmarks.scaling_process import alone, counted
from decap.rl.display import Stopwatch
from tests.rl.test_capture import _compare_updates, make_runner

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def group_of_one():
  """What torchrun makes, for a world of this process alone."""
  dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
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
  with group_of_one(), counted() as reductions:
    together = trained()
  assert all(torch.equal(a, b) for a, b in zip(plain, together, strict=True))
  # Of each mini-batch the gradients, 2 × 20 of them, are by far the largest.
  largest = max(reductions)
  assert reductions.count(largest) == 40
  # With them goes the KL divergence of each of 29 actions.
  assert largest == 4 * (29 + sum(p.numel() for p in together if p.grad is not None))
  assert sum(reductions) < 1.01 * 40 * largest


@pytest.mark.gpu
def test_under_nccl_captured_equals_the_plain_run():
  """In a process of its own: NCCL that fails may wait for ever."""
  command = [sys.executable, "-m", "tests.rl.test_together"]
  done = subprocess.run(command, cwd=ROOT, timeout=150, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr[-3000:]
  assert "equal" in done.stdout


def compare_under_nccl() -> None:
  """Eager and alone against recorded and together, from the same rollout and state."""
  torch.cuda.set_device(0)
  dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
  runner = make_runner()
  assert runner.graphs is not None
  with runner.graphs.stream():
    runner.iterate(Stopwatch("cuda:0"))
    with counted() as recorded:
      runner.iterate(Stopwatch("cuda:0"))
    assert len(recorded) > 20, "the second iteration records the reductions"
    with counted() as replayed:
      runner.iterate(Stopwatch("cuda:0"))
    # The third replays them, but for what robots achieved, once between iterations.
    sums = runner.alg.progress.sums
    assert replayed == [sums.numel() * sums.element_size()]
    eager = runner.learn_from_rollout

    def learn_alone() -> None:
      with alone():
        eager()

    runner.learn_from_rollout = learn_alone  # ty: ignore[invalid-assignment]
    compared = _compare_updates(runner, runner.graphs.update)
  largest = max(error / change for error, change in compared)
  print(f"equal: differences are {largest:.1e} of the change at most", flush=True)


if __name__ == "__main__":
  try:
    compare_under_nccl()
  except BaseException:
    traceback.print_exc()
    os._exit(1)
  os._exit(0)  # Without NCCL's own end, which waits for the graphs'.
