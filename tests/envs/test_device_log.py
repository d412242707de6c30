"""Statistics by hand, and without waiting."""

import math

import pytest
import torch

from decap.envs.device_log import DeviceLog
from decap.testing import waits


@pytest.fixture
def log() -> DeviceLog:
  return DeviceLog("cpu")


def test_means_are_over_environments_and_steps(log):
  log.mean({("a", "b"): torch.tensor([[1.0, 3.0], [0.0, 0.0]])})
  log.mean({("a", "b"): torch.tensor([[5.0, 7.0], [0.0, 2.0]])})
  assert log.flush() == {"a": 4.0, "b": 0.5}


def test_means_of_chosen_environments_only(log):
  flags = torch.tensor([[True, False, True]])
  for steps, ended in (([3, 4, 5], [1, 0, 1]), ([7, 8, 9], [0, 0, 1])):
    mask = torch.tensor(ended, dtype=torch.bool)
    log.mean({("length",): torch.tensor(steps), ("flag",): flags}, mask)
  # (3 + 5 + 9) / 3; the three samples are of environments where the flag is set.
  assert log.flush() == {"length": pytest.approx(17 / 3), "flag": 1.0}


def test_a_scalar_is_a_sample_of_its_own(log):
  for value in (1.0, 2.0):
    log.mean({("level",): torch.as_tensor(value)})
  assert log.flush() == {"level": 1.5}


def test_rows_of_one_name_are_taken_together(log):
  values = torch.tensor([[1.0, 1.0], [4.0, 4.0], [3.0, 5.0]])
  log.mean({("mean", "mean", "other"): values})
  log.maximum(("max", "max", "most"), values)
  assert log.flush() == {"mean": 2.5, "other": 4.0, "max": 4.0, "most": 5.0}


def test_shares_are_of_what_counts(log):
  weight = torch.tensor([1.0, 1.0, 0.0, 1.0])
  log.share(("a", "b", "c"), torch.tensor([0, 2, 1, 2]), weight)
  log.share(("a", "b", "c"), torch.tensor([0, 0, 0, 1]), torch.zeros(4))
  assert log.flush() == pytest.approx({"a": 1 / 3, "b": 0.0, "c": 2 / 3})


def test_maxima_are_since_the_last_flush(log):
  for values in ([1.0, -3.0], [2.0, -4.0]):
    log.maximum(("a", "b"), torch.tensor(values))
  assert log.flush() == {"a": 2.0, "b": -3.0}
  log.maximum(("a", "b"), torch.tensor([0.0, -math.inf]))
  assert log.flush() == {"a": 0.0}


def test_names_without_samples_are_left_out(log):
  log.mean({("a",): torch.ones(2)}, torch.zeros(2, dtype=torch.bool))
  log.share(("b",), torch.zeros(2, dtype=torch.long), torch.zeros(2))
  assert log.flush() == {}
  assert log.flagged() == {}


def test_a_mean_that_is_no_number_is_shown(log):
  log.mean({("a",): torch.tensor([math.nan, 1.0])})
  assert math.isnan(log.flush()["a"])
  log.mean({("a",): torch.tensor([2.0, 1.0])})
  assert log.flush() == {"a": 1.5}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_first_environment_that_is_not_finite_is_named(log, bad):
  for i in (3, 1, 2):
    values = torch.ones(2, 4)
    values[1, i] = bad
    log.flag(("fine", "broken"), values)
  assert log.flagged() == {"broken": 1}
  log.flag(("fine", "broken"), torch.ones(2, 4))
  assert log.flagged() == {}


def test_a_step_never_waits(log):
  values, mask = torch.ones(3, 4), torch.tensor([True, False, True, True])
  names, chosen = ("a", "b", "c"), torch.tensor([0, 1, 2, 2])

  def step() -> None:
    log.mean({names: values}, mask)
    log.mean({names: values})
    log.share(names, chosen, values[0])
    log.maximum(names, values)
    log.flag(names, values)

  step()
  assert waits(step) == []
