"""Two processes on the loopback's DDS network, for tests."""

import importlib.util
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from decap.deploy import dds

needs_dds = pytest.mark.skipif(
  importlib.util.find_spec("unitree_interface") is None
  and dds.LIBRARY_VARIABLE not in os.environ,
  reason="no DDS for this Python",
)


@contextmanager
def peer(role: str, domain: int, *arguments):
  """Another process on the network; yields a function that waits for its result."""
  folder = Path(__file__).parents[2]
  process = subprocess.Popen(
    [sys.executable, "-m", "tests.deploy.dds_peer", role, str(domain)]
    + [json.dumps(a) for a in arguments],
    cwd=folder,
    stdout=subprocess.PIPE,
    text=True,
  )

  def result() -> dict:
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return json.loads(out.splitlines()[-1])

  try:
    yield result
  finally:
    process.kill()
    process.wait()
