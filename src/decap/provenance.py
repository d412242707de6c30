"""Where a policy comes from: the command, the commit and the versions that made it."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from decap import __version__

HISTORY_FILE = "params/history.jsonl"
COMMAND_VARIABLE = "DECAP_COMMAND"
"""Of the environment: the command that started this process and others beside it."""
PACKAGES = ("mjlab", "mujoco", "mujoco-warp", "rsl-rl-lib", "torch", "numpy")


def versions() -> dict[str, str]:
  """Versions of Python and of the packages that decide the numbers."""
  # Ours from the code itself: an editable installation remembers the version that it
  # was installed with.
  found = {"python": platform.python_version(), "decap": __version__}
  for package in PACKAGES:
    try:
      found[package] = version(package)
    except PackageNotFoundError:
      continue
  return found


def commit() -> str | None:
  """Commit of this code, with "+" where files differ from it; None outside of git.

  An installed package may lie in somebody else's repository: only one that tracks this
  very file is ours.
  """
  here = Path(__file__)

  def git(*arguments: str) -> str | None:
    command = ["git", "-C", str(here.parent), *arguments]
    try:
      result = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
      return None
    return result.stdout.strip() if result.returncode == 0 else None

  if not git("ls-files", "--error-unmatch", here.name):
    return None
  head = git("rev-parse", "HEAD")
  changed = git("status", "--porcelain", "--untracked-files=no", "--", ".")
  return f"{head}+" if head and changed else head


def made_by(folder: Path | None = None) -> dict[str, Any]:
  """What is running now, as policies and run folders remember it.

  Args:
    folder: A run that goes on: its first command stays the command, since that is the
      one to repeat.
  """
  # Of several processes none was started with the user's own command.
  command = os.environ.get(COMMAND_VARIABLE) or shlex.join(["decap", *sys.argv[1:]])
  first = _first_command(folder) if folder else None
  return {
    **({"command": first, "resumed_by": command} if first else {"command": command}),
    "commit": commit(),
    "versions": versions(),
    "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
  }


def remember(folder: Path, made: Mapping[str, Any], iteration: int) -> None:
  """Add a start of a run to its folder: continued runs have several."""
  with open(folder / HISTORY_FILE, "a", encoding="utf-8") as file:
    file.write(json.dumps({**made, "iteration": iteration}) + "\n")


def _first_command(folder: Path) -> str | None:
  """What started a run; None where it is not known."""
  try:
    with open(folder / HISTORY_FILE, encoding="utf-8") as file:
      return json.loads(file.readline())["command"]
  except (OSError, ValueError, KeyError, TypeError):
    return None


def differences(description: Mapping[str, Any]) -> list[str]:
  """How the code that made a policy differs from today's; nothing where it is unknown.

  Args:
    description: A bundle's, with its ``versions`` and perhaps ``made_by``.
  """
  made, now = description.get("made_by") or {}, versions()
  then = {**(description.get("versions") or {}), **made.get("versions", {})}
  found = [
    f"{name} {old} (now {now[name]})"
    for name, old in then.items()
    if name in now and now[name] != old
  ]
  here = commit()
  if made.get("commit") and here and made["commit"] != here:
    found.append(f"commit {_short(made['commit'])} (now {_short(here)})")
  return found


def _short(sha: str) -> str:
  return sha[:9] + ("+" if sha.endswith("+") else "")
