"""The page about methods says what the code does: tables, links, snippets, commands."""

import dataclasses
import inspect
import re
import shlex
import textwrap
from pathlib import Path

import pytest
import yaml

from decap import methods
from decap.cli import parse, train
from decap.errors import UserError
from decap.methods import METHODS
from decap.options.overrides import check_options
from decap.rl.config import PpoCfg
from decap.runs import RunSpec, build_configs
from decap.sweep.plan import make_plan

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "methods.md").read_text("utf-8")


def _table(first_header: str) -> list[list[str]]:
  """Rows of the table whose header starts so, cells stripped."""
  block = PAGE.split(f"\n| {first_header} |", 1)[1].split("\n\n")[0]
  lines = block.splitlines()[2:]
  return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def _blocks(language: str) -> list[str]:
  return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def configs() -> dict:
  """Each method's configs."""
  return {name: build_configs(RunSpec("g1-flat", name)) for name in METHODS}


def _value(configs, option: str):
  """Value of the field that an option sets; KeyError where there is none."""
  env, agent = configs
  value = {"env": env, "agent": agent}
  for part in option.replace("-", "_").split("."):
    value = value[part] if isinstance(value, dict) else vars(value)[part]
  return value


def _takes(method: str, configs, option: str) -> bool:
  try:
    check_options(METHODS[method], [f"--{option}", "1"])
    _value(configs, option)
  except (UserError, KeyError, TypeError):
    return False
  return True


def test_the_first_table_and_the_sections_cover_all_methods():
  names = [re.findall(r"`([^`]+)`", row[0])[0] for row in _table("method")]
  assert names == list(METHODS)
  sections = re.findall(r"^## (\S+)$", PAGE, re.MULTILINE)
  for row in _table("method"):
    assert re.findall(r"\(#([^)]+)\)", row[0])[0] in sections


def test_the_options_table_lists_the_methods_that_take_each(configs):
  for cell, _, taken_by in _table("option"):
    option = cell.strip("`").removeprefix("--")
    expected = [name for name in METHODS if _takes(name, configs[name], option)]
    assert re.findall(r"`([^`]+)`", taken_by) == expected, option


def test_the_options_table_gives_the_defaults(configs):
  for cell, default, taken_by in _table("option"):
    option = cell.strip("`").removeprefix("--")
    common, *exceptions = default.split("; ")
    others = dict(re.fullmatch("`(.+)`: (.+)", text).groups() for text in exceptions)
    for name in re.findall(r"`([^`]+)`", taken_by):
      expected = others.get(name, common)
      assert str(_value(configs[name], option)) == expected, (name, option)


def test_the_options_table_is_complete(configs):
  listed = {row[0].strip("`").removeprefix("--") for row in _table("option")}
  shared = {field.name for field in dataclasses.fields(PpoCfg)} - {"reward_rule"}
  for method, (env, agent) in configs.items():
    aid = agent.algorithm.feasibility
    fields = {
      "env.termination": vars(env.termination),
      "agent.algorithm.feasibility": vars(aid) if aid else {},
      "agent.algorithm": vars(agent.algorithm).keys() - shared,
    }
    options = {
      f"{prefix}.{name}".replace("_", "-")
      for prefix, names in fields.items()
      for name in names
    }
    options |= {f"env.groups.{group}.p-max" for group in env.groups}
    taken = {option for option in options if _takes(method, (env, agent), option)}
    assert taken <= listed


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
  waist, _ = _blocks("yaml")
  Path("waist.yaml").write_text(waist)
  Path("limits.yaml").write_text("joint_vel: {upper: 2.0}")
  commands = re.findall(r"^ *decap train (--.*)$", PAGE, re.MULTILINE)
  assert len(commands) > 15
  for command in commands:
    args = parse(["train", *shlex.split(command)])
    assert isinstance(args, train.TrainArgs)
    env, _ = build_configs(train.new_spec(args))
    # What the constraint manager asks for.
    for term in env.constraints.values():
      if isinstance(term.limits, dict):
        assert set(term.limits) == set(env.groups), command


def test_the_sweep_of_the_page_is_the_papers_ablation():
  _, sweep = _blocks("yaml")
  runs = make_plan(yaml.safe_load(sweep)).runs
  # Three κ, two further ρ and one without barrier, three seeds each.
  assert len(runs) == (3 + 2 + 1) * 3
