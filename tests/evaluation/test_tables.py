"""Tables: arithmetic over seeds, marks, formats and what is refused."""

import copy
import csv
import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from decap.cli.terminal import print_tables
from decap.errors import UserError
from decap.evaluation import table_formats as formats
from decap.evaluation.columns import Column, share
from decap.evaluation.protocol import Protocol
from decap.evaluation.results import find_result, keep_larger, load_result
from decap.evaluation.tables import (
  STANDING,
  command_tables,
  group_results,
  make_tables,
)
from decap.evaluation.verdict import remarks, worst_violation
from tests.evaluation.synthetic import (
  make_trajectory,
  metrics_of_trajectory,
  result,
  tables_of,
)


def test_one_rollout_has_no_deviation():
  trajectory = make_trajectory(rollouts=1)
  smoothness = metrics_of_trajectory(trajectory)["smoothness"]["upper"]["action_rate"]
  assert smoothness["std"] is None and smoothness["rollouts"] == [smoothness["mean"]]


def test_what_is_told_throughout_is_no_random_command(template):
  fixed = copy.deepcopy(template)
  fixed.protocol = {**fixed.protocol, "commands": "fixed", "command": [0.5, 0.0, 0.0]}
  tables = {t.title: t for t in tables_of(fixed)}
  assert [row.section for row in tables["Gait"].rows] == ["0.5 m/s", "1.0 m/s", "fixed"]
  titles = [c.title for c in tables["Followed forward and backward"].columns]
  assert titles[-1] == "Fixed"
  titles = [
    c.title for c in tables["Followed sideways, turning and mixed; standing"].columns
  ]
  assert "Fixed yaw" in titles and "Random yaw" not in titles


def test_labels_break_no_table(template):
  label = "a|b [bold]<i>"
  cat = result(template, "cat", 2.0)
  methods = group_results([cat, template], [label, None])
  table = make_tables(methods, label)[0]
  rows = formats.to_markdown(table).splitlines()[2:]
  assert len({line.replace("\\|", "").count("|") for line in rows}) == 1
  console = Console(width=300, file=io.StringIO(), record=True)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr("rich.console.Console", lambda: console)
    print_tables([table])
  text = console.export_text()
  assert f" {label} " in text and f"against {label}" in text


def test_seeds_are_averaged_and_methods_ordered_as_in_the_paper(template):
  smoothness = tables_of(
    result(template, "decap", 0.6, seed=1),
    result(template, "cat", 1.6),
    result(template, "decap", 0.8, seed=2),
  )[0]
  upper = [row for row in smoothness.rows if row.section == "upper"]
  assert [row.label for row in upper] == ["CaT", "DeCap"]
  # One seed: deviation over rollouts. Two: (0.8 - 0.6) / √2.
  assert (upper[0].cells[0].mean, upper[0].cells[0].std) == (1.6, 0.25)
  assert upper[1].cells[0].mean == pytest.approx(0.7)
  assert upper[1].cells[0].std == pytest.approx(0.2 / 2**0.5)
  assert upper[1].cells[0].best and not upper[0].cells[0].best
  # 95 %: s · t(0.975, 1) / √2, with t = 12.706; rollouts say nothing of other seeds.
  assert upper[1].cells[0].interval == pytest.approx(0.1 * 12.706, rel=1e-4)
  assert upper[0].cells[0].interval is None
  assert "| **0.70 ±0.14 [±1.27]** |" in formats.to_markdown(smoothness)
  assert r"{\scriptsize[$\pm1.27$]}" in formats.to_latex(smoothness)
  assert '<span class="std">[±1.27]</span>' in formats.to_html(smoothness)


def test_ties_at_the_shown_precision_are_both_best(template):
  smoothness = tables_of(
    result(template, "cat", 0.651), result(template, "decap", 0.649)
  )[0]
  upper = [row for row in smoothness.rows if row.section == "upper"]
  assert all(row.cells[0].best for row in upper)


def test_who_does_more_than_told_is_no_better(template):
  results = [result(template, m, 1.0) for m in ("cat", "lcp", "decap")]
  for r, done in zip(results, (0.92, 1.12, 0.85), strict=True):
    r.metrics["tracking"]["followed"] = {"mean": done, "std": 0.0}
  task = tables_of(*results)[1]
  (index,) = [i for i, c in enumerate(task.columns) if c.title == "Followed"]
  best = {row.label: row.cells[index].best for row in task.rows}
  assert best == {"LCP": False, "CaT": True, "DeCap": False, STANDING: False}
  assert "Followed (%) → 100" in formats.to_markdown(task)


def test_ratios_are_against_the_baseline(template):
  smoothness = tables_of(
    result(template, "smoothness-rewards", 2.0),
    result(template, "decap", 0.5),
    baseline="smoothness-rewards",
  )[0]
  assert smoothness.rows[0].cells[0].ratio is None
  assert smoothness.rows[1].cells[0].ratio == 0.25
  assert "0.50 ±0.25 (0.25×)" in formats.to_markdown(smoothness)


@pytest.mark.parametrize(("hopping", "ratio"), [(0.1, None), (-0.4, 0.5)])
def test_numbers_of_different_signs_have_no_ratio(template, hopping, ratio):
  rewards, decap = (result(template, m, 1.0) for m in ("smoothness-rewards", "decap"))
  for evaluated, mean in ((rewards, -0.8), (decap, hopping)):
    evaluated.metrics["gait"]["correlation"] = {"mean": mean, "std": 0.0}
  tables = tables_of(rewards, decap, baseline="smoothness-rewards")
  (gait,) = (table for table in tables if table.title == "Gait")
  (row,) = (r for r in gait.rows if r.section == "random" and r.label == "DeCap")
  assert row.cells[0].ratio == ratio


def test_further_tables_are_there_where_there_are_numbers(template):
  columns = (
    Column("Samples", ("cost", "samples"), 1, 1e-6, None, "M"),
    share("Applied", ("cost", "applied"), better=None, unit="%"),
  )
  more = [("What a run cost", "", {"": columns})]
  known, other = result(template, "decap", 0.5), result(template, "cat", 0.5)
  methods = group_results([other, known], [None, None])
  assert "What a run cost" not in {t.title for t in make_tables(methods, None, more)}
  known.metrics["cost"] = {"samples": 40.5e6, "applied": 0.0058}
  cost = make_tables(methods, None, more)[-1]
  texts = [
    formats.cell_text(cell, column)
    for cell, column in zip(cost.rows[1].cells, cost.columns, strict=True)
  ]
  assert texts == ["40.5", "0.58"]
  assert cost.rows[0].cells[0].mean is None


def test_every_task_table_has_the_row_that_stands_still(template):
  task = tables_of(result(template, "decap", 0.5))[1]
  row = task.rows[-1]
  assert row.label == STANDING
  titles = [column.title for column in task.columns]
  standing = template.metrics["standing_still"]
  mae = row.cells[titles.index("MAE xy")]
  assert mae.mean == standing["mae_xy"]["mean"] and mae.std is None
  assert row.cells[titles.index("Falls")].mean is None


def test_violations_are_percentages(template):
  task = tables_of(result(template, "decap", 0.5))[1]
  titles = [column.title for column in task.columns]
  cell = task.rows[0].cells[titles.index("Acc. upper")]
  share = template.metrics["violations"]["upper"]["joint_acc"]["any_joint"]["mean"]
  assert cell.mean == pytest.approx(100 * share)


def test_the_zero_action_is_never_best(template):
  table = tables_of(
    result(template, "stand", 0.0),
    result(template, "cat", 2.0),
    result(template, "decap", 1.0),
  )[0]
  upper = {row.label: row.cells[0] for row in table.rows if row.section == "upper"}
  assert upper["DeCap"].best and not upper["Zero action"].best


@pytest.mark.parametrize(
  ("path", "value", "mark"),
  [
    (("falls_per_minute",), 0.04, "falls"),
    (("tracking", "followed"), 0.49, "stands"),
    (("gait", "correlation"), 0.01, "hops"),
    (("gait", "flight"), 0.03, "hops"),
    (("commands", "forward 1.0", "gait", "flight"), 0.03, "hops"),
  ],
)
def test_who_falls_stands_or_hops_is_marked_and_never_best(template, path, value, mark):
  """In each format, and though one seed of two is enough to be marked."""
  bad = result(template, "decap", 0.5, seed=2)
  bad.metrics["commands"] = {"forward 1.0": {"gait": {}}}
  place = bad.metrics
  for key in path[:-1]:
    place = place[key]
  place[path[-1]] = value if path[0] == "commands" else {"mean": value, "std": 0.0}
  good = [result(template, m, rate) for m, rate in (("cat", 2.0), ("lcp", 3.0))]
  tables = tables_of(result(template, "decap", 0.5), bad, *good)
  upper = {row.label: row for row in tables[0].rows if row.section == "upper"}
  assert upper["DeCap"].marks == (mark,) and upper["CaT"].marks == ()
  assert not upper["DeCap"].cells[0].best and upper["CaT"].cells[0].best
  assert f"| DeCap [{mark}] |" in formats.to_markdown(tables[0])
  assert f"DeCap [{mark}] &" in formats.to_latex(tables[0])
  assert f">[{mark}]</span></th>" in formats.to_html(tables[0])
  assert f"DeCap,{mark}," in formats.to_csv(tables)
  assert "never best" in tables[0].note


def test_files_of_before_gait_and_commands_still_compare(template):
  old = copy.deepcopy(template)
  for name in ("gait", "angular_velocity", "head_jerk", "drift", "response"):
    del old.metrics[name]
  del old.metrics["commands"], old.metrics["tracking"]["followed"]
  old.policy = {"name": "old", "method": "cat", "seed": 1}
  tables = {t.title: t for t in tables_of(old, template)}
  gait = tables["Gait"]
  assert [row.label for row in gait.rows] == ["CaT", "DeCap"] * 3
  random = {row.label: row for row in gait.rows if row.section == "random"}
  assert random["CaT"].cells[0].mean is None
  assert random["DeCap"].cells[0].mean == -0.5
  assert "| random | CaT | – | – |" in formats.to_markdown(gait)
  # Alone, an old file has no table of what it does not know.
  assert "Gait" not in {t.title for t in tables_of(old)}


def test_a_policy_is_shown_command_by_command(template):
  new = copy.deepcopy(template)
  numbers = {key: new.metrics[key] for key in ("gait", "angular_velocity")}
  told = {"tracking": {"followed": None, "followed_yaw": 0.4}, **numbers}
  new.metrics["commands"] = {"turn left 0.2": told}
  table, posture = command_tables(new)
  assert [row.label for row in table.rows] == ["turn left 0.2", "random"]
  titles = [column.title for column in table.columns]
  yaw = table.rows[0].cells[titles.index("Yaw")]
  assert yaw.mean == pytest.approx(40.0)
  assert table.rows[0].cells[titles.index("Followed")].mean is None
  assert table.rows[1].cells[titles.index("Followed")].mean == pytest.approx(90.0)
  assert [column.title for column in posture.columns] == ["Torso", "Head", "Head jerk"]
  turning = new.metrics["angular_velocity"]
  turning["head"] = turning["torso"]  # One body.
  posture = command_tables(new)[1]
  assert [column.title for column in posture.columns] == ["Torso, head", "Head jerk"]
  assert formats.to_markdown(table).splitlines()[2].startswith("| Command | Followed")
  tables = {t.title: t for t in tables_of(new)}
  following = tables["Followed sideways, turning and mixed; standing"]
  titles = [column.title for column in following.columns]
  # Turning on the spot is followed in yaw.
  assert following.rows[0].cells[titles.index("Turn left 0.2")].mean == 40.0
  new.metrics["commands"], new.protocol["commands"] = {}, "fixed"
  assert [row.label for row in command_tables(new)[0].rows] == ["fixed"]


def test_nothing_is_said_of_numbers_that_do_not_exist(template):
  """Robots that fell before their warm-up was over have not stood still."""
  result = copy.deepcopy(template)
  told = {"drift": None, "gait": {"lift_offs": None}}
  result.metrics["commands"] = {"zero": told}
  assert not [line for line in remarks(result.metrics) if "Told to stand" in line]
  told["drift"] = 0.05
  (line,) = [line for line in remarks(result.metrics) if "Told to stand" in line]
  assert line == "Told to stand: drifts 0.050 m/s."
  told["gait"]["lift_offs"] = 0.1
  (line,) = [line for line in remarks(result.metrics) if "Told to stand" in line]
  assert line.endswith("drifts 0.050 m/s, lifts each foot 0.10 times per second.")


def test_the_worst_violation_is_named(template):
  new = copy.deepcopy(template)
  new.metrics["violations"]["lower"]["joint_torque"]["any_joint"]["mean"] = 0.99
  assert worst_violation(new.metrics) == ("joint_torque/lower", 0.99)


def test_formats(template):
  tables = tables_of(result(template, "cat", 2.0), result(template, "decap", 1.0))
  markdown = formats.to_markdown(tables[0])
  assert "| upper | DeCap | **1.00 ±0.25** |" in markdown
  latex = formats.to_latex(tables[1])
  assert r"Acc. upper (\%) $\downarrow$" in latex
  for line in latex.splitlines():
    if line.endswith(r"\\"):
      assert line.count(" & ") == len(tables[1].columns)
  rows = list(csv.DictReader(io.StringIO(formats.to_csv(tables))))
  cells = sum(len(table.rows) * len(table.columns) for table in tables)
  assert len(rows) == cells
  assert rows[0]["mean"] == "2.0" and rows[0]["best"] == "0"
  html = formats.to_html(tables[0])
  assert "<b>1.00</b>" in html and html.count("<tr") == len(tables[0].rows) + 1
  console = Console(width=200, record=True, file=io.StringIO())
  console.print(formats.to_rich(tables[0]))
  assert "DoF velocity" in console.export_text()


@pytest.mark.parametrize("width", [80, 40])
def test_a_narrow_terminal_breaks_no_words(template, width):
  long = result(template, "decap", 1.0)
  long.policy["options"] = {f"algorithm.option-{i}": str(i) for i in range(9)}
  tables = tables_of(result(template, "cat", 2.0), long, baseline="cat")
  for table in tables:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(formats.to_rich(table), crop=False)
    printed = set(console.export_text().split())
    for index, column in enumerate(table.columns):
      cells = [formats.cell_text(row.cells[index], column) for row in table.rows]
      for text in [formats.header(column), *cells]:
        assert printed.issuperset(text.split())


def test_results_survive_their_file(template, tmp_path):
  template.save(tmp_path / "metrics.json")
  loaded = find_result(tmp_path)
  assert loaded.to_dict() == template.to_dict()
  first = (tmp_path / "metrics.json").read_bytes()
  loaded.save(tmp_path / "again.json")
  assert (tmp_path / "again.json").read_bytes() == first


def test_robots_per_command_are_not_lost_to_an_evaluation_without(template, tmp_path):
  def keep(there, now):
    sizes = {"rollouts": 2, "envs": 3, "steps": 200}
    old = {**template.protocol, **sizes, "per_command": there}
    replace(template, protocol=old).save(tmp_path / "metrics.json")
    keep_larger(tmp_path, "", template.policy, Protocol(**sizes, per_command=now))

  with pytest.raises(UserError, match="larger .* 200 steps, 32 robots per command"):
    keep(32, 0)
  for there, now in ((0, 32), (32, 32)):
    keep(there, now)


def test_a_newer_schema_is_refused(template, tmp_path):
  path = tmp_path / "metrics.json"
  template.save(path)
  path.write_text(path.read_text().replace('"schema": 1', '"schema": 2', 1))
  with pytest.raises(UserError, match="has schema 2; this decap reads up to schema 1"):
    load_result(path)


@pytest.mark.parametrize(
  ("place", "value", "problem"),
  [
    (("metrics",), None, "it lacks metrics"),
    (("layout", "groups"), None, "it lacks 'groups'"),
    (("layout", "joint_names"), [], "groups must hold every joint exactly once"),
    (("protocol", "steps"), None, "it lacks protocol.steps"),
    (("metrics", "smoothness"), None, "it lacks metrics.smoothness"),
    (("metrics", "spectra"), None, "it lacks metrics.spectra"),
    (
      ("metrics", "tracking", "error_x", "mean"),
      "much",
      "it lacks a number at metrics.tracking.error_x.mean",
    ),
  ],
)
def test_files_without_a_field_are_refused(template, tmp_path, place, value, problem):
  data = json.loads(json.dumps(template.to_dict()))
  inner = data
  for key in place[:-1]:
    inner = inner[key]
  if value is None:
    del inner[place[-1]]
  else:
    inner[place[-1]] = value
  path = tmp_path / "metrics.json"
  path.write_text(json.dumps(data))
  with pytest.raises(UserError, match=f"is not a whole metrics file: {problem}"):
    load_result(path)


def test_files_that_are_no_results_are_refused(tmp_path):
  (tmp_path / "metrics-disturbed.json").write_text("[]")
  with pytest.raises(UserError, match="is not a metrics file"):
    load_result(tmp_path / "metrics-disturbed.json")
  with pytest.raises(
    UserError, match=r"has no metrics.json \(it has metrics-disturbed"
  ):
    find_result(tmp_path)
  with pytest.raises(UserError, match="no run folder or metrics file"):
    find_result(tmp_path / "nowhere")


def test_an_unknown_baseline_is_refused(template):
  with pytest.raises(UserError, match=r"no baseline 'lcp' among the methods \(DeCap\)"):
    tables_of(template, baseline="lcp")
