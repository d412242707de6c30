"""Commands in README and documentation are commands that the program takes."""

import re
import shlex
from pathlib import Path

import pytest

from decap.cli import COMMANDS, parse
from decap.runs import RunSpec, build_configs

ROOT = Path(__file__).parents[1]
PAGES = [
  ROOT / "README.md",
  ROOT / "CONTRIBUTING.md",
  *sorted((ROOT / "docs").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_command_lines_are_accepted(page):
  text = page.read_text("utf-8").replace("\\\n", " ")
  for name in re.findall(r"`(?:\.venv/bin/)?decap ([^`\s]+)", text):
    assert name in COMMANDS, name
  for line in re.findall(r"^ *decap (.*)$", text, re.MULTILINE):
    _, options = parse(shlex.split(line, comments=True))
    if line.startswith("train") and options.task:
      # The configs take all overrides; limits files are the reader's own.
      method, aid = options.method or "decap", options.feasibility
      overrides = tuple(options.overrides)
      build_configs(RunSpec(options.task, method, feasibility=aid, overrides=overrides))
