"""MuJoCo chooses its renderer when it is imported, so this must come before."""

import os
import sys

if sys.platform.startswith("linux"):
  os.environ.setdefault("MUJOCO_GL", "egl")
