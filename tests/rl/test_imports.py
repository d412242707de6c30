"""Algorithms know nothing of simulators: any vectorised environment can use them."""

import ast
from pathlib import Path

import decap.rl


def imported(file: Path) -> set[str]:
  """Modules that a file imports, wherever in it."""
  found = set()
  for node in ast.walk(ast.parse(file.read_text("utf-8"))):
    if isinstance(node, ast.Import):
      found |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom) and node.module:
      found |= {f"{node.module}.{alias.name}" for alias in node.names}
  return found


def test_no_algorithm_imports_an_environment():
  files = list(Path(decap.rl.__file__).parent.glob("*.py"))
  assert len(files) > 10
  for file in files:
    for name in imported(file):
      foreign = ("mjlab", "mujoco", "decap.envs", "decap.sim", "decap.tasks")
      assert not name.startswith(foreign), f"{file.name} imports {name}"
