"""mjlab's private names are in one file; whoever uses another is found here."""

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import mjlab
import pytest

from decap import mjlab_private

SOURCE = Path(__file__).parents[1] / "src" / "decap"
ADAPTER = SOURCE / "mjlab_private.py"
FILES = [f for f in sorted(SOURCE.rglob("*.py")) if f != ADAPTER]
OTHERS = {
  "testing.py": {"_getframe"},  # Who called an operator.
  # rsl_rl's normaliser, a base class; an operator of torch.
  "rl/modules.py": {"_mean", "_var", "_std", "_linear_pointwise"},
  "cli/processes.py": {"_exit"},  # os: out at once, whatever other threads wait for.
  "runs.py": {"_s"},  # Ends the names of times.
  # Of Scheduler, our own base class in another file.
  "sweep/cluster.py": {"_display", "_fail", "_plan", "_root", "_settle"},
}
"""Private names of other libraries, and of environments, by file."""
PUBLIC = {"_asdict", "_fields"}
"""Names of named tuples, which are public."""
HOOKS = {name for members in mjlab_private.HOOKS.values() for name in members}
BY_NAME = ("getattr", "setattr", "hasattr", "delattr", "__getattr__", "__setattr__")


def is_private(name: str) -> bool:
  return re.fullmatch(r"_[a-zA-Z]\w*", name) is not None


def is_self(node: ast.AST) -> bool:
  """``self`` or ``super()``."""
  if isinstance(node, ast.Call):
    node = node.func
  return isinstance(node, ast.Name) and node.id in ("self", "super")


def attribute_by_name(node: ast.AST) -> tuple[ast.AST, str] | None:
  """Object and attribute of ``getattr(x, "_y")`` and its kind."""
  if not isinstance(node, ast.Call) or len(node.args) < 2:
    return None
  name = getattr(node.func, "id", getattr(node.func, "attr", ""))
  key = node.args[1]
  if name in BY_NAME and isinstance(key, ast.Constant) and isinstance(key.value, str):
    return node.args[0], key.value
  return None


def declared(tree: ast.AST) -> set[str]:
  """Private members that the classes of a tree define: methods, fields, of self."""
  names = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.ClassDef):
      for part in node.body:
        if isinstance(part, ast.FunctionDef):
          names.add(part.name)
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
          names.add(part.target.id)
        elif isinstance(part, ast.Assign):
          names |= {n.id for n in part.targets if isinstance(n, ast.Name)}
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
      if is_self(node.value):
        names.add(node.attr)
    elif (found := attribute_by_name(node)) and is_self(found[0]):
      if getattr(node.func, "attr", "") == "__setattr__":  # type: ignore[attr-defined]
        names.add(found[1])
  return {name for name in names if is_private(name)}


def occurring(tree: ast.AST) -> Iterator[str]:
  """Private names of any kind."""
  for node in ast.walk(tree):
    for field in ("attr", "id", "name", "arg"):
      name = getattr(node, field, None)
      if isinstance(name, str) and is_private(name):
        yield name


def parsed(file: Path) -> ast.Module:
  return ast.parse(file.read_text("utf-8"))


@pytest.fixture(scope="module")
def theirs() -> set[str]:
  """All private names in mjlab's source."""
  (folder,) = mjlab.__path__
  return {n for file in Path(folder).rglob("*.py") for n in occurring(parsed(file))}


def foreign_names(file: Path, theirs: set[str]) -> Iterator[str]:
  """Private names that a file uses and does not define.

  Hooks are for classes of their own: ``self._env``, not ``term._env``. Text counts where
  it is a name of mjlab's, or where it stands for an attribute.
  """
  tree = parsed(file)
  own = declared(tree)
  for node in ast.walk(tree):
    allowed = own
    if isinstance(node, ast.Attribute):
      name = node.attr
      allowed = own | HOOKS if is_self(node.value) else own - HOOKS
    elif isinstance(node, ast.alias):
      name, allowed = node.name, set()
    elif found := attribute_by_name(node):
      name = found[1]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
      name = node.value
      if name not in theirs:
        continue
    else:
      continue
    if is_private(name) and name not in allowed:
      yield name


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_no_other_file_uses_private_names(file, theirs):
  allowed = OTHERS.get(str(file.relative_to(SOURCE)), set()) | PUBLIC
  assert set(foreign_names(file, theirs)) <= allowed


def test_the_check_finds_private_names(tmp_path):
  file = tmp_path / "module.py"
  file.write_text(
    "from mjlab import _imported\n"
    "def _read(x):\n"
    "  return x._read\n"
    "class A:\n"
    "  def f(self, x):\n"
    "    self._own = x._accessed + getattr(x, '_by_name') + self._env + x._env\n"
    "    object.__setattr__(self, '_set', x._own + x._set)\n"
    "    setattr(x, '_written', '_obs_buffer')\n"
    "    return x.__dict__, '_text', '_own', '-_-'\n"
  )
  assert sorted(foreign_names(file, {"_obs_buffer", "_own"})) == sorted(
    ["_imported", "_read", "_accessed", "_by_name", "_env", "_written", "_obs_buffer"]
  )


# What classes share with those that they inherit from.


def members(cls: type) -> set[str]:
  """Private members that a class declares itself."""
  return declared(ast.parse(textwrap.dedent(inspect.getsource(cls))))


def members_of_mjlab(cls: type) -> set[str]:
  """Private members that a class has of mjlab."""
  bases = [c for c in cls.__mro__ if c.__module__.split(".")[0] == "mjlab"]
  return {name for base in bases for name in members(base)}


def heirs() -> Iterator[type]:
  """Our classes that inherit from mjlab's."""
  for file in FILES:
    tree = parsed(file)
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.bases]
    if not classes or "mjlab" not in file.read_text("utf-8"):
      continue
    path = file.relative_to(SOURCE.parent).with_suffix("")
    module = importlib.import_module(".".join(path.parts))
    for node in classes:
      cls = getattr(module, node.name)
      if any(base.__module__.split(".")[0] == "mjlab" for base in cls.__mro__):
        yield cls


def hooks_of(cls: type) -> set[str]:
  """What the adapter names of the classes that a class inherits from."""
  names = {f"{c.__module__}:{c.__qualname__}" for c in cls.__mro__}
  return {
    hook
    for base, hooks in mjlab_private.HOOKS.items()
    if base in names
    for hook in hooks
  }


@pytest.mark.parametrize("path", mjlab_private.HOOKS)
def test_mjlabs_classes_have_the_hooks(path):
  module, name = path.split(":")
  cls = getattr(importlib.import_module(module), name)
  assert mjlab_private.HOOKS[path].keys() <= members_of_mjlab(cls)


def test_classes_share_only_hooks_with_mjlabs():
  """Also by accident: an attribute that happens to have a name of the base's."""
  used = set()
  for cls in heirs():
    names = set(occurring(ast.parse(textwrap.dedent(inspect.getsource(cls)))))
    shared = names & members_of_mjlab(cls)
    assert shared <= hooks_of(cls), cls
    used |= shared
  assert used == HOOKS  # Names that nobody needs any more are to go.


# The adapter itself.


def test_the_adapter_says_what_each_is_for():
  for node in parsed(ADAPTER).body:
    if isinstance(node, ast.FunctionDef):
      assert ast.get_docstring(node), node.name
  for table in (mjlab_private.NOT_STATE, *mjlab_private.HOOKS.values()):
    assert all(table.values())


def test_mjlab_has_the_names_of_the_adapter(theirs):
  tree = parsed(ADAPTER)
  attributes = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
  imported = {n.name for n in ast.walk(tree) if isinstance(n, ast.alias)}
  text = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
  used = {n for n in attributes | imported | text if isinstance(n, str)}
  used = set(filter(is_private, used))
  assert used >= mjlab_private.NOT_STATE.keys() | HOOKS
  assert used <= theirs
