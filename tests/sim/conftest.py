from __future__ import annotations

import mujoco
import pytest

from tests.sim import scenes


@pytest.fixture(scope="session")
def g1() -> mujoco.MjModel:
  return scenes.compiled("g1")


@pytest.fixture(scope="session")
def go1() -> mujoco.MjModel:
  return scenes.compiled("go1")
