"""What makes one row of a table: seeds of one policy, and nothing else."""

import copy
import dataclasses

import pytest

from decap.errors import UserError
from decap.evaluation.layout import Layout
from decap.evaluation.tables import group_results
from tests.evaluation.synthetic import LAYOUT, result, tables_of


def test_runs_of_one_seed_are_no_seeds(template):
  results = [
    result(template, "decap", 1.0, name="long"),
    result(template, "decap", 3.0, name="short"),
    result(template, "lcp", 2.0, name="other"),
    result(template, "lcp", 4.0, seed=2, name="another"),
  ]
  labels = [m.label for m in group_results(results, [None] * 4)]
  assert sorted(labels) == ["DeCap, long", "DeCap, short", "LCP"]
  labels = [m.label for m in group_results(results, ["a", "a", None, None])]
  assert sorted(labels) == ["LCP", "a"]


def test_runs_of_other_lengths_are_no_seeds(template):
  lengths = {1: 40_000_000, 2: 40_200_000, 3: 12_000_000}
  results = [
    result(template, "decap", 1.0, seed=s, samples=n) for s, n in lengths.items()
  ]
  results += [result(template, "decap", 1.0, seed=4), result(template, "cat", 1.0)]
  found = {m.label: len(m.results) for m in group_results(results[:3], [None] * 3)}
  assert found == {"DeCap, 40 M samples": 2, "DeCap, 12 M samples": 1}
  (row,) = group_results(results[:2], [None] * 2)
  assert (row.label, len(row.results)) == ("DeCap", 2)
  # Those that say nothing, as older files do, are no seeds of those that do.
  assert len(group_results(results[2:], [None] * 3)) == 3


def test_policies_of_one_seed_that_are_called_alike_need_labels(template):
  twins = [result(template, "decap", rate, name="model") for rate in (1.0, 2.0)]
  with pytest.raises(UserError, match="'DeCap, model' has a result of seed 1 besides"):
    group_results(twins, [None, None])
  assert len(group_results(twins, ["a", "b"])) == 2


@pytest.mark.parametrize("labels", [("DeCap", None), (None, "DeCap")])
def test_a_label_takes_no_other_policy_of_a_seed_into_its_row(template, labels):
  pair = [result(template, "decap", 1.0), result(template, "decap", 2.0)]
  with pytest.raises(UserError, match="row 'DeCap' has a result of seed 1 besides"):
    group_results(pair, labels)


def test_seeds_of_other_limits_or_overrides_are_no_seeds(template):
  """Labels are short: what was changed in full tells runs apart that share one."""
  changed = [{"joint_vel/upper": 1.0}, {"joint_vel/upper": 2.0}]
  runs = [
    result(template, "decap", 1.0, seed, name=f"run{seed}", options={"limits": "own"})
    for seed in (1, 2, 3)
  ]
  for run, changes in zip(runs, [*changed, changed[0]], strict=True):
    run.policy["changes"] = changes
  found = {m.label for m in group_results(runs, [None] * 3)}
  assert found == {f"DeCap (limits own), run{seed}" for seed in (1, 2, 3)}
  (row,) = group_results(runs[::2], [None] * 2)
  assert (row.label, len(row.results)) == ("DeCap (limits own)", 2)


def test_runs_that_are_called_alike_are_no_seeds_of_other_limits(template):
  """Copies of bundles in two folders may have one name."""
  runs = [
    result(template, "decap", 1.0, s, name="g1", changes={"joint_vel/upper": s})
    for s in (1, 2)
  ]
  with pytest.raises(UserError, match="a result of other limits or overrides besides"):
    group_results(runs, [None] * 2)
  assert len(group_results(runs, ["a", "a"])) == 1


def test_who_has_a_label_sets_no_others_apart(template):
  """Seeds were torn apart by a policy of the same method that stood in its own row."""
  runs = [
    result(template, "decap", 1.0, seed, name=f"run{seed}", samples=10_000_000)
    for seed in (1, 2, 3)
  ]
  for run, limit in zip(runs, (1.0, 2.0, 2.0), strict=True):
    run.policy["changes"] = {"joint_vel/upper": limit}
  runs[0].policy["samples"] = 20_000_000
  rows = group_results(runs, ["tight", None, None])
  assert {row.label: len(row.results) for row in rows} == {"tight": 1, "DeCap": 2}


def test_options_and_labels_make_rows_of_their_own(template):
  table = tables_of(
    result(template, "decap", 0.5),
    result(template, "decap", 0.4, options={"κ": "3"}),
    result(template, "decap", 0.3),
    labels=[None, None, "mine"],
  )[0]
  assert [row.label for row in table.rows[:3]] == ["DeCap", "DeCap (κ 3)", "mine"]


def test_other_protocols_are_refused_with_the_difference(template):
  other = copy.deepcopy(template)
  other.protocol = {**template.protocol, "steps": 300, "seed": 7}
  with pytest.raises(UserError, match=r"steps: 200 against 300\.$"):
    tables_of(template, other)


def test_another_seed_of_the_rollouts_is_the_same_protocol(template):
  other = copy.deepcopy(template)
  other.protocol = {**template.protocol, "seed": 7}
  assert tables_of(template, other, labels=["a", "b"])


def test_other_limits_are_refused_with_the_difference(template):
  limits = {**LAYOUT.limits, "joint_vel": {"upper": 2.0, "lower": 10.0}}
  other = copy.deepcopy(template)
  other.layout = dataclasses.replace(LAYOUT, limits=limits)
  with pytest.raises(UserError, match="limit of joint_vel/upper: 1.5 against 2.0"):
    tables_of(template, other)


@pytest.mark.parametrize(
  ("name", "value", "problem"),
  [
    ("p_max", {"upper": 0.5, "lower": 0.5}, "p_max"),
    ("tracking_reward", (1.0, 0.25), r"tracking_reward: \(1.5, 0.25\) against"),
  ],
)
def test_what_else_numbers_depend_on_is_refused(template, name, value, problem):
  other = copy.deepcopy(template)
  other.layout = dataclasses.replace(LAYOUT, **{name: value})
  with pytest.raises(UserError, match=problem):
    tables_of(template, other)


def test_older_files_know_of_no_reward_and_still_compare(template):
  older = copy.deepcopy(template)
  layout = {**LAYOUT.to_dict()}
  del layout["tracking_reward"]
  older.layout = Layout.from_dict(layout)
  assert tables_of(template, older, labels=["new", "old"])


def test_other_joints_are_refused_with_the_difference(template):
  other = copy.deepcopy(template)
  other.layout = dataclasses.replace(LAYOUT, joint_names=("hip", "knee", "wrist"))
  with pytest.raises(UserError, match=r"joints: 3 against 3 \(elbow, wrist\)"):
    tables_of(template, other)
