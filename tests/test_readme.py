"""What the README and the first pages print is what there is."""

import json
import re
import sys
from pathlib import Path

from decap.cli import main
from decap.deploy.bundle import load_bundle

README = Path(__file__).parents[1] / "README.md"
DOCS = README.parent / "docs"


def test_the_example_of_an_own_task_trains_a_constrained_go1(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  page = DOCS / "own-task.md"
  (example,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
  monkeypatch.setattr(sys, "path", list(sys.path))
  Path("my_go1.py").write_text(example)
  small = ["--num-envs", "16", "--iterations", "2", "--device", "cpu"]
  assert main(["train", "--task", "my_go1:walk", *small]) == 0
  (run,) = Path("runs/my_go1.walk").iterdir()
  assert main(["export", str(run), "--output", "my_policy"]) == 0
  info = load_bundle("my_policy").info
  assert info["task"] == "my_go1:walk" and info["iteration"] == 2
  assert list(info["constraints"]["limits"]) == ["action_rate", "joint_vel", "tilt"]


def test_every_command_is_named():
  from decap.cli import SUBCOMMANDS

  commands = (DOCS / "commands.md").read_text("utf-8")
  for name in SUBCOMMANDS:
    assert f"decap {name}" in commands or f"make {name}" in _text(), name


def test_the_readme_fits_on_two_screens():
  assert len(_text().splitlines()) <= 110


def test_the_table_of_the_readme_is_what_was_measured():
  rows = re.findall(r"^\| ([^|]*?) \| (\d+ \| .*) \|$", _text(), re.M)
  names = {
    "DeCap": "decap",
    "DeCap, calm torso": "decap-calm-torso",
    "CaT": "cat",
    "smoothness rewards": "smoothness-rewards",
    "whole-body RL": "whole-body-rl",
  }
  assert [label for label, _ in rows] == list(names)
  for label, cells in rows:
    path = README.parent / "policies" / f"g1-flat-{names[label]}" / "metrics.json"
    metrics = json.loads(path.read_text())["metrics"]

    shares = [
      100 * told["tracking"]["followed_yaw" if name.startswith("turn") else "followed"]
      for name, told in metrics["commands"].items()
      if name not in ("zero", "stop")
    ]
    assert len(shares) == 12
    arms, legs = (metrics["smoothness"][group] for group in ("upper", "lower"))
    turns = metrics["commands"]["forward 0.5"]["angular_velocity"]
    above = metrics["violations"]
    expected = [
      f"{100 * metrics['tracking']['followed']['mean']:.0f}",
      f"{min(shares):.0f} / {max(shares):.0f}",
      f"{arms['joint_acc']['mean']:.1f}",
      f"{legs['joint_acc']['mean']:.1f}",
      f"{turns['torso']['norm']:.2f}",
      f"{turns['right_wrist']['norm']:.2f}",
      f"{100 * above['upper']['joint_acc']['any_joint']['mean']:.1f}",
      f"{100 * above['lower']['joint_torque']['any_joint']['mean']:.1f}",
    ]
    assert cells.split(" | ") == expected, label


def _text() -> str:
  return README.read_text("utf-8")
