import json
import shutil
from copy import deepcopy

import pytest

from decap.deploy.bundle import load_bundle
from decap.deploy.simulation import SimCfg
from decap.errors import UserError
from decap.evaluation import robot_tables, robustness
from tests.deploy.robots import POLICY

SIM2SIM = POLICY.parents[1] / "results" / "sim2sim"

WALK = {
  "seconds": 12.0,
  "distance_m": 5.0,
  "followed": 0.9,
  "velocity_error": 0.1,
  "fell": False,
  "intervened": False,
  "stop_reason": "",
  "joints": {"upper": dict.fromkeys(robot_tables.JOINT_METRICS, 1.0)},
  "gyro_rms": {"head": 0.3, "torso": 0.2, "wrist": 0.4},
  "over_time": {"torso": [0.1, 0.2] * 50, "wrist_xy": [0.3, 0.1] * 50},
}


def results(name: str = "calm", **change) -> dict:
  walks = [
    {
      "table": case.table,
      "terrain": case.terrain,
      "payload_kg": case.payload_kg,
      "repeat": repeat,
      **deepcopy(WALK),
      **change,
    }
    for case in robot_tables.cases()
    for repeat in range(3)
  ]
  return {
    "format": robot_tables.FORMAT,
    "policy": {"name": name, "onnx_sha256": "0"},
    "protocol": robot_tables.protocol(3, SimCfg()),
    "walks": walks,
  }


def test_cases_are_the_papers_terrains_with_and_without_payload():
  cases = robot_tables.cases()
  for payload in (0.0, 1.2):
    terrains = [
      c.terrain for c in cases if (c.table, c.payload_kg) == ("terrain", payload)
    ]
    assert set(robot_tables.PAPER_TERRAINS) < set(terrains)


def test_tables_show_means_falls_and_what_was_followed():
  calm, wild = results(), results("wild", fell=True)
  for repeat, walk in enumerate(robot_tables.chosen(calm, "identical", "flat", 0.0)):
    walk["joints"]["upper"]["action_rate"] = 1.0 + repeat  # 1, 2, 3.
  text = robot_tables.tables([calm, wild])
  assert "| calm | upper | 2.00 ± 1.00 | 1.00 ± 0.00" in text
  assert "| 0 of 3 | 0 of 3 |" in text and "| 3 of 3 | 0 of 3 |" in text
  assert "0.30 / 0.20 / 0.40 |" in text and "0.30 / 0.20 / 0.40 (3 fell)" in text
  assert "0.90 ± 0.00" in text


def test_files_come_back_as_written_and_others_are_refused(tmp_path):
  path = robot_tables.save(results(), tmp_path)
  assert robot_tables.load(path) == results()
  (tmp_path / "x.json").write_text(json.dumps({"format": "other"}))
  with pytest.raises(UserError, match="no results"):
    robot_tables.load(tmp_path / "x.json")


@pytest.mark.parametrize("suffix", ["", robustness.SUFFIX])
def test_results_of_this_project_are_of_its_policies_and_written_alike(
  tmp_path, suffix
):
  for folder in sorted(POLICY.parent.glob("g1-flat-*")):
    bundle, path = load_bundle(folder), SIM2SIM / f"{folder.name}{suffix}.json"
    found = robot_tables.stored(bundle, SIM2SIM, suffix)
    assert found and not robot_tables.stored(bundle, SIM2SIM, suffix, protocol={})
    copy = robot_tables.save(found, tmp_path, suffix)
    assert copy.name == path.name and copy.read_bytes() == path.read_bytes()


def test_the_page_of_tables_is_of_all_results_beside_it():
  suffix = f"{robustness.SUFFIX}.json"
  names = sorted(p.name.removesuffix(suffix) for p in SIM2SIM.glob(f"*{suffix}"))
  walks, sweeps = (
    [robot_tables.load(SIM2SIM / f"{name}{end}") for name in names]
    for end in (".json", suffix)
  )
  text, margins = robot_tables.tables(walks), robustness.margin_table(sweeps)
  page = "\n".join([text, "## Margins", "", *margins, ""])
  assert (SIM2SIM / "tables.md").read_text("utf-8") == page


def test_bundles_of_two_runs_have_a_file_each(tmp_path):
  for run in ("a", "b"):
    shutil.copytree(POLICY, tmp_path / run / "policy")
    (tmp_path / run / "params").mkdir()
    policy = robot_tables.describe(load_bundle(tmp_path / run / "policy"))
    robot_tables.save({**results(), "policy": policy}, tmp_path)
  files = [robot_tables.load(path) for path in sorted(tmp_path.glob("*.json"))]
  assert [file["policy"]["name"] for file in files] == ["a-policy", "b-policy"]


def test_margin_reaches_as_far_as_every_walk_survives():
  def rows(*survived: int) -> list[dict]:
    values = robustness.AXES["ground_friction"].tried
    return [{"value": v, "survived": s} for v, s in zip(values, survived, strict=True)]

  def margin(*survived: int):
    return robustness.margin("ground_friction", rows(*survived), 3)

  # 0.15, 0.3, 0.45, 0.6 (nominal), 0.9.
  assert margin(3, 2, 3, 3, 3) == [0.45, 0.9]
  assert margin(3, 3, 3, 3, 0) == [0.15, 0.6]
  assert margin(3, 3, 3, 2, 3) is None


def test_margin_table_marks_the_ends_of_what_was_tried():
  sweep = {
    "policy": {"name": "calm"},
    "axes": {"ground_friction": [], "noise": []},
    "margins": {"ground_friction": [0.3, 0.9], "noise": None},
  }
  assert "| calm | 0.3 … ≥ 0.9 | none |" in robustness.margin_table([sweep])


def test_figures_have_a_line_per_policy():
  pytest.importorskip("matplotlib")
  from decap.evaluation import robot_figures

  early = results("early", over_time={"torso": [], "wrist_xy": []})  # Fell at once.
  drawn = robot_figures.figures([results(), results("wild", fell=True), early])
  assert set(drawn) == {"torso", "wrist", "payload"}
  lines = drawn["torso"].axes[0].get_lines()
  assert [line.get_label() for line in lines[:2]] == ["calm", "wild"] or len(lines) >= 2
  rows = [{"value": 0.0, "survived": 3, "followed": 0.5}]
  rows.append({"value": 1.0, "survived": 1, "followed": 0.4})
  sweep = {"policy": {"name": "calm"}, "repeats": 3, "axes": {"noise": rows}}
  figure = robot_figures.survival([sweep])
  assert list(figure.axes[0].get_lines()[0].get_ydata()) == [1.0, 1 / 3]
