"""The renderer, which MuJoCo chooses when it is imported, and domains for DDS."""

import os
import sys

if sys.platform.startswith("linux"):
  os.environ.setdefault("MUJOCO_GL", "egl")

import pytest

_domains = iter(range(2 + os.getpid() % 100, 230))


@pytest.fixture
def domain() -> int:
  """A DDS domain that no other test uses, nor another run of them, hopefully."""
  return next(_domains)
