"""What disqualifies a policy, however smooth it is: it falls, stands or hops.

Such rows are marked in every table and win in none: a robot that stands is calm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decap.evaluation.columns import CONDITIONS, Column, gait
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
  falls = _mean(metrics, "falls_per_minute")
  stops = _mean(metrics, "commands", "stop", "falls_per_minute")
  followed = _mean(metrics, "tracking", "followed")
  marks = []
  if (falls is not None and falls > MAX_FALLS_PER_MINUTE) or (
    stops is not None and fallen_stops(stops) > MAX_FALLEN_STOPS
  ):
    marks.append("falls")
  if followed is not None and followed < MIN_FOLLOWED:
    marks.append("stands")
  if any(_hops(metrics, under) for under in CONDITIONS.values()):
    marks.append("hops")
  return tuple(marks)


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


def _hops(metrics: Mapping[str, Any], under: tuple[str, ...]) -> bool:
  correlation, flight = (column.read(metrics)[0] for column in gait(under)[:2])
  together = correlation is not None and correlation > MAX_CORRELATION
  return together or (flight is not None and flight > MAX_FLIGHT)


def _mean(metrics: Mapping[str, Any], *path: str) -> float | None:
  return Column("", path).read(metrics)[0]
