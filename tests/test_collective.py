"""Two processes with half of the robots each learn what one learns with all."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from decap import collective

SCRIPT = Path(__file__).with_name("together.py")


def start(rank: int, world: int, port: int, file: Path) -> subprocess.Popen:
  arguments = [str(rank), str(world), str(port), str(file)]
  return subprocess.Popen([sys.executable, str(SCRIPT), *arguments])


@pytest.fixture(scope="module")
def learnt(tmp_path_factory) -> tuple[dict, dict]:
  """What one process and what two have learnt."""
  folder = tmp_path_factory.mktemp("together")
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
  alone = start(0, 1, port, folder / "alone.pt")
  both = [start(rank, 2, port, folder / "both.pt") for rank in range(2)]
  assert [process.wait(120) for process in (alone, *both)] == [0, 0, 0]
  return torch.load(folder / "alone.pt"), torch.load(folder / "both.pt")


@pytest.mark.parametrize("method", ["decap", "lagrangian"])
def test_the_scale_of_violations_is_the_same_bit_for_bit(learnt, method):
  alone, both = (results[method] for results in learnt)
  # A maximum over robots is exact, however they are divided.
  assert torch.equal(both["scale"], alone["scale"])
  assert alone["scale"].std() > 0.0


@pytest.mark.parametrize("method", ["decap", "lagrangian"])
def test_updates_and_statistics_are_the_same(learnt, method):
  alone, both = (results[method] for results in learnt)
  assert both.keys() == alone.keys()
  for name, value in alone.items():
    torch.testing.assert_close(both[name], value, rtol=2e-4, atol=2e-5, msg=name)


def test_one_process_reduces_nothing():
  x = torch.randn(3)
  assert collective.size() == 1 and collective.rank() == 0
  for reduction in (collective.maximum, collective.mean, collective.total):
    assert reduction(x) is x
  assert collective.agree("anything")
