"""The command line: fast answers, one sentence per mistake, nothing half-written."""

import errno
import io
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from decap.cli import checks, main
from decap.cli.list_ import ListArgs
from decap.errors import UserError, box_sentence
from decap.methods import METHODS
from decap.options.reading import split_overrides
from decap.runs import read_limits


def _fails(capsys, *argv: str) -> str:
  """Run a command that must fail; returns its one sentence."""
  assert main(argv) == 2
  captured = capsys.readouterr()
  assert captured.out == ""
  lines = captured.err.splitlines()
  assert len(lines) == 1 and lines[0].startswith("decap: ") and lines[0].endswith(".")
  return lines[0]


def test_an_output_folder_that_takes_no_files_is_refused(capsys, tmp_path):
  file = tmp_path / "file"
  file.touch()
  argv = ["train", "--task", "g1-flat", "--log-root", str(file / "runs")]
  assert "Cannot write to the output folder" in _fails(capsys, *argv)
  # A file system that is read-only even for root.
  argv = ["train", "--task", "g1-flat", "--log-root", "/proc/decap"]
  assert "Cannot write to the output folder /proc/decap" in _fails(capsys, *argv)
  assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_disk_that_fails_gets_one_sentence(capsys, monkeypatch):
  def full(self):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  monkeypatch.setattr(ListArgs, "run", full)
  assert _fails(capsys, "list") == "decap: No space left on device."


def test_a_screen_without_unicode_ends_nothing(monkeypatch):
  screen = io.TextIOWrapper(io.BytesIO(), "ascii")
  monkeypatch.setattr(sys, "stdout", screen)
  monkeypatch.setattr(ListArgs, "run", lambda _: print("Loading …", flush=True))
  assert main(["list"]) == 0
  assert screen.buffer.getvalue() == b"Loading ?\n"


def test_a_narrow_terminal_breaks_no_option(capsys, monkeypatch):
  monkeypatch.setenv("COLUMNS", "30")
  monkeypatch.setattr(sys, "argv", [f"/home/{'user' * 20}/decap"])
  override = "--agent.algorithm.gradient-penalty-coef"
  assert main(["train", "--task", "g1-flat", "--device", "cpu", override, "3"]) == 2
  sentence = capsys.readouterr().err
  assert f"Unrecognized options: {override}" in sentence and "user" not in sentence
  assert os.environ["COLUMNS"] == "30"


def test_a_full_gpu_gets_one_sentence():
  for problem in ("CUDA out of memory.", "Failed to allocate 8 bytes on 'cuda:0'"):
    with pytest.raises(UserError, match="cuda:0 is out of memory: fewer environments"):
      with checks.explained_memory("cuda:0"):
        raise RuntimeError(problem)
  with pytest.raises(RuntimeError, match="shapes differ"):
    with checks.explained_memory("cuda:0"):
      raise RuntimeError("shapes differ")


POLICY = str(Path(__file__).parents[2] / "policies" / "g1-flat-cat")


@pytest.mark.parametrize(
  "renderer, argv",
  [
    ("wgpu", ["play", POLICY, "--video", "x.mp4"]),
    ("disable", ["play", POLICY, "--video", "x.mp4"]),
    ("glfw", ["play", POLICY, "--video", "x.mp4"]),
    # Nothing is drawn, but MuJoCo does not load either.
    ("wgpu", ["train", "--task", "g1-flat"]),
    ("wgpu", ["evaluate", POLICY]),
    ("wgpu", ["profile", POLICY]),
  ],
)
def test_a_renderer_that_does_not_start_gets_one_sentence(
  capsys, renderer, argv, tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setenv("MUJOCO_GL", renderer)
  for display in ("DISPLAY", "WAYLAND_DISPLAY"):
    monkeypatch.delenv(display, raising=False)
  assert f"MUJOCO_GL={renderer}; egl needs no display" in _fails(capsys, *argv)
  assert not list(tmp_path.iterdir())


QUICK = [
  ["--help"],
  ["--version"],
  ["list"],
  ["train", "--help"],
  ["play", "--help"],
  ["train", "--task", "g2"],
  ["train", "--task", "g1-flat", "--method", "x"],
  ["train", "--task", "g1-flat", "--num-envs", "0"],
  ["train", "--task", "g1-flat", "--device", "cuda:99"],
  ["train", "--task", "g1-flat", "--log-root", "/proc/decap"],
]


def test_quick_answers_import_nothing_heavy_and_take_less_than_a_second():
  script = textwrap.dedent("""
    import json, sys, time
    from decap.cli import main
    try:
      main(json.loads(sys.argv[1]))
    except SystemExit:
      pass
    heavy = {"torch", "mjlab", "mujoco", "warp", "rich"} & set(sys.modules)
    print("heavy", sorted(heavy), time.process_time())
  """)
  for argv in QUICK:
    result = subprocess.run(
      [sys.executable, "-c", script, json.dumps(argv)],
      capture_output=True,
      text=True,
      check=True,
    )
    _, heavy, seconds = result.stdout.splitlines()[-1].rsplit(maxsplit=2)
    assert heavy == "[]", argv
    # Half of it is Python's own start.
    assert float(seconds) < (0.3 if argv[0] in ("--help", "--version", "list") else 1.0)


def test_list_names_tasks_methods_and_backends(capsys):
  assert main(["list"]) == 0
  out = capsys.readouterr().out
  for name in (*METHODS, "g1-flat", "g1-rough", "g1-23dof-flat", "native", "warp"):
    assert f"  {name} " in out


def test_help_shows_every_command(capsys):
  assert main([]) == 0
  out = capsys.readouterr().out
  for name in ("train", "play", "export", "list", "demo"):
    assert f"  {name} " in out


def test_overrides_are_told_from_options():
  argv = ["--task", "g1-flat", "--env.x.y", "-3", "--seed", "2", "--agent.a=1", "--b"]
  plain, overrides = split_overrides(argv)
  assert plain == ["--task", "g1-flat", "--seed", "2", "--b"]
  assert overrides == ["--env.x.y", "-3", "--agent.a=1"]


def test_a_limits_file_is_read_and_checked(tmp_path):
  path = tmp_path / "limits.yaml"
  path.write_text("joint_vel: {upper: 2.0}\ntilt: 0.5\n")
  assert read_limits(path) == {"joint_vel": {"upper": 2.0}, "tilt": 0.5}
  path.write_text(json.dumps({"limits": {"joint_vel": {"lower": 9}}}))
  assert read_limits(path) == {"joint_vel": {"lower": 9}}
  for text, value in (("-1", "-1"), (".nan", "nan"), (".inf", "inf"), ("yes", "True")):
    path.write_text(f"joint_vel: {{upper: {text}}}")
    message = f"'joint_vel/upper' must be finite and above 0, not {value}"
    with pytest.raises(UserError, match=message):
      read_limits(path)
  path.write_text("- 1\n- 2")
  with pytest.raises(UserError, match="must map constraints to limits"):
    read_limits(path)
  path.write_text("a: [1")
  with pytest.raises(UserError, match="is not YAML"):
    read_limits(path)


def test_a_box_of_tyro_becomes_one_sentence():
  box = (
    "╭─ Value error ─────────╮\n│ Error parsing --env.x: could not convert │\n"
    "│ string to float: 'y'  │\n│ ───────── │\n│ Argument helptext: │\n│ --env.x FLOAT │\n"
    "│ For full helptext, see decap --help │\n╰────────╯\n"
  )
  expected = "Error parsing --env.x: could not convert string to float: 'y'."
  assert box_sentence(box) == expected


def test_a_closed_pipe_is_no_error():
  command = f"{sys.executable} -m decap list | head -n 1"
  result = subprocess.run(
    command, shell=True, capture_output=True, text=True, env=os.environ
  )
  assert result.stdout == "Tasks:\n" and "Traceback" not in result.stderr
