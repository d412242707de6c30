"""Evaluations during training: when, at what cost, and what they leave alone."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from decap.rl import watching
from decap.rl.watching import Watcher


class Clock:
  """Time that passes only when told."""

  def __init__(self, monkeypatch):
    self.now = 0.0
    monkeypatch.setattr(watching.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
  return Clock(monkeypatch)


def _watcher(clock, seconds: float, scores=(), interval: int = 10) -> Watcher:
  left = iter(scores)

  def evaluate(actor):
    clock.now += seconds
    return {"score": next(left, 0.0), "followed": 0.5}

  return Watcher(lambda: evaluate, interval)


def test_every_n_iterations(clock):
  watcher = _watcher(clock, 0.0)
  due = [i for i in range(1, 41) if watcher(i, nn.Linear(1, 1))]
  assert due == [10, 20, 30, 40]
  assert not any(Watcher(None, 10)(i, None) for i in range(40))
  assert not any(_watcher(clock, 0.0, interval=0)(i, None) for i in range(40))


def test_evaluations_take_no_more_than_their_share(clock):
  """Ten seconds per interval allow 0.2 s; one of 0.5 s fits every third time."""
  watcher = _watcher(clock, 0.5)
  due = []
  for i in range(1, 301):
    clock.now += 1.0
    if watcher(i, nn.Linear(1, 1)):
      due.append(i)
  # The first is free; the n-th at the first ten above 50 · 0.5 · n.
  assert due == [10, 60, 80, 110, 130, 160, 180, 210, 230, 260, 280]
  assert 0.5 * len(due) < watching.SHARE * 300


def test_the_best_is_remembered_and_survives_a_resume(clock):
  watcher = _watcher(clock, 0.0, (0.2, 0.5, 0.5, 0.4, 0.9), interval=1)
  improved = []
  for i in range(1, 5):
    watcher(i, nn.Linear(1, 1))
    improved.append(watcher.improved(i))
  assert improved == [True, True, False, False]
  assert (watcher.best_score, watcher.best_iteration) == (0.5, 2)
  other = _watcher(clock, 0.0, (0.45, 0.6), interval=1)
  other.load_state_dict(watcher.state_dict())
  other(5, nn.Linear(1, 1))
  assert not other.improved(5)
  other(6, nn.Linear(1, 1))
  assert other.improved(6) and other.best_iteration == 6


def test_what_was_measured_is_logged_and_shown_until_the_next(clock):
  watcher = _watcher(clock, 0.25, (0.7,))
  expected = {"Eval/score": 0.7, "Eval/followed": 0.5, "Perf/evaluation_time": 0.25}
  assert watcher(10, nn.Linear(1, 1)) == expected
  assert watcher(11, nn.Linear(1, 1)) == {}
  assert watcher.latest == expected


def test_training_draws_the_same_numbers_with_and_without():
  def evaluate(actor):
    torch.manual_seed(7)
    torch.rand(3), np.random.rand(3), random.random()
    assert not actor.training and not torch.is_grad_enabled()
    return {"score": 1.0}

  def draw():
    return torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()

  torch.manual_seed(1), np.random.seed(1), random.seed(1)
  expected = draw()
  torch.manual_seed(1), np.random.seed(1), random.seed(1)
  actor = nn.Linear(1, 1).train()
  torch.manual_seed(1)
  assert Watcher(lambda: evaluate, 1)(1, actor)
  assert draw() == expected
  assert actor.training


def test_a_failed_evaluation_leaves_training_as_it_was():
  def fail(actor):
    torch.rand(3)
    raise ValueError("broken")

  torch.manual_seed(1)
  expected = torch.rand(2)
  actor = nn.Linear(1, 1).train()
  torch.manual_seed(1)
  assert Watcher(lambda: fail, 1)(1, actor) == {}
  assert torch.equal(torch.rand(2), expected) and actor.training


def test_what_evaluates_is_built_once_when_it_is_needed(clock):
  built = []

  def make():
    clock.now += 100.0  # Building does not count.
    built.append(clock.now)
    return lambda actor: {"score": 1.0}

  watcher = Watcher(make, 10)
  for i in range(1, 31):
    clock.now += 1.0
    watcher(i, nn.Linear(1, 1))
    assert len(built) == (i >= 10)
  assert watcher.latest["Perf/evaluation_time"] == 0.0


def test_a_look_that_fails_does_not_end_the_training(capsys):
  def fail(act):
    raise RuntimeError("no graph today\nand more")

  actor = torch.nn.Linear(2, 2)
  watcher = Watcher(lambda: fail, 1)
  assert watcher(1, actor) == {} and watcher(2, actor) == {}
  assert capsys.readouterr().out.count("not looked at any more: no graph today\n") == 1
  assert actor.training and watcher.best_score is None
