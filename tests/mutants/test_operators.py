"""Mutants: what is changed, what is not, and that the list of equivalent ones is true."""

import ast
from pathlib import Path

import yaml

from tests.mutants.__main__ import FILES, HERE, PACKAGE, ROOT
from tests.mutants.operators import mutants

SOURCE = '''
LIMIT = 2


def clip(value: float = 1.0, *, strict: bool = True) -> float:
  """At most 3."""
  if value > LIMIT and strict:
    raise ValueError("above 2")
  print(value, 0)
  for a, b in zip([1], [value], strict=True):
    value += min(a, -b)
  return value
'''


def changes(folder: Path) -> list[str]:
  (folder / "clip.py").write_text(SOURCE)
  return [m.name.split(": ", 1)[1] for m in mutants(folder, "clip.py")]


def test_every_kind_of_change_is_there_once(tmp_path):
  found = changes(tmp_path)
  for change in (
    "LIMIT = 2 → LIMIT = 3",
    "raise ValueError('above 2') → pass",
    "print(value, 0) → pass",
    "print(value, 0) → print(0, value)",
    "print(value, 0) → print(value, 1)",
    "value += min(a, -b) → pass",
    "value += min(a, -b) → value -= min(a, -b)",
    "value += min(a, -b) → value += max(a, -b)",
    "value += min(a, -b) → value += min(a, b)",
  ):
    assert found.count(change) == 1, change
  assert any("value > LIMIT or strict" in change for change in found)
  assert any("value >= LIMIT" in change for change in found)
  assert any("if not (value > LIMIT and strict)" in change for change in found)
  # Texts, annotations and strict= stay, and min takes its arguments in any order.
  assert not any("'above 3'" in change or "At most 4" in change for change in found)
  assert not any("strict=False" in change for change in found)
  assert not any("min(-b, a)" in change for change in found)


def test_a_change_outside_of_functions_needs_a_fresh_import(tmp_path):
  (tmp_path / "clip.py").write_text(SOURCE)
  hot = {m.name.split(": ", 1)[1]: m.hot for m in mutants(tmp_path, "clip.py")}
  assert hot["print(value, 0) → pass"] and not hot["LIMIT = 2 → LIMIT = 3"]


def test_mutants_run_and_do_what_their_names_say(tmp_path):
  (tmp_path / "clip.py").write_text(SOURCE)
  (dropped,) = [
    m
    for m in mutants(tmp_path, "clip.py")
    if m.name.endswith("ValueError('above 2') → pass")
  ]
  names: dict = {}
  exec(dropped.code(), names)
  assert names["clip"](5.0) == 0.0  # 5 + min(1, −5), and no error.


def test_the_files_their_tests_and_the_equivalent_mutants_exist():
  listed = yaml.safe_load((HERE / "equivalent.yaml").read_text())
  names = [name for names in listed.values() for name in names]
  found = {m.name for path in FILES for m in mutants(PACKAGE, path)}
  assert set(names) <= found and len(set(names)) == len(names)
  for tests in FILES.values():
    for test in tests:
      assert ast.parse((ROOT / "tests" / f"{test}.py").read_text())
