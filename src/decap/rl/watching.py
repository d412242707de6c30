"""What is measured of a policy while it trains: now and then, deterministic, cheap."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from decap.errors import first_line
from decap.rl import checkpoint

Act = Callable[[Mapping[str, torch.Tensor]], torch.Tensor]
"""The deterministic policy: observation groups → actions [B, J]."""
Evaluate = Callable[[Act], dict[str, float]]
"""Measures a policy in an environment of its own; needs the entry "score"."""

SHARE = 0.02
"""Part of the training time that evaluations may take; what they need is built once."""


class Watcher:
  """Evaluates a policy every N iterations and remembers the best one.

  Evaluations that would take more than SHARE of the time of the run so far are left
  out. They draw random numbers of their own, so that training is the same with them and
  without.

  Args:
    make: Builds what evaluates, such as an environment of its own; None: nothing does.
    interval: N; 0 is never.
  """

  def __init__(self, make: Callable[[], Evaluate] | None, interval: int):
    self._make = make
    self._evaluate: Evaluate | None = None
    self._interval = interval
    self._spent_s = self._last_s = 0.0
    self._start = time.monotonic()
    self.latest: dict[str, float] = {}
    self.best_score: float | None = None
    self.best_iteration = 0

  def __call__(self, iteration: int, actor: Any) -> dict[str, float]:
    """What was measured after this iteration; nothing where none is due."""
    if self._make is None or not self.is_due(iteration):
      return {}
    rng = checkpoint.rng_state()
    training = actor.training
    actor.eval()
    try:
      # When it is first needed: short runs never are.
      self._evaluate = self._evaluate or self._make()
      start = time.monotonic()
      with torch.no_grad():
        measured = self._evaluate(actor)
    except Exception as error:
      # A look that fails must not end the training that it looks at.
      self._make = None
      reason = first_line(error)
      print(f"Warning: the policy is not looked at any more: {reason}", flush=True)
      return {}
    finally:
      actor.train(training)
      checkpoint.set_rng_state(rng)
    self._last_s = time.monotonic() - start
    self._spent_s += self._last_s
    self.latest = {f"Eval/{name}": value for name, value in measured.items()}
    self.latest["Perf/evaluation_time"] = self._last_s
    return self.latest

  def is_due(self, iteration: int) -> bool:
    """Whether it is time, and there is time."""
    if self._interval == 0 or iteration % self._interval:
      return False
    trained_s = time.monotonic() - self._start - self._spent_s
    return self._spent_s == 0.0 or self._spent_s + self._last_s < SHARE * trained_s

  def improved(self, iteration: int) -> bool:
    """Whether the latest score is the best so far, which it is then."""
    score = self.latest.get("Eval/score")
    if score is None or (self.best_score is not None and score <= self.best_score):
      return False
    self.best_score, self.best_iteration = score, iteration
    return True

  def state_dict(self) -> dict[str, Any]:
    """What a continued run has to know."""
    return {"best_score": self.best_score, "best_iteration": self.best_iteration}

  def load_state_dict(self, state: Mapping[str, Any]) -> None:
    self.best_score = state.get("best_score")
    self.best_iteration = state.get("best_iteration", 0)
