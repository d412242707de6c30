"""Commands that we tell the user to run next."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def program() -> str:
  """How to start us again: ``decap`` where the PATH has it, else as it was started."""
  script = Path(sys.argv[0])
  found = shutil.which("decap")
  # From Python, and in a fork, it may be a bare name that is no file.
  foreign = script.name != "decap" or not script.exists()
  if foreign or (found and os.path.samefile(found, script)):
    return "decap"
  return str(script)
