"""mjlab's private names are in one file; whoever uses another is found here."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "decap"
ADAPTER = SOURCE / "mjlab_private.py"
OTHERS = {
  "testing.py": {"_getframe"},  # Who called an operator.
  "rl/modules.py": {"_mean", "_var", "_std"},  # rsl_rl's normaliser, a base class.
  "cli/processes.py": {"_exit"},  # os: out at once, whatever other threads wait for.
  # Of Scheduler, our own base class in another file.
  "sweep/cluster.py": {"_display", "_fail", "_plan", "_root", "_settle"},
}
"""Private names of other libraries, and of environments, by file."""
BASE_CLASSES = {"_env", "_finish_init"}
"""What mjlab's base classes pass on to those that inherit from them."""


def own_names(tree: ast.AST) -> set[str]:
  """Private names that a file defines: functions, attributes of self, declarations."""
  names = set()
  for node in ast.walk(tree):
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
      names.add(node.name)
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
      names.add(node.target.id)
    elif isinstance(node, ast.Assign):
      names |= {n.id for n in node.targets if isinstance(n, ast.Name)}
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
      if isinstance(node.value, ast.Name) and node.value.id == "self":
        names.add(node.attr)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
      names.add(node.value)  # object.__setattr__(self, "_name", …)
  return names


def foreign_names(file: Path) -> Iterator[str]:
  tree = ast.parse(file.read_text("utf-8"))
  own = own_names(tree)
  for node in ast.walk(tree):
    if isinstance(node, ast.Attribute):
      name = node.attr
    elif isinstance(node, ast.alias):
      name = node.name
    else:
      continue
    if name.startswith("_") and not name.startswith("__") and name not in own:
      yield name


@pytest.mark.parametrize(
  "file",
  [f for f in sorted(SOURCE.rglob("*.py")) if f != ADAPTER],
  ids=lambda f: str(f.relative_to(SOURCE)),
)
def test_no_other_file_uses_private_names(file):
  allowed = OTHERS.get(str(file.relative_to(SOURCE)), set()) | BASE_CLASSES
  allowed |= {"_asdict", "_fields"}  # Public names of named tuples.
  assert set(foreign_names(file)) <= allowed


def test_the_adapter_says_what_each_is_for():
  for node in ast.parse(ADAPTER.read_text("utf-8")).body:
    if isinstance(node, ast.FunctionDef):
      assert ast.get_docstring(node), node.name


def test_the_check_finds_a_private_name(tmp_path):
  file = tmp_path / "module.py"
  file.write_text("class A:\n  def f(self, x):\n    self._own = x._theirs\n")
  assert list(foreign_names(file)) == ["_theirs"]
