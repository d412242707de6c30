"""The paper's robot tables as text, from the files of `robot_walks`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from decap.deploy.measure import JOINT_METRICS
from decap.deploy.sensors import GYROS
from decap.errors import UserError
from decap.evaluation.robot_walks import PAYLOAD_KG, TERRAINS

Results = dict[str, Any]


def check_comparable(results: Sequence[Results]) -> None:
  """Refuse results of different protocols side by side."""
  first = results[0]
  for other in results[1:]:
    for key, value in first["protocol"].items():
      if other["protocol"].get(key) != value:
        raise UserError(
          f"{first['policy']['name']} and {other['policy']['name']} were measured "
          f"under different protocols ('{key}' differs); measure one of them again."
        )


def tables(results: Sequence[Results]) -> str:
  """All tables as Markdown."""
  check_comparable(results)
  gyros = "Angular velocity of head / torso / right wrist, RMS in rad/s"
  sections = {
    "Joint metrics on identical walks": joint_table(results),
    gyros: imu_table(results, 0.0),
    f"The same with {PAYLOAD_KG:g} kg in the right hand": imu_table(
      results, PAYLOAD_KG
    ),
    "Distance in m, share of the command followed, falls and interventions": (
      course_table(results)
    ),
  }
  parts = ["# Robot tables in simulation", "", _protocol(results[0]), ""]
  for title, lines in sections.items():
    parts += [f"## {title}", "", *lines, ""]
  return "\n".join(parts)


def joint_table(results: Sequence[Results]) -> list[str]:
  """Table III: one row per policy and body group."""
  names = ("action rate", "acceleration", "velocity", "energy")
  rows = []
  for result in results:
    walks = chosen(result, "identical", "flat", 0.0)
    for group in walks[0]["joints"]:
      cells = [
        mean_std([walk["joints"][group][metric] for walk in walks])
        for metric in JOINT_METRICS
      ]
      rows.append([result["policy"]["name"], group, *cells, *_ends(walks)])
  header = ["policy", "joints", *names, "followed", "falls", "interventions"]
  return markdown(header, rows)


def imu_table(results: Sequence[Results], payload_kg: float) -> list[str]:
  """Table IV: one row per policy, one column per terrain, three gyros in a cell."""
  rows = []
  for result in results:
    cells = [_imu_cell(chosen(result, "terrain", t, payload_kg)) for t in TERRAINS]
    rows.append([result["policy"]["name"], *cells])
  return markdown(["policy", *TERRAINS], rows)


def course_table(results: Sequence[Results]) -> list[str]:
  """How far each policy came: without it, a calm robot may be one that stands."""
  rows = []
  for result in results:
    for payload in (0.0, PAYLOAD_KG):
      for terrain in TERRAINS:
        walks = chosen(result, "terrain", terrain, payload)
        if walks:
          distance = mean_std([walk["distance_m"] for walk in walks])
          label = f"{payload:g} kg" if payload else "none"
          rows.append(
            [result["policy"]["name"], terrain, label, distance, *_ends(walks)]
          )
  header = ["policy", "terrain", "payload", "distance", "followed", "falls"]
  return markdown([*header, "interventions"], rows)


def chosen(
  result: Results, table: str, terrain: str, payload_kg: float
) -> list[dict[str, Any]]:
  """The repeats of one case."""
  return [
    walk
    for walk in result["walks"]
    if (walk["table"], walk["terrain"], walk["payload_kg"])
    == (table, terrain, payload_kg)
  ]


def mean_std(values: Sequence[float | None]) -> str:
  """Mean and spread over the repeats, or a dash where there is nothing."""
  numbers = [v for v in values if v is not None and math.isfinite(v)]
  if not numbers:
    return "–"
  if len(numbers) == 1:
    return f"{numbers[0]:.2f}"
  return f"{np.mean(numbers):.2f} ± {np.std(numbers, ddof=1):.2f}"


def _imu_cell(walks: list[dict[str, Any]]) -> str:
  if not walks:
    return "–"
  means = []
  for site in GYROS:
    values = [walk["gyro_rms"][site] for walk in walks]
    numbers = [value for value in values if value is not None]
    means.append(f"{np.mean(numbers):.2f}" if numbers else "–")
  falls = sum(walk["fell"] for walk in walks)
  return " / ".join(means) + (f" ({falls} fell)" if falls else "")


def _ends(walks: list[dict[str, Any]]) -> list[str]:
  count = len(walks)
  return [
    mean_std([walk["followed"] for walk in walks]),
    f"{sum(walk['fell'] for walk in walks)} of {count}",
    f"{sum(walk['intervened'] for walk in walks)} of {count}",
  ]


def _protocol(result: Results) -> str:
  simulation = result["protocol"]["simulation"]
  return (
    f"{result['protocol']['repeats']} repeats; actuation delay "
    f"{1000 * simulation['delay_s']:g} ms, sensor noise × {simulation['noise']:g}, motor "
    f"strength × {simulation['motor_strength']:g}, joint friction "
    f"{simulation['joint_friction']:g}. Low numbers mean little where little of the "
    "command is followed."
  )


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
  """Lines of a Markdown table."""
  lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
  return lines + ["| " + " | ".join(row) + " |" for row in rows]
