"""The walks behind the robot tables, and the files that keep them.

One file per policy; it holds the protocol, so that a table can refuse to put walks of
different protocols side by side. Needs neither torch nor mjlab.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from decap.deploy.bundle import Bundle
from decap.deploy.measure import measure, speed_over_time
from decap.deploy.sim2sim import Trace, Walk, straight, walk
from decap.deploy.simulation import SimCfg
from decap.errors import UserError

FORMAT = "decap-sim2sim"
PAPER_TERRAINS = ("carpet", "grass", "gravel", "slope", "inverse-slope")
TERRAINS = ("flat", *PAPER_TERRAINS, "transitions")
PAYLOAD_KG = 1.2

IDENTICAL_WALK = Walk(
  (
    (1.0, 0.5, 0.0, 0.0),
    (6.0, 0.8, 0.0, 0.0),
    (10.0, 0.0, 0.2, 0.0),
    (13.0, 0.4, 0.0, 0.2),
    (16.0, -0.3, 0.0, 0.0),
    (19.0, 0.0, 0.0, 0.0),
  ),
  20.0,
)
"""Table III: ahead, faster, sideways, in a bend, back, and stand."""

TERRAIN_WALK = straight(0.5, 12.0)
"""Table IV: straight ahead at 0.5 m/s, kept on its line by the operator."""

TRANSITIONS_WALK = straight(0.5, 18.0)
"""The same for longer: seven metres to the end of the last change of ground."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Case:
  """One cell of a table: where, and with what in the hand."""

  table: str
  terrain: str
  payload_kg: float

  @property
  def plan(self) -> str:
    """Which walk is walked."""
    if self.table == "identical":
      return "identical"
    return "transitions" if self.terrain == "transitions" else "terrain"


def plans() -> dict[str, Walk]:
  """Walks by name."""
  return {
    "identical": IDENTICAL_WALK,
    "terrain": TERRAIN_WALK,
    "transitions": TRANSITIONS_WALK,
  }


def cases() -> list[Case]:
  """All walks of the tables."""
  ground = [Case("terrain", t, p) for p in (0.0, PAYLOAD_KG) for t in TERRAINS]
  return [Case("identical", "flat", 0.0), *ground]


def measure_policy(
  bundle: Bundle,
  repeats: int = 3,
  base: SimCfg | None = None,
  only: Iterable[Case] | None = None,
  progress: Progress = print,
) -> dict[str, Any]:
  """Walk all cases with a policy; returns what its results file holds."""
  base = base or SimCfg()
  walks = []
  for case in cases() if only is None else only:
    plan = plans()[case.plan]
    for repeat in range(repeats):
      cfg = replace(
        base, terrain=case.terrain, payload_kg=case.payload_kg, seed=base.seed + repeat
      )
      trace = walk(bundle, cfg, plan)
      found = {**asdict(case), "repeat": repeat, **measure(trace, bundle)}
      if repeat == 0:
        found["over_time"] = _over_time(trace)
      walks.append(found)
      progress(_line(bundle, case, repeat, found))
  return {
    "format": FORMAT,
    "policy": describe(bundle),
    "protocol": protocol(repeats, base),
    "walks": walks,
  }


def describe(bundle: Bundle) -> dict[str, Any]:
  """What a results file says about its policy."""
  info = bundle.info
  return {
    "name": bundle.folder.name,
    "onnx_sha256": info["onnx_sha256"],
    **{key: info.get(key) for key in ("task", "method", "seed", "iteration")},
  }


def protocol(repeats: int, base: SimCfg) -> dict[str, Any]:
  """What must be equal for two results to be compared."""
  return json.loads(
    json.dumps(
      {
        "repeats": repeats,
        "simulation": asdict(base),
        "walks": {name: asdict(plan) for name, plan in plans().items()},
      }
    )
  )


def save(results: dict[str, Any], folder: Path) -> Path:
  """Write a policy's results into the folder; returns the file."""
  folder.mkdir(parents=True, exist_ok=True)
  path = folder / f"{results['policy']['name']}.json"
  path.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")
  return path


def load(path: Path) -> dict[str, Any]:
  """Read a results file, refusing what is none."""
  try:
    results = json.loads(path.read_text())
  except (OSError, ValueError) as error:
    raise UserError(f"{path} cannot be read as results: {error}.") from error
  if not isinstance(results, dict) or results.get("format") != FORMAT:
    raise UserError(f"{path} holds no results of 'decap sim2sim table'.")
  return results


def _over_time(trace: Trace) -> dict[str, list[float]]:
  """The curves of the figures: torso, and the wrist's two axes."""
  curves = {
    "torso": speed_over_time(trace, "torso"),
    "wrist_xy": speed_over_time(trace, "wrist", axes=2),
  }
  return {name: np.round(values, 3).tolist() for name, values in curves.items()}


def _line(bundle: Bundle, case: Case, repeat: int, found: dict[str, Any]) -> str:
  load_kg = f", {case.payload_kg:g} kg" if case.payload_kg else ""
  end = (
    "fell" if found["fell"] else found["stop_reason"] if found["intervened"] else "done"
  )
  what = "identical walk" if case.table == "identical" else case.terrain
  return (
    f"{bundle.folder.name}: {what}{load_kg}, run {repeat + 1}: "
    f"{found['seconds']:.1f} s, {found['distance_m']:.1f} m, {end}"
  )
