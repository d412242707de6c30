"""Smooth legged locomotion by constraint: train, measure, deploy."""

import ctypes
import os
import sys

__version__ = "0.2.0"


def _make_rendering_optional() -> None:
  """Let MuJoCo load without EGL: mjlab asks for it, and its import fails then."""
  if sys.platform.startswith("linux") and "MUJOCO_GL" not in os.environ:
    try:
      ctypes.CDLL("libEGL.so.1")
    except OSError:
      os.environ["MUJOCO_GL"] = "disable"


_make_rendering_optional()
