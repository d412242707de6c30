"""Where policies come from, and when today's code is another."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from decap import provenance


def test_what_is_running_now(monkeypatch):
  monkeypatch.setattr(sys, "argv", ["/x/decap", "train", "--run-name", "a b"])
  made = provenance.made_by()
  assert made["command"] == "decap train --run-name 'a b'"
  assert made["versions"]["torch"] == version("torch")
  assert set(made) == {"command", "commit", "versions", "date"}


def test_several_processes_remember_the_command_of_all(monkeypatch):
  monkeypatch.setattr(sys, "argv", ["decap", "train"])
  command = "decap train --gpus 2 --task g1-flat"
  monkeypatch.setenv(provenance.COMMAND_VARIABLE, command)
  assert provenance.made_by()["command"] == command


def test_a_run_that_goes_on_keeps_its_first_command(tmp_path, monkeypatch):
  (tmp_path / "params").mkdir()
  for arguments in (["train", "--seed", "2"], ["train", "--resume", "a"], ["train"]):
    monkeypatch.setattr(sys, "argv", ["decap", *arguments])
    made = provenance.made_by(tmp_path)
    provenance.remember(tmp_path, made, 0)
  assert made["command"] == "decap train --seed 2"
  assert made["resumed_by"] == "decap train"
  for damaged in ("", "[]\n", "not json\n"):
    (tmp_path / provenance.HISTORY_FILE).write_text(damaged)
    assert provenance.made_by(tmp_path)["command"] == "decap train"


def test_the_commit_is_that_of_the_code(tmp_path, monkeypatch):
  def git(*arguments):
    name = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", "-C", str(tmp_path), *name, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout

  file = tmp_path / "provenance.py"
  file.write_text("1")
  monkeypatch.setattr(provenance, "__file__", str(file))
  assert provenance.commit() is None  # No repository.
  git("init", "-q")
  (tmp_path / "other").write_text("1")
  git("add", "other")
  git("commit", "-qm", "other")
  assert provenance.commit() is None  # Somebody else's.
  git("add", "provenance.py")
  git("commit", "-qm", "ours")
  head = git("rev-parse", "HEAD").strip()
  assert provenance.commit() == head
  file.write_text("2")
  assert provenance.commit() == f"{head}+"


def test_every_start_of_a_run_is_remembered(tmp_path):
  (tmp_path / "params").mkdir()
  for iteration in (0, 30):
    provenance.remember(tmp_path, {"command": "decap train"}, iteration)
  lines = (tmp_path / provenance.HISTORY_FILE).read_text().splitlines()
  assert [json.loads(line)["iteration"] for line in lines] == [0, 30]


@pytest.mark.parametrize(
  ("then", "expected"),
  [
    ({}, []),
    ({"versions": {"torch": "1.0", "unknown": "7"}}, ["torch 1.0 (now {torch})"]),
    ({"made_by": {"commit": "a" * 40}}, ["commit aaaaaaaaa (now bbbbbbbbb+)"]),
    ({"made_by": {"commit": "b" * 40 + "+"}}, []),
    ({"made_by": {"commit": None, "versions": {"torch": "{torch}"}}}, []),
  ],
)
def test_differences(then, expected, monkeypatch):
  monkeypatch.setattr(provenance, "commit", lambda: "b" * 40 + "+")
  torch = version("torch")
  then = json.loads(json.dumps(then).replace("{torch}", torch))
  assert provenance.differences(then) == [e.format(torch=torch) for e in expected]


def test_this_code_knows_its_commit():
  root = Path(provenance.__file__).parents[2]
  if not (root / ".git").exists():
    pytest.skip("installed without its repository")
  assert len((provenance.commit() or "").removesuffix("+")) == 40
