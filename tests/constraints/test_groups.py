import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decap.constraints import BodyGroupCfg, per_joint, resolve_groups

JOINTS = ("left_hip", "left_elbow", "waist", "right_hip", "right_elbow")


def groups(upper=(".*_elbow",), lower=(".*_hip", "waist"), p_max=0.5):
  return {"upper": BodyGroupCfg(upper, p_max), "lower": BodyGroupCfg(lower, 0.25)}


def test_groups_resolve_to_joint_indices_in_joint_order():
  assert resolve_groups(groups(), JOINTS) == {"upper": [1, 4], "lower": [0, 2, 3]}


def test_two_patterns_of_one_group_may_match_the_same_joint():
  resolved = resolve_groups(groups(upper=(".*_elbow", "left_elbow")), JOINTS)
  assert resolved["upper"] == [1, 4]


def test_a_third_group_is_only_configuration():
  cfg = groups(lower=(".*_hip",)) | {"waist": BodyGroupCfg(("waist",), 0.1)}
  assert resolve_groups(cfg, JOINTS)["waist"] == [2]


@pytest.mark.parametrize(
  ("cfg", "message"),
  [
    (groups(upper=("elbow",)), "'upper': pattern 'elbow' matches no joint.*left_hip"),
    (groups(upper=(".*_elbow", "waist")), "'waist' is in two groups, 'upper' and 'low"),
    (groups(lower=(".*_hip",)), "in no group: waist"),
    ({}, "in no group: left_hip"),
    (groups(p_max=0.0), r"'upper': p_max must be in \(0, 1\), got 0.0"),
    (groups(p_max=1.0), "p_max"),
    (groups(p_max=math.nan), "p_max"),
    (groups(upper=("(",)), "bad pattern"),
    (groups(upper=()), "joint_names must be a tuple"),
    (groups(upper=".*_elbow"), "joint_names must be a tuple"),
  ],
)
def test_bad_groups_are_refused_by_name(cfg, message):
  with pytest.raises(ValueError, match=message):
    resolve_groups(cfg, JOINTS)


def test_per_joint_spreads_group_values():
  limits = per_joint(
    {"lower": 20.0, "upper": 5.0}, {"upper": [1, 4], "lower": [0, 2, 3]}, 5
  )
  assert torch.equal(limits, torch.tensor([20.0, 5.0, 20.0, 20.0, 5.0]))


@pytest.mark.parametrize(
  ("values", "message"),
  [
    ({"upper": 5.0}, "'lower' has no value"),
    ({"upper": 5.0, "lower": 1.0, "waist": 1.0}, "Unknown group 'waist'"),
    ({"upper": 0.0, "lower": 1.0}, "'upper': expected a finite value > 0, got 0.0"),
    ({"upper": -1.0, "lower": 1.0}, "got -1.0"),
    ({"upper": math.nan, "lower": 1.0}, "got nan"),
    ({"upper": math.inf, "lower": 1.0}, "got inf"),
  ],
)
def test_bad_values_are_refused_by_group(values, message):
  with pytest.raises(ValueError, match=message):
    per_joint(values, {"upper": [1], "lower": [0]}, 2)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30))
def test_any_partition_is_recovered(membership):
  names = [f"g{group}_joint{i}" for i, group in enumerate(membership)]
  cfg = {f"g{g}": BodyGroupCfg((f"g{g}_.*",), 0.5) for g in sorted(set(membership))}
  resolved = resolve_groups(cfg, names)
  assert sorted(i for ids in resolved.values() for i in ids) == list(range(len(names)))
  values = {group: float(group[1:]) + 1.0 for group in cfg}
  spread = per_joint(values, resolved, len(names))
  assert spread.tolist() == [float(group) + 1.0 for group in membership]
