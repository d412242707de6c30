"""The walks behind the robot tables, and the files that keep them.

One file per policy; it holds the protocol, so that a table can refuse to put walks of
different protocols side by side. Needs neither torch nor mjlab.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from decap.deploy.bundle import Bundle, load_bundle
from decap.deploy.measure import measure, speed_over_time
from decap.deploy.parallel import in_order
from decap.deploy.sim2sim import Walk, straight, walk
from decap.deploy.simulation import SimCfg
from decap.deploy.stops import Limits
from decap.errors import UserError
from decap.files import write_text

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
"""Table III: ahead, faster, sideways, in a bend, back, and stand. Table IV: straight ahead,
kept on its line by the operator; over changes of ground for longer: the last ends after
seven metres."""

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


def cases() -> list[Case]:
  """All walks of the tables."""
  ground = [Case("terrain", t, p) for p in (0.0, PAYLOAD_KG) for t in TERRAINS]
  return [Case("identical", "flat", 0.0), *ground]


def measure_policy(
  bundle: Bundle,
  repeats: int = 3,
  base: SimCfg | None = None,
  jobs: int = 1,
  progress: Progress = print,
) -> dict[str, Any]:
  """Walk all cases with a policy; returns what its results file holds."""
  base = base or SimCfg()
  todo = [
    (bundle.folder, case, repeat, base, PLANS[case.plan])
    for case in cases()
    for repeat in range(repeats)
  ]
  walks = []
  for found in in_order(_walk, todo, jobs):
    walks.append(found)
    progress(_line(bundle, found))
  return {
    "format": FORMAT,
    "policy": describe(bundle),
    "protocol": protocol(repeats, base),
    "walks": walks,
  }


_bundle = lru_cache(maxsize=1)(load_bundle)


def _walk(task: tuple[Path, Case, int, SimCfg, Walk]) -> dict[str, Any]:
  """One walk, maybe in another process; the first of a case has curves for figures."""
  folder, case, repeat, base, plan = task
  cfg = replace(base, terrain=case.terrain, payload_kg=case.payload_kg)
  bundle = _bundle(folder)
  trace = walk(bundle, replace(cfg, seed=base.seed + repeat), plan)
  found = {**asdict(case), "repeat": repeat, **measure(trace, bundle)}
  if repeat == 0:
    torso = speed_over_time(trace, "torso")
    curves = {"torso": torso, "wrist_xy": speed_over_time(trace, "wrist", axes=2)}
    found["over_time"] = {name: np.round(v, 3).tolist() for name, v in curves.items()}
  return found


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
        "stops": asdict(Limits()),
        "walks": {name: asdict(plan) for name, plan in PLANS.items()},
      }
    )
  )


def save(results: dict[str, Any], folder: Path) -> Path:
  """Write a policy's results into the folder, a line per walk; returns the file."""
  path = folder / f"{results['policy']['name']}.json"
  lines = ",\n".join(json.dumps(walk, allow_nan=False) for walk in results["walks"])
  head = json.dumps({**results, "walks": None}, indent=1)
  write_text(path, head.replace('"walks": null', f'"walks": [\n{lines}\n]') + "\n")
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


def _line(bundle: Bundle, found: dict[str, Any]) -> str:
  load_kg = f", {found['payload_kg']:g} kg" if found["payload_kg"] else ""
  end = found["stop_reason"] if found["intervened"] else "done"
  what = "identical walk" if found["table"] == "identical" else found["terrain"]
  return (
    f"{bundle.folder.name}: {what}{load_kg}, run {found['repeat'] + 1}: "
    f"{found['seconds']:.1f} s, {found['distance_m']:.1f} m, "
    f"{'fell' if found['fell'] else end}"
  )
