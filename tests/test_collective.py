"""Two processes with half of the robots each learn what one learns with all."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from decap import collective

SCRIPT = Path(__file__).with_name("together.py")
LINK = "cable"
"""Network interface of a machine that is a namespace."""
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


@pytest.fixture(scope="module")
def learnt(tmp_path_factory) -> tuple[dict, dict]:
  """What one process and what two have learnt."""
  folder = tmp_path_factory.mktemp("together")
  alone = subprocess.Popen([sys.executable, str(SCRIPT), str(folder / "alone.pt")])
  command = [*TORCHRUN, "--standalone", "--nproc-per-node", "2"]
  both = subprocess.Popen([*command, str(SCRIPT), str(folder / "both.pt")])
  assert [process.wait(120) for process in (alone, both)] == [0, 0]
  return torch.load(folder / "alone.pt"), torch.load(folder / "both.pt")


@pytest.mark.parametrize("method", ["decap", "lagrangian"])
def test_the_scale_of_violations_is_the_same_bit_for_bit(learnt, method):
  alone, both = (results[method] for results in learnt)
  # A maximum over robots is exact, however they are divided.
  assert torch.equal(both["largest"], alone["largest"])
  assert alone["largest"].std() > 0.0


def _assert_close(found: dict, expected: dict) -> None:
  """Equal but for rounding, which the cost critic's last bias makes more of: a quarter
  of what four steps of Adam can move its other weights."""
  for name, value in expected.items():
    atol = 1e-3 if name == "cost_critic" else 2e-5
    torch.testing.assert_close(found[name], value, rtol=2e-4, atol=atol, msg=name)


@pytest.mark.parametrize("method", ["decap", "lagrangian"])
def test_updates_and_statistics_are_the_same(learnt, method):
  alone, both = (results[method] for results in learnt)
  assert both.keys() == alone.keys()
  _assert_close(both, alone)


def test_processes_have_the_same_statistics_bit_for_bit(learnt):
  """Limits under annealing are means of quantiles: not those of one process with all,
  but the same for both."""
  alone, both = learnt
  assert both["differ"] == []
  assert both["annealed"]["limits"].std() > 0.0
  assert not torch.equal(both["annealed"]["limits"], alone["annealed"]["limits"])


def test_one_process_reduces_nothing():
  x = torch.randn(3)
  assert collective.size() == 1 and collective.rank() == 0
  for reduction in (collective.maximum, collective.mean, collective.total):
    assert reduction(x) is x
  assert collective.differences({"a": "anything"}) == []


@pytest.fixture
def nodes():
  """Two network namespaces with a cable between: name and address of each."""
  found = [("decap-one", "10.213.7.1"), ("decap-two", "10.213.7.2")]
  commands = [["ip", "netns", "add", name] for name, _ in found]
  ends = [[LINK, "netns", name] for name, _ in found]
  commands += [["ip", "link", "add", *ends[0], "type", "veth", "peer", *ends[1]]]
  for name, address in found:
    inside = ["ip", "-n", name]
    commands += [[*inside, "addr", "add", f"{address}/24", "dev", LINK]]
    commands += [[*inside, "link", "set", LINK, "up"]]
    commands += [[*inside, "link", "set", "lo", "up"]]
  try:
    for command in commands:
      subprocess.run(command, check=True, capture_output=True)
    yield found
  except (OSError, subprocess.CalledProcessError) as error:
    pytest.skip(f"network namespaces need rights, or a kernel, not here: {error}")
  finally:
    for name, _ in found:
      with suppress(OSError):
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def test_two_machines_learn_what_one_does(nodes, learnt, tmp_path):
  """They meet by torchrun's own rendezvous, and share nothing but the network."""
  processes = []
  for rank, (name, address) in enumerate(nodes):
    command = ["ip", "netns", "exec", name, *TORCHRUN, "--nnodes", "2"]
    command += ["--nproc-per-node", "1", "--rdzv-backend", "c10d"]
    command += ["--rdzv-endpoint", f"{nodes[0][1]}:29500", "--local-addr", address]
    # A machine knows its own name; a namespace has the name of the machine.
    command += ["--rdzv-conf", f"is_host={rank == 0}"]
    processes.append(
      subprocess.Popen(
        [*command, str(SCRIPT), str(tmp_path / "nodes.pt")],
        env={**os.environ, "GLOO_SOCKET_IFNAME": LINK},
      )
    )
  try:
    assert [process.wait(90) for process in processes] == [0, 0]
  finally:
    for process in processes:
      process.kill()
  alone, far = learnt[0], torch.load(tmp_path / "nodes.pt")
  assert far["differ"] == []
  for method in ("decap", "lagrangian"):
    assert torch.equal(far[method]["largest"], alone[method]["largest"])
    _assert_close(far[method], alone[method])
