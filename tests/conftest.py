"""MuJoCo takes its renderer from the environment when it is loaded, once.

Which test loads it first must not matter: all draw through EGL, where there is one.
"""

import os
import sys

import decap  # noqa: F401  Says so where there is no EGL.

if sys.platform.startswith("linux") and "MUJOCO_GL" not in os.environ:
  os.environ["MUJOCO_GL"] = "egl"
  import mujoco  # noqa: F401

  # What users have: commands that are tested find nothing set.
  del os.environ["MUJOCO_GL"]
