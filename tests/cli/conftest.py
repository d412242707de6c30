"""A run that the command line made, for tests of what becomes of it."""

import shutil

import pytest

from decap.cli import main

SMALL = ["--agent.policy.hidden-dims", "(32,16)", "--agent.num-steps-per-env", "6"]


@pytest.fixture(scope="session")
def run(tmp_path_factory):
  """A run folder of two iterations, to look at."""
  root = tmp_path_factory.mktemp("runs")
  options = ["--task", "g1-flat", "--num-envs", "4", "--iterations", "2"]
  options += ["--device", "cpu", "--log-root", str(root), "--run-name", "first"]
  assert main(["train", *options, *SMALL]) == 0
  (folder,) = (root / "g1-flat").iterdir()
  return folder


@pytest.fixture
def own_run(run, tmp_path):
  """A copy that may change."""
  return shutil.copytree(run, tmp_path / "run")
