"""Commands in README and documentation are commands that the program takes."""

import re
import shlex
from pathlib import Path

import pytest

from decap.cli import SUBCOMMANDS, parse
from decap.cli.train import TrainArgs
from decap.runs import RunSpec, build_configs
from decap.tasks import is_own

ROOT = Path(__file__).parents[1]
OLD = re.compile(r"at commit [0-9a-f]{7}\b|commands as of then")
PAGES = [
  ROOT / "README.md",
  ROOT / "CONTRIBUTING.md",
  *sorted((ROOT / "docs").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_command_lines_are_accepted(page):
  text = page.read_text("utf-8").replace("\\\n", " ")
  # What was run at another commit is history; that commit takes it.
  sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
  text = "".join(s for s in sections if not OLD.search(s.splitlines()[0]))
  for name in re.findall(r"`(?:\.venv/bin/)?decap ([^`\s]+)", text):
    assert name in SUBCOMMANDS, name
  for line in re.findall(r"^ *decap (.*)$", text, re.MULTILINE):
    options = parse(shlex.split(line, comments=True))
    if isinstance(options, TrainArgs) and options.task and not is_own(options.task):
      # The configs take all overrides; limits files are the reader's own.
      method, overrides = options.method or "decap", options.overrides
      spec = RunSpec(options.task, method, blind=options.blind, overrides=overrides)
      build_configs(spec)
