"""What we tell users to run next."""

import os
import sys

import pytest

from decap.cli.terminal import program


@pytest.mark.parametrize("found", [True, False])
def test_the_program_is_named_as_it_can_be_started(tmp_path, monkeypatch, found):
  script = tmp_path / "decap"
  script.touch(mode=0o755)
  monkeypatch.setenv("PATH", str(tmp_path) if found else os.devnull)
  monkeypatch.setattr(sys, "argv", [str(script)])
  assert program() == ("decap" if found else str(script))
  # From Python, tests and notebooks; and a bare name that is no file here.
  for name in ("-c", "pytest", "decap"):
    monkeypatch.setattr(sys, "argv", [name])
    assert program() == "decap"
