"""What disqualifies a policy, however smooth it is: it falls, stands or hops.

Such rows are marked in every table and win in none: a robot that stands is calm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from decap.evaluation.columns import CONDITIONS, read
from decap.evaluation.protocol import fallen_stops

MAX_FALLS_PER_MINUTE = 0.03
"""One in a hundred episodes of 20 s."""

MAX_FALLEN_STOPS = 0.01
"""Share of stops from a walk that may end in a fall."""

MIN_FOLLOWED = 0.5
"""Share of the commanded velocity below which a policy mostly stands."""

MAX_FLIGHT = 0.02
"""Share of time without a foot on the ground; walking has none."""

MAX_CORRELATION = 0.0
"""Of the contacts of left and right foot: above it they move together."""


def verdict(metrics: Mapping[str, Any]) -> tuple[str, ...]:
  """Any of "falls", "stands" and "hops"; numbers that a file does not have pass."""
  stops = _mean(metrics, 0.0, "commands", "stop", "falls_per_minute")
  marks = {
    "falls": _mean(metrics, 0.0, "falls_per_minute") > MAX_FALLS_PER_MINUTE
    or fallen_stops(stops) > MAX_FALLEN_STOPS,
    "stands": _mean(metrics, 1.0, "tracking", "followed") < MIN_FOLLOWED,
    "hops": any(
      _mean(metrics, -1.0, *under, "gait", "correlation") > MAX_CORRELATION
      or _mean(metrics, 0.0, *under, "gait", "flight") > MAX_FLIGHT
      for under in CONDITIONS.values()
    ),
  }
  return tuple(mark for mark, found in marks.items() if found)


def remarks(metrics: Mapping[str, Any]) -> Iterator[str]:
  """Sentences on standing, stopping, the worst violation, and the verdict."""
  if zero := metrics["commands"].get("zero"):
    drift, lifted = zero["drift"], zero["gait"]["lift_offs"]
    seen = [] if drift is None else [f"drifts {drift:.3f} m/s"]
    seen += [] if lifted is None else [f"lifts each foot {lifted:.2f} times per second"]
    if seen:
      yield f"Told to stand: {', '.join(seen)}."
  stop = metrics["commands"].get("stop")
  if stop and stop["falls_per_minute"] is not None:
    fallen = fallen_stops(stop["falls_per_minute"])
    yield f"Told to stop from 0.5 m/s: falls in {100 * fallen:.1f} % of the stops."
  if worst := worst_violation(metrics):
    yield f"Worst: {worst[0]}, above its limit in {100 * worst[1]:.2g} % of the steps."
  if marks := verdict(metrics):
    yield f"This policy {' and '.join(marks)} (see docs/evaluation.md)."


def worst_violation(metrics: Mapping[str, Any]) -> tuple[str, float] | None:
  """The row that is above its limit most often, and in which share of the steps."""
  shares = {
    f"{name}/{group}": value["any_joint"]["mean"]
    for group, quantities in metrics["violations"].items()
    for name, value in quantities.items()
  }
  shares |= {
    name: value["violations"]["mean"] for name, value in metrics["scalars"].items()
  }
  shares = {name: share for name, share in shares.items() if share is not None}
  return max(shares.items(), key=lambda item: item[1]) if shares else None


def _mean(metrics: Mapping[str, Any], passes: float, *path: str) -> float:
  mean, _ = read(metrics, path)
  return passes if mean is None else mean
