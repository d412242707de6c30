"""Kinds and levels of ground: where a robot is, and what is told of it there."""

import dataclasses

import pytest
import torch

from decap.envs.build import make_env
from decap.evaluation.bins import Bins
from decap.evaluation.environment import evaluation_cfg
from decap.evaluation.grounds import Grounds, grounds_of
from decap.evaluation.metrics import Metrics
from decap.evaluation.protocol import Protocol
from decap.evaluation.rollout import evaluate
from decap.evaluation.tables import command_tables, group_results, make_tables
from tests.evaluation.synthetic import LAYOUT
from tests.evaluation.test_metrics import sample
from tests.evaluation.test_rollout import noisy

SMALL = Protocol("g1-rough", rollouts=2, envs=10, steps=60, warmup=5, per_command=0)


def test_a_place_is_a_kind_and_a_band_of_levels():
  """Three levels of 4 m along x, two kinds of 2 m along y, the origin in the middle."""
  grounds = Grounds(("slope", "low_stairs"), 3, (4.0, 2.0))
  assert grounds.names == ("slope", "low stairs", "levels 0–1", "levels 2–2")
  places = [(-5.9, -1.9), (-2.1, 1.9), (0.0, 0.1), (2.1, -0.1), (6.1, 0.0), (0.0, -2.1)]
  found = grounds.at(torch.tensor([*places, (torch.nan, torch.nan)])).tolist()
  #   level 0, 0, 1, 2, then beyond x, beyond y, and nowhere (taken for the origin).
  assert found == [[0, 2], [1, 2], [1, 2], [0, 3], [4, 4], [4, 4], [1, 2]]


def test_sums_by_ground_are_of_random_commands():
  place = torch.tensor([[0, 2], [1, 2], [1, 3], [4, 4], [0, 2]])
  bins = Bins(rollouts=2, envs=2, commands=1, robots=1, grounds=4, place=place)
  sums = bins.sum(torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0]))
  #            rollouts   command  kinds          bands
  assert sums.tolist() == [3.0, 12.0, 16.0, 1.0, 6.0, 3.0, 4.0]
  assert bins.count == len(sums)


@pytest.fixture(scope="module")
def result():
  return evaluate(noisy(SMALL), SMALL).result


def test_robots_start_in_the_cells_that_the_environment_names():
  env = make_env(evaluation_cfg(SMALL), "cpu")
  grounds, terrain = grounds_of(env), env.scene.terrain
  found = grounds.at(env.scene.env_origins[:, :2])
  env.close()
  assert [grounds.names[i] for i in found[:, 0]] == [
    list(terrain.cfg.terrain_generator.sub_terrains)[i].replace("_", " ")
    for i in terrain.terrain_types.tolist()
  ]
  bands = found[:, 1] - len(grounds.kinds)
  assert bands.tolist() == (terrain.terrain_levels // 2).tolist()


def test_kinds_and_bands_share_out_all_time_and_falls(result):
  """Each step is on one kind and one band; nobody leaves the cells within a second."""
  grounds, layout = result.metrics["grounds"], result.layout
  assert tuple(grounds) == layout.grounds
  total = 2 * 10 * 60 * 0.02 / 60
  falls = result.metrics["falls_per_minute"]["mean"] * total
  assert falls > 0, "the test needs a fall"
  for names in (layout.grounds[:5], layout.grounds[5:]):
    minutes = [grounds[name]["minutes"] for name in names]
    assert sum(minutes) == pytest.approx(total)
    told = [grounds[name]["falls_per_minute"] or 0.0 for name in names]
    assert sum(f * m for f, m in zip(told, minutes, strict=True)) == pytest.approx(
      falls
    )


def test_a_step_that_is_not_finite_counts_once():
  layout = dataclasses.replace(LAYOUT, grounds=("slope", "levels 0–1"))
  metrics = Metrics(layout, rollouts=1, envs=1, warmup=0)
  for speed in (1.0, torch.nan):
    step = sample(vel=(0, 0, speed))
    step.ground = torch.tensor([[0, 1]])
    metrics.add(step)
  result = metrics.result()
  assert result["non_finite_steps"] == 1
  assert result["grounds"]["slope"]["minutes"] == pytest.approx(0.02 / 60)


def test_tables_show_them(result):
  table = make_tables(group_results([result], [None]))[-1]
  assert [row.section for row in table.rows] == list(result.layout.grounds)
  lines = command_tables(result)[-1]
  assert [row.label for row in lines.rows] == [*result.layout.grounds, "random"]
  slope = result.metrics["grounds"]["slope"]
  assert lines.rows[0].cells[1].mean == slope["falls_per_minute"]


def test_a_plane_has_none():
  env = make_env(evaluation_cfg(Protocol(rollouts=1, envs=2, per_command=0)), "cpu")
  assert grounds_of(env) is None
  env.close()
