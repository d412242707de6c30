"""The paper's robot tables: the walks behind them, the files that keep these, the text.

One file per policy; it holds the protocol, and those of another one are not taken again.
Needs neither torch nor mjlab.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from decap.deploy.bundle import Bundle
from decap.deploy.measure import JOINT_METRICS, measure, speed_over_time
from decap.deploy.parallel import in_order
from decap.deploy.sensors import GYROS
from decap.deploy.sim2sim import Walk, straight, walk
from decap.deploy.simulation import SimCfg
from decap.deploy.stops import Limits
from decap.errors import UserError
from decap.files import write_text

Results = dict[str, Any]
"""What a file holds."""
FORMAT = "decap-sim2sim"
PAPER_TERRAINS = ("carpet", "grass", "gravel", "slope", "inverse-slope")
TERRAINS = ("flat", *PAPER_TERRAINS, "transitions")
PAYLOAD_KG = 1.2

PLANS = {
  "identical": Walk(
    (
      (1.0, 0.5, 0.0, 0.0),
      (6.0, 0.8, 0.0, 0.0),
      (10.0, 0.0, 0.2, 0.0),
      (13.0, 0.4, 0.0, 0.2),
      (16.0, -0.3, 0.0, 0.0),
      (19.0, 0.0, 0.0, 0.0),
    ),
    20.0,
  ),
  "terrain": straight(0.5, 12.0),
  "transitions": straight(0.5, 18.0),
}
"""By table, or the terrain that has its own. Table III: ahead, faster, sideways, in a
bend, back, and stand. Table IV: straight ahead, kept on its line by the operator; over
changes of ground for longer: the last ends after seven metres."""

Progress = Callable[[str], None]


class Case(NamedTuple):
  """One cell of a table: where, and with what in the hand."""

  table: str
  terrain: str
  payload_kg: float


def cases() -> list[Case]:
  """All walks of the tables."""
  ground = [Case("terrain", t, p) for p in (0.0, PAYLOAD_KG) for t in TERRAINS]
  return [Case("identical", "flat", 0.0), *ground]


def measure_policy(
  bundle: Bundle, repeats: int, base: SimCfg, jobs: int, progress: Progress
) -> Results:
  """Walk all cases with a policy; returns what its results file holds."""
  todo = [
    (case, repeat, base, PLANS.get(case.terrain, PLANS[case.table]))
    for case in cases()
    for repeat in range(repeats)
  ]
  walks = []
  for found in in_order(_walk, bundle, todo, jobs):
    walks.append(found)
    progress(_line(bundle, found))
  return {
    "format": FORMAT,
    "policy": describe(bundle),
    "protocol": protocol(repeats, base),
    "walks": walks,
  }


def _walk(
  bundle: Bundle, case: Case, repeat: int, base: SimCfg, plan: Walk
) -> dict[str, Any]:
  """One walk, maybe in another process; the first of a case has curves for figures."""
  where = {"terrain": case.terrain, "payload_kg": case.payload_kg}
  trace = walk(bundle, replace(base, seed=base.seed + repeat, **where), plan)
  found = {**case._asdict(), "repeat": repeat, **measure(trace, bundle)}
  if repeat == 0:
    torso = speed_over_time(trace, "torso")
    curves = {"torso": torso, "wrist_xy": speed_over_time(trace, "wrist", axes=2)}
    found["over_time"] = {name: np.round(v, 3).tolist() for name, v in curves.items()}
  return found


def describe(bundle: Bundle) -> dict[str, Any]:
  """What a results file says about its policy."""
  info = bundle.info
  return {
    "name": bundle.name,
    "onnx_sha256": info["onnx_sha256"],
    **{key: info.get(key) for key in ("task", "method", "seed", "iteration")},
  }


def protocol(repeats: int, base: SimCfg) -> dict[str, Any]:
  """What must be equal where results are taken from a file."""
  terms = {
    "repeats": repeats,
    "simulation": asdict(base),
    "stops": asdict(Limits()),
    "walks": {name: asdict(plan) for name, plan in PLANS.items()},
  }
  return json.loads(json.dumps(terms))  # As a file would hold it.


def save(found: Results, folder: Path, suffix: str = "") -> Path:
  """Write a policy's results into the folder, a line per walk; returns the file."""
  path = folder / f"{found['policy']['name']}{suffix}.json"
  walks = [json.dumps(walk, allow_nan=False) for walk in found.get("walks", ())]
  head = {key: None if key == "walks" else value for key, value in found.items()}
  lines = '"walks": [\n' + ",\n".join(walks) + "\n]"
  write_text(path, json.dumps(head, indent=1).replace('"walks": null', lines) + "\n")
  return path


def load(path: Path) -> Results:
  """Read a results file, refusing what is none."""
  try:
    results = json.loads(path.read_text())
  except (OSError, ValueError) as error:
    raise UserError(f"{path} cannot be read as results: {error}.") from error
  if not isinstance(results, dict) or FORMAT not in str(results.get("format")):
    raise UserError(f"{path} holds no results of 'decap sim2sim'.")
  return results


def stored(
  bundle: Bundle, folder: Path, suffix: str = "", **same: Any
) -> Results | None:
  """What a file in the folder says of this very policy, if the rest is the same."""
  path = folder / f"{bundle.name}{suffix}.json"
  found = load(path) if path.is_file() else {}
  same["policy"] = describe(bundle)
  return found if found.items() >= same.items() else None


def _line(bundle: Bundle, found: dict[str, Any]) -> str:
  load_kg = f", {found['payload_kg']:g} kg" if found["payload_kg"] else ""
  end = found["stop_reason"] if found["intervened"] else "done"
  what = "identical walk" if found["table"] == "identical" else found["terrain"]
  return (
    f"{bundle.name}: {what}{load_kg}, run {found['repeat'] + 1}: "
    f"{found['seconds']:.1f} s, {found['distance_m']:.1f} m, "
    f"{'fell' if found['fell'] else end}"
  )


# Tables.


def tables(results: Sequence[Results]) -> str:
  """All tables as Markdown."""
  gyros = "Angular velocity of head / torso / right wrist, RMS in rad/s"
  loaded = f"The same with {PAYLOAD_KG:g} kg in the right hand"
  course = "Distance in m, share of the command followed, falls and interventions"
  sections = {
    "Joint metrics on identical walks": joint_table(results),
    gyros: imu_table(results, 0.0),
    loaded: imu_table(results, PAYLOAD_KG),
    course: course_table(results),
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
      cells = [mean_std(w["joints"][group][m] for w in walks) for m in JOINT_METRICS]
      rows.append([result["policy"]["name"], group, *cells, *_ends(walks)])
  return markdown(["policy", "joints", *names, *ENDS], rows)


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
    for case in cases():
      walks = chosen(result, *case) if case.table == "terrain" else []
      if walks:
        load = f"{case.payload_kg:g} kg" if case.payload_kg else "none"
        where = [result["policy"]["name"], case.terrain, load]
        rows.append([*where, mean_std(w["distance_m"] for w in walks), *_ends(walks)])
  return markdown(["policy", "terrain", "payload", "distance", *ENDS], rows)


def chosen(result: Results, *case: Any) -> list[dict[str, Any]]:
  """The repeats of one case."""
  return [w for w in result["walks"] if tuple(w[n] for n in Case._fields) == case]


def mean_std(values: Iterable[float | None], spread: bool = True) -> str:
  """Mean and spread over the repeats, or a dash where there is nothing."""
  numbers = [v for v in values if v is not None and math.isfinite(v)]
  if not numbers:
    return "–"
  text = f"{np.mean(numbers):.2f}"
  if len(numbers) > 1 and spread:
    text += f" ± {np.std(numbers, ddof=1):.2f}"
  return text


def _imu_cell(walks: list[dict[str, Any]]) -> str:
  if not walks:
    return "–"
  means = [mean_std((w["gyro_rms"][site] for w in walks), False) for site in GYROS]
  falls = sum(walk["fell"] for walk in walks)
  return " / ".join(means) + (f" ({falls} fell)" if falls else "")


ENDS = ("followed", "falls", "interventions")


def _ends(walks: list[dict[str, Any]]) -> list[str]:
  count = len(walks)
  return [
    mean_std(walk["followed"] for walk in walks),
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
