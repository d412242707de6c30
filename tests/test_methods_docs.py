"""The page about methods says what the code does: tables, links, snippets, commands."""

import inspect
import re
import shlex
import sys
import textwrap
from pathlib import Path

import yaml

from decap import methods
from decap.cli import parse, train
from decap.methods import METHODS
from decap.runs import build_configs
from decap.sweep.plan import make_plan

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs" / "tools"))
import method_tables  # noqa: E402  # ty: ignore[unresolved-import]

PAGE = (ROOT / "docs" / "methods.md").read_text("utf-8")


def _table(first_header: str) -> list[list[str]]:
  """Rows of the table whose header starts so, cells stripped."""
  block = PAGE.split(f"\n| {first_header} |", 1)[1].split("\n\n")[0]
  lines = block.splitlines()[2:]
  return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def _blocks(language: str) -> list[str]:
  return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_first_table_and_the_sections_cover_all_methods():
  names = [re.findall(r"`([^`]+)`", row[0])[0] for row in _table("method")]
  assert names == list(METHODS)
  sections = re.findall(r"^## (\S+)$", PAGE, re.MULTILINE)
  for row in _table("method"):
    assert re.findall(r"\(#([^)]+)\)", row[0])[0] in sections


def test_the_options_table_is_what_the_tool_writes():
  assert method_tables.page(PAGE) == PAGE, "run python docs/tools/method_tables.py"
  # It finds options that the page does not list, and forgets those that are gone.
  row = "| `--agent.algorithm.barrier-t` | 8000.0 | `n-ipo` |\n"
  gone = PAGE.replace(row, "| `--agent.algorithm.gone` | 1 | `n-ipo` |\n")
  written = method_tables.page(gone)
  assert row.strip() in written and "algorithm.gone" not in written


def test_linked_files_hold_the_functions_that_the_page_names():
  links = re.findall(r"\[`?([^\]`]+)`?\]\((\.\./[^)#]+)\)", PAGE)
  assert len(links) > 10
  for name, target in links:
    path = (ROOT / "docs" / target).resolve()
    assert path.is_file(), target
    if path.suffix == ".py" and name.isidentifier():
      pattern = rf"^(def|class) {name}\b|^{name} = "
      assert re.search(pattern, path.read_text("utf-8"), re.MULTILINE), name
  for name in re.findall(r"`(_\w+)`", PAGE):
    assert inspect.isfunction(getattr(methods, name)), name


def test_snippets_are_lines_of_the_source():
  lines = [
    "\n".join(map(str.strip, path.read_text("utf-8").splitlines()))
    for path in (ROOT / "src").rglob("*.py")
  ]
  snippets = _blocks("python")
  assert len(snippets) == 5
  for snippet in snippets:
    flat = "\n".join(map(str.strip, textwrap.dedent(snippet).strip().splitlines()))
    assert any(flat in source for source in lines), snippet


def test_the_commands_of_the_page_are_accepted(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for folder in ("policies", "results"):
    Path(folder).symlink_to(ROOT / folder)
  waist, _ = _blocks("yaml")
  Path("waist.yaml").write_text(waist)
  Path("limits.yaml").write_text("joint_vel: {upper: 2.0}")
  commands = re.findall(r"^ *decap train (--.*)$", PAGE, re.MULTILINE)
  assert len(commands) > 12
  for command in commands:
    args = parse(["train", *shlex.split(command)])
    assert isinstance(args, train.TrainArgs)
    env, _ = build_configs(train.new_spec(args))
    # What the constraint manager asks for.
    for name, term in env.constraints.items():
      if isinstance(term.limits, dict):
        missing = f"{command}: its limits file needs one of {name}"
        assert set(term.limits) == set(env.groups), missing


def test_the_sweep_of_the_page_is_the_papers_ablation():
  _, sweep = _blocks("yaml")
  runs = make_plan(yaml.safe_load(sweep), ROOT).runs
  # Three κ, two further ρ and one without barrier, three seeds each.
  assert len(runs) == (3 + 2 + 1) * 3
