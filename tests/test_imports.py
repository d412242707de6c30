"""Who may import whom: CONTRIBUTING's table against the import graph."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "decap"
HEAVY = {
  *("matplotlib", "mjlab", "mujoco", "mujoco_warp", "onnx", "onnxruntime"),
  *("rsl_rl", "torch", "warp"),
}


def table() -> dict[str, tuple[set[str], set[str]]]:
  """Part → parts and heavy libraries that it may import."""
  rules: dict[str, tuple[set[str], set[str]]] = {}
  for line in (ROOT / "CONTRIBUTING.md").read_text("utf-8").splitlines():
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    if len(cells) == 4 and re.fullmatch(r"`\w+`", cells[0]):
      parts = (
        set(rules) if cells[2] == "all above" else set(re.findall(r"\w+", cells[2]))
      )
      rules[cells[0].strip("`")] = (parts, set(re.findall(r"\w+", cells[3])))
  return rules


def imports(file: Path) -> set[str]:
  """Modules that a file imports, wherever in it."""
  found = set()
  for node in ast.walk(ast.parse(file.read_text("utf-8"))):
    if isinstance(node, ast.Import):
      found |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom) and node.module:
      assert node.level == 0, f"{file} imports by a relative path"
      found.add(node.module)
      if node.module == "decap":
        names = {alias.name for alias in node.names} - {"__version__"}
        found |= {f"decap.{name}" for name in names}
  return found


def part_of(file: Path) -> str:
  part = file.relative_to(SOURCE).parts[0].removesuffix(".py")
  return "cli" if part == "__main__" else part


FILES = sorted(f for f in SOURCE.rglob("*.py") if f != SOURCE / "__init__.py")
PARTS = sorted({part_of(file) for file in FILES})


def test_the_table_names_every_part():
  assert sorted(table()) == PARTS


@pytest.mark.parametrize("part", PARTS)
def test_parts_import_what_they_may(part):
  ours, heavy = table()[part]
  used = set()
  for file in FILES:
    if part_of(file) != part:
      continue
    for module in imports(file):
      first, *rest = module.split(".")
      if first == "decap" and rest and rest[0] != part:
        assert rest[0] in ours, f"{file.relative_to(SOURCE)} imports {module}"
        used.add(rest[0])
      assert first not in HEAVY - heavy, f"{file.relative_to(SOURCE)} imports {module}"
  assert part == "cli" or used == ours, f"{part} need not be allowed {ours - used}"


def test_parts_do_not_go_in_circles():
  """In the order of the table nothing imports what comes later."""
  order = list(table())
  for part, (ours, _) in table().items():
    for other in ours:
      assert order.index(other) < order.index(part), (part, other)


def test_files_stay_readable():
  long = {f.name: n for f in FILES if (n := f.read_text("utf-8").count("\n")) > 400}
  assert not long


def test_no_two_classes_have_one_name():
  found: dict[str, list[str]] = {}
  for file in FILES:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
      if isinstance(node, ast.ClassDef):
        found.setdefault(node.name, []).append(file.name)
  assert not {name: files for name, files in found.items() if len(files) > 1}


def test_deployment_takes_only_motors_of_robots():
  motors = re.compile(r"decap\.robots(\.(\w+_)?motors)?")
  for file in (SOURCE / "deploy").rglob("*.py"):
    for module in imports(file):
      if module.startswith("decap.robots"):
        assert motors.fullmatch(module), f"{file.name} imports {module}"
  for file in (SOURCE / "robots").glob("*motors.py"):
    found = imports(file) - {"decap.robots.motors"}
    assert not {m.split(".")[0] for m in found} & (HEAVY | {"decap"}), file
