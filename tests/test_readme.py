"""What the README and the first pages print is what there is."""

import csv
import json
import re
import sys
from pathlib import Path
from statistics import fmean

from decap.cli import main
from decap.deploy.bundle import load_bundle

README = Path(__file__).parents[1] / "README.md"
DOCS = README.parent / "docs"
PAPER = README.parent / "results" / "paper" / "g1-flat"


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
    "DeCap, calm torso and arms": "decap-calm-arms",
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


def test_the_sentences_about_seeds_are_what_was_measured():
  seeds = [_paper(f"decap-{seed}") for seed in range(1, 6)]
  arms, legs, torque = (
    [100 * m["violations"][group][name]["any_joint"]["mean"] for m in seeds]
    for group, name in (
      ("upper", "joint_acc"),
      ("lower", "joint_acc"),
      ("lower", "joint_torque"),
    )
  )
  text = " ".join(_text().split())
  assert f"torque is above in {min(torque):.1f} to {max(torque):.1f} % of" in text
  assert f"20 rad/s² in {min(arms):.0f} to {max(arms):.0f} % of" in text
  assert f"600 rad/s² in {min(legs):.1f} to {max(legs):.1f} %" in text

  rewards, calm = (
    [_paper(f"{name}-{seed}") for seed in (1, 2, 3)]
    for name in ("smoothness-rewards", "decap-calm-torso")
  )
  ratios = [_torso(a) / _torso(b) for a in rewards for b in calm]
  assert f"({min(ratios):.1f} to {max(ratios):.1f} over three seeds)" in text

  page = (DOCS / "paper.md").read_text("utf-8")
  sways = [_torso(m) for m in seeds]
  assert f"({min(sways):.1f} to {max(sways):.1f} against" in page
  stops = [100 * m["commands"]["stop"]["tracking"]["followed"] for m in seeds]
  assert f"in turns: {min(stops):.0f} to {max(stops):.0f} %" in page


def test_what_eq_4_whole_costs_is_what_was_measured():
  rows = ("middle", "p-max-half", "rho-0.9")
  names = [f"{row}-{seed}" for row in rows for seed in (1, 2, 3)]
  falls = []
  for name in names:
    with open(PAPER / f"{name}.csv", encoding="utf-8") as file:
      curve = [(float(r["samples"]), float(r["upright"])) for r in csv.DictReader(file)]
    last = [upright for samples, upright in curve if samples > 0.95 * curve[-1][0]]
    falls.append(100 * (1 - fmean(last)))
  steps = [_paper(name)["commands"]["zero"]["gait"]["lift_offs"] for name in names]
  assert sum(rate > 0.1 for rate in steps) == 8  # lift-offs per foot and second
  text = " ".join((DOCS / "methods.md").read_text("utf-8").split())
  assert "eight of these nine runs step on the spot" in text
  assert f"all fall in {min(falls):.0f} to {max(falls):.0f} of 100 times 20 s" in text


def test_walks_of_released_policies_are_those_of_the_results():
  results = (README.parent / "results" / "sim2sim" / "tables.md").read_text("utf-8")
  walks: dict = {}
  for line in re.findall(r"^\| (.* of 3 \| .* of 3) \|$", results, re.MULTILINE):
    cells = line.split(" | ")
    if len(cells) == 7:  # Policy, ground, payload, distance, followed, falls, stops.
      fell, stopped = (int(cell.split()[0]) for cell in cells[5:])
      share = 100 * float(cells[4].split()[0])
      walks.setdefault((cells[0], cells[1]), []).append((share, fell, stopped))
  text = (DOCS / "sim2sim.md").read_text("utf-8")
  grounds = "flat carpet grass gravel slope inverse-slope transitions".split()
  for policy in {policy for policy, _ in walks}:
    expected = []
    for ground in grounds:
      pair = walks[policy, ground]
      cell = " / ".join(f"{share:.0f}" for share, _, _ in pair)
      for index, word in ((1, "fell"), (2, "stopped")):
        count = sum(walk[index] for walk in pair)
        cell += f" ({count} {word})" if count else ""
      expected.append(cell)
    assert f"| `{policy}` | {' | '.join(expected)} |" in text, policy


def _paper(name: str) -> dict:
  return json.loads((PAPER / f"{name}.json").read_text())["metrics"]


def _torso(metrics: dict) -> float:
  """How fast it turns at 0.5 m/s, rad/s."""
  return metrics["commands"]["forward 0.5"]["angular_velocity"]["torso"]["norm"]
