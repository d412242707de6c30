"""Composed constraints against values by hand and against the functions they are of."""

import math

import pytest
import torch

from decap import constraints as core

JOINTS = ("hip", "elbow", "knee")
GROUPS = {
  "upper": core.BodyGroupCfg(joint_names=("elbow",), p_max=0.5),
  "lower": core.BodyGroupCfg(joint_names=("hip", "knee"), p_max=0.25),
}
LIMITS = {"speed": {"upper": 10.0, "lower": 100.0}, "tilt": 2.0}


def composition(**rule) -> core.Composition:
  return core.Composition(
    LIMITS, GROUPS, JOINTS, core.TerminationCfg(**rule), scalar_p_max={"tilt": 0.125}
  )


def test_columns_and_rows():
  c = composition()
  assert c.row_names == ("speed/upper", "speed/lower", "tilt")
  assert [row.columns for row in c.rows] == [(1,), (0, 2), (3,)]
  assert c.limit.tolist() == [100.0, 10.0, 100.0, 2.0]
  assert c.p_max.tolist() == [0.25, 0.5, 0.25, 0.125]
  speed, tilt = torch.rand(5, 3), torch.rand(5)
  q = c.join({"tilt": tilt, "speed": speed})
  assert q.shape == (5, 4)
  parts = c.split(q)
  assert torch.equal(parts["speed"], speed) and torch.equal(parts["tilt"], tilt)
  torch.testing.assert_close(c.margins(q)[:, 3], tilt / 2)


def test_a_row_is_its_largest_joint():
  q = torch.tensor(
    [
      [0.0, 8.5, 85.0, 0.0],  # u = 0.5, φ = 0.75, times p_max 0.5 and 0.25
      [200.0, 0.0, 50.0, 2.0],  # The largest violation; at the limit: p_max.
    ]
  )
  c = composition()
  rows = c.probabilities(q)
  expected = torch.tensor([[0.375, 0.1875, 0.0], [0.0, 1.0, 0.125]])
  torch.testing.assert_close(rows, expected)
  # At the limit is no violation.
  assert c.costs(q).tolist() == [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


def test_a_report_is_all_that_an_algorithm_needs():
  speed = torch.tensor([[0.0, 8.5, 85.0], [200.0, 0.0, 50.0]])
  report = composition().report({"tilt": torch.tensor([0.0, 2.0]), "speed": speed})
  # The largest of the rows above.
  torch.testing.assert_close(report["delta"], torch.tensor([0.375, 1.0]))
  assert report["costs"].tolist() == [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
  assert torch.equal(report["quantities"]["speed"], speed)
  assert report["margins"]["tilt"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("rule", ["decap", "cat"])
def test_rows_over_time_are_those_of_the_rule_by_columns(rule):
  torch.manual_seed(0)
  c = composition(rule=rule)
  scale = core.ViolationScale(c.limit.shape, floor=0.01 * c.limit)
  for _ in range(5):
    q = torch.rand(64, 4) * 1.3 * c.limit
    scale.update(q - c.limit)
    arguments = q, c.limit, c.p_max, scale.value
    by_column = (
      core.cat_probability(*arguments)
      if rule == "cat"
      else core.decap_probability(*arguments, rho=0.7, kappa=2.0)
    )
    rows = c.probabilities(q)
    torch.testing.assert_close(rows.amax(1), by_column.amax(1))
    torch.testing.assert_close(rows[:, 1], by_column[:, [0, 2]].amax(1))


def test_other_limits_leave_its_own_scale_alone():
  torch.manual_seed(0)
  c, looser, plain = composition(), composition(), composition()
  looser.limit.mul_(1.2)
  own = c.new_scale()
  for _ in range(3):
    q = torch.rand(64, 4) * 1.4 * c.limit
    rows = c.probabilities(q, limit=looser.limit, scale=own)
    torch.testing.assert_close(rows, looser.probabilities(q))
    torch.testing.assert_close(c.probabilities(q), plain.probabilities(q))


def test_what_is_not_finite_is_a_violation_and_stays_out_of_the_scale():
  c = composition()
  q = torch.zeros(2, 4)
  q[0, 3], q[1, 0] = math.nan, math.inf
  rows = c.probabilities(q)
  assert rows.tolist() == [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
  assert c.costs(q).tolist() == rows.tolist()
  assert c.scale.value.isfinite().all()


def test_at_a_limit_the_barrier_has_ended_and_nothing_is_violated_yet():
  c = composition()
  q = torch.tensor([[100.0, 11.0, math.nan, 1.9]])
  assert c.above(q).tolist() == [[False, True, True, False]]
  assert c.beyond(q, c.limit).tolist() == [[True, True, True, False]]


def test_delta_is_the_largest_row_and_says_which():
  delta, row = composition().decided(torch.tensor([[0.1, 0.3, 0.2], [0.5, 0.0, 0.4]]))
  assert delta.tolist() == pytest.approx([0.3, 0.5]) and row.tolist() == [1, 0]


def test_limits_may_be_changed_in_place():
  c = composition()
  c.set_limit("speed/lower", 50.0)
  assert [row.limit for row in c.rows] == [10.0, 50.0, 2.0]
  assert c.limit.tolist() == [50.0, 10.0, 50.0, 2.0]
  assert c.scale.floor.tolist() == pytest.approx([0.5, 0.1, 0.5, 0.02])
  assert c.costs(torch.full((1, 4), 60.0)).tolist() == [[1.0, 1.0, 1.0]]
  with pytest.raises(ValueError, match="no constraint 'speed'; there are speed/upper"):
    c.set_limit("speed", 1.0)
  with pytest.raises(ValueError, match="must be above 0"):
    c.set_limit("tilt", 0.0)


def test_a_quantity_of_another_shape_is_named():
  c = composition()
  with pytest.raises(ValueError, match=r"'tilt' returned shape \(5, 3\)"):
    c.join({"speed": torch.rand(5, 3), "tilt": torch.rand(5, 3)})
  with pytest.raises(ValueError, match=r"'speed' returned .* expected \(5, 3\)"):
    c.join({"speed": torch.rand(1, 3), "tilt": torch.rand(5)})


def test_processes_share_the_scale_only_where_they_train_together(monkeypatch):
  """Another process saw 100 more everywhere: c̄ is of that, but not in an evaluation."""
  monkeypatch.setattr(
    core.composition.collective, "maximum", lambda highest: highest + 100
  )
  q = torch.tensor([[200.0, 0.0, 0.0, 0.0]])
  alone, together = composition(), composition()
  together.shared = True
  for c in (alone, together):
    c.probabilities(q)
  assert alone.scale.value.tolist() == pytest.approx([100.0, 0.1, 1.0, 0.02])
  assert together.scale.value.tolist() == pytest.approx([200.0, 90.0, 1.0, 98.0])


@pytest.mark.parametrize("limit", [0.0, -1.0, math.inf, math.nan])
def test_limits_that_cannot_be_are_refused(limit):
  c = composition()
  with pytest.raises(ValueError, match="limit of 'tilt' must be above 0"):
    c.set_limit("tilt", limit)
  with pytest.raises(ValueError, match="'tilt': the limit must be above 0"):
    core.Composition({"tilt": limit}, {}, ())
  c.set_limit("tilt", 0.5)  # Below 1 is no mistake.
  assert c.limit[3] == 0.5


@pytest.mark.parametrize("p_max", [0.0, 1.0])
def test_a_scalar_ends_an_episode_neither_never_nor_always(p_max):
  with pytest.raises(ValueError, match="p_max must be between 0 and 1"):
    core.Composition({"tilt": 1.0}, {}, (), scalar_p_max={"tilt": p_max})
