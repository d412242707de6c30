"""Small wrong changes of a source file: what is changed, and into what.

Left alone: annotations, decorators, docstrings, texts (also what is raised with them),
assertions, `strict=`, and assignments to local names, without which nothing runs.
"""

from __future__ import annotations

import ast
import copy
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

_COMPARED = {
  ast.Lt: ast.LtE,
  ast.LtE: ast.Lt,
  ast.Gt: ast.GtE,
  ast.GtE: ast.Gt,
  ast.Eq: ast.NotEq,
  ast.NotEq: ast.Eq,
  ast.Is: ast.IsNot,
  ast.IsNot: ast.Is,
  ast.In: ast.NotIn,
  ast.NotIn: ast.In,
}
_COMPUTED = {
  ast.Add: ast.Sub,
  ast.Sub: ast.Add,
  ast.Mult: ast.Div,
  ast.Div: ast.Mult,
  ast.FloorDiv: ast.Div,
  ast.Mod: ast.Mult,
  ast.Pow: ast.Mult,
  ast.BitAnd: ast.BitOr,
  ast.BitOr: ast.BitAnd,
}
_PAIRS = (
  ("min", "max"),
  ("amin", "amax"),
  ("minimum", "maximum"),
  ("clamp_min", "clamp_max"),
  ("any", "all"),
  ("mean", "sum"),
  ("zeros", "ones"),
  ("zeros_like", "ones_like"),
  ("logical_and", "logical_or"),
  ("sqrt", "square"),
)
_NAMED = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
_SYMMETRIC = ("min", "max", "minimum", "maximum", "logical_and", "logical_or")
"""Functions whose arguments may stand in any order."""
_CONTEXT = 24
"""Characters around a change that its name shows."""
# Comparisons whose opposite is the negation, so that negating them again adds nothing.
_NEGATED = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)


@dataclass
class Mutant:
  """One wrong change: a place in a syntax tree, and what stands there instead."""

  path: str
  """File, as a path within the package."""
  scope: tuple[str, ...]
  """Classes and the outermost function around the place."""
  hot: bool
  """Whether it is in a function's body, so that a loaded module can take it."""
  lines: range
  """Lines of the statement."""
  name: str
  """Unique and free of line numbers, so that it outlives edits elsewhere."""
  tree: ast.Module
  holder: Any
  key: Any
  new: ast.AST
  file: str

  def apply(self) -> None:
    """Put the change into the tree, for good."""
    _put(self.holder, self.key, self.new)

  def code(self) -> CodeType:
    """The whole file, compiled with the change."""
    self.apply()
    return compile(ast.fix_missing_locations(self.tree), self.file, "exec")


@dataclass(frozen=True)
class _Place:
  scope: tuple[str, ...] = ()
  hot: bool = False
  statement: ast.stmt | None = None


def mutants(root: Path, path: str) -> list[Mutant]:
  """All mutants of a file, in the order of its text."""
  file = root / path
  tree = ast.parse(file.read_text())
  seen: Counter[str] = Counter()
  found = []
  for holder, key, old, new, place in list(_changes(tree, _Place())):
    ast.copy_location(new, old)
    name = f"{path}:{'.'.join(place.scope) or 'module'}: "
    name += _difference(place.statement, holder, key, old, new)
    seen[name] += 1
    if seen[name] > 1:
      name += f" (no. {seen[name]})"
    where = (path, place.scope, place.hot, _lines(place.statement))
    found.append(Mutant(*where, name, tree, holder, key, new, str(file)))
  return found


def _put(holder: Any, key: Any, node: ast.AST) -> None:
  if isinstance(holder, list):
    holder[key] = node
  else:
    setattr(holder, key, node)


def _lines(statement: ast.stmt) -> range:
  """Lines of a statement without its body."""
  body = getattr(statement, "body", None)
  end = body[0].lineno - 1 if body else statement.end_lineno or 0
  return range(statement.lineno, max(statement.lineno, end) + 1)


def _difference(
  statement: ast.stmt, holder: Any, key: Any, old: ast.AST, new: ast.AST
) -> str:
  """Statement before and after, without what is the same far from the change."""
  before = _text(statement)
  if old is statement:
    after = _text(new)
  else:
    _put(holder, key, new)
    after = _text(statement)
    _put(holder, key, old)
  start = len(os.path.commonprefix((before, after)))
  end = len(os.path.commonprefix((before[start:][::-1], after[start:][::-1])))
  start, end = max(0, start - _CONTEXT), max(0, end - _CONTEXT)
  head, tail = "…" * (start > 0), "…" * (end > 0)
  texts = (head + text[start : len(text) - end] + tail for text in (before, after))
  return " → ".join(texts)


def _text(node: ast.AST) -> str:
  return " ".join(ast.unparse(node).split())


def _changes(node: ast.AST, place: _Place) -> Iterator[tuple]:
  """(holder, key, old node, new node, place) of all changes below a node."""
  for field, value in ast.iter_fields(node):
    if field in ("annotation", "returns", "type_comment", "decorator_list"):
      continue
    for holder, key, child in _children(node, field, value):
      if _left_alone(child):
        continue
      inner = _inner(child, node, field, place)
      if isinstance(child, ast.Raise):
        yield holder, key, child, ast.Pass(), inner
        continue
      for new in _instead_of(child):
        yield holder, key, child, new, inner
      if field in ("test", "ifs") and not isinstance(node, ast.Assert):
        for new in _negated(child):
          yield holder, key, child, new, inner
      yield from _changes(child, inner)


def _children(node: ast.AST, field: str, value: Any) -> Iterator[tuple]:
  if isinstance(value, list):
    for index, child in enumerate(value):
      if isinstance(child, ast.AST):
        yield value, index, child
  elif isinstance(value, ast.AST):
    yield node, field, value


def _left_alone(node: ast.AST) -> bool:
  if isinstance(node, ast.If) and _text(node.test) == "TYPE_CHECKING":
    return True
  # A check of our own loops: no input makes a difference.
  if isinstance(node, ast.keyword) and node.arg == "strict":
    return True
  return isinstance(node, (ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom))


def _inner(child: ast.AST, node: ast.AST, field: str, place: _Place) -> _Place:
  scope, hot, statement = place.scope, place.hot, place.statement
  if isinstance(node, ast.FunctionDef) and field == "body":
    hot = True
  elif isinstance(node, ast.FunctionDef):
    scope = scope if hot else scope[:-1]
  if isinstance(child, (ast.FunctionDef, ast.ClassDef)) and not hot:
    scope = (*scope, child.name)
  if isinstance(child, ast.stmt):
    statement = child
  return _Place(scope, hot, statement)


def _negated(test: ast.AST) -> Iterator[ast.AST]:
  if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
    return
  if isinstance(test, ast.Compare) and isinstance(test.ops[0], _NEGATED):
    return
  yield ast.UnaryOp(ast.Not(), copy.deepcopy(test))


def _instead_of(node: ast.AST) -> Iterator[ast.AST]:
  """What may stand in place of a node."""
  if isinstance(node, ast.stmt):
    yield from _statements(node)
  elif isinstance(node, ast.Compare):
    for index, op in enumerate(node.ops):
      new = copy.deepcopy(node)
      new.ops[index] = _COMPARED[type(op)]()
      yield new
  elif isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
    new = copy.deepcopy(node)
    new.op = _COMPUTED[type(node.op)]()
    yield new
  elif isinstance(node, ast.BoolOp):
    new = copy.deepcopy(node)
    new.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield new
  elif isinstance(node, ast.UnaryOp):
    yield copy.deepcopy(node.operand)
  elif isinstance(node, ast.Constant):
    yield from _constants(node)
  elif isinstance(node, ast.Call):
    yield from _calls(node)


def _constants(node: ast.Constant) -> Iterator[ast.AST]:
  if isinstance(node.value, bool):
    yield ast.Constant(not node.value)
  elif isinstance(node.value, (int, float)):
    yield ast.Constant(node.value + 1)


def _calls(node: ast.Call) -> Iterator[ast.AST]:
  func = node.func
  if isinstance(func, ast.Attribute) and func.attr in _NAMED:
    new = copy.deepcopy(node)
    new.func.attr = _NAMED[func.attr]
    yield new
  if isinstance(func, ast.Name) and func.id in _NAMED:
    new = copy.deepcopy(node)
    new.func.id = _NAMED[func.id]
    yield new
  args = node.args
  if (getattr(func, "attr", "") or getattr(func, "id", "")) in _SYMMETRIC:
    return
  for index in range(len(args) - 1):
    pair = args[index : index + 2]
    if any(isinstance(arg, ast.Starred) for arg in pair):
      continue
    if ast.dump(pair[0]) != ast.dump(pair[1]):
      new = copy.deepcopy(node)
      new.args[index : index + 2] = copy.deepcopy(pair[::-1])
      yield new


def _statements(node: ast.stmt) -> Iterator[ast.AST]:
  if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
    # A method that names super has one more closure; it must stay so to be exchanged.
    named = any(isinstance(n, ast.Name) and n.id == "super" for n in ast.walk(node))
    yield ast.Expr(ast.Name("super", ast.Load())) if named else ast.Pass()
  elif isinstance(node, ast.AugAssign):
    yield ast.Pass()
    if type(node.op) in _COMPUTED:
      new = copy.deepcopy(node)
      new.op = _COMPUTED[type(node.op)]()
      yield new
  elif isinstance(node, ast.Assign):
    if not isinstance(node.targets[0], (ast.Name, ast.Tuple)):
      yield ast.Pass()
  elif isinstance(node, (ast.Break, ast.Continue)):
    yield ast.Continue() if isinstance(node, ast.Break) else ast.Break()
