"""Importing the package on machines that lack what only videos need."""

import ctypes
import os

import pytest

import decap


@pytest.fixture
def no_egl(monkeypatch):
  def missing(name):
    raise OSError(f"{name}: cannot open shared object file")

  monkeypatch.setattr(ctypes, "CDLL", missing)
  monkeypatch.setattr("sys.platform", "linux")
  # Set first, so that what the test sets itself is undone too.
  monkeypatch.setenv("MUJOCO_GL", "egl")
  monkeypatch.delenv("MUJOCO_GL")


def test_without_egl_mujoco_loads_without_rendering(no_egl):
  decap._make_rendering_optional()
  assert os.environ["MUJOCO_GL"] == "disable"


def test_a_choice_of_the_user_stays(no_egl, monkeypatch):
  monkeypatch.setenv("MUJOCO_GL", "osmesa")
  decap._make_rendering_optional()
  assert os.environ["MUJOCO_GL"] == "osmesa"
