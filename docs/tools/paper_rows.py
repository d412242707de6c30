"""What lies in results/paper: rows of the tables, their seeds and what they cost.

<task>/<row>-<seed>.json is what `decap evaluate` wrote, <row>-<seed>.csv the learning
curve beside it, <row>-<seed>-disturbed.json the protocol with noise and pushes.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import fmean

import numpy as np
import yaml

from decap.evaluation.columns import Column, Contents, share
from decap.evaluation.results import Result, load_result
from decap.evaluation.tables import METHOD_TITLES, MethodResults, group_results

NAME = re.compile(r"(?P<row>.+)-(?P<seed>\d+)(?P<disturbed>-disturbed)?")

TITLES = {
  **METHOD_TITLES,
  "stricter": "DeCap, stricter",
  "looser": "DeCap, looser",
  "fading": "DeCap, forgetful guard",
  "published": "Smoothness rewards, σ 1.0",
  "cpu": "DeCap, 15 M samples",
  "profiled": "DeCap, profiled limits",
  "calm-arms": "DeCap, calm torso and arms",
  "thin-decap": "DeCap, thin ground",
  "thin-smoothness-rewards": "Smoothness rewards, thin ground",
  "thin-cat": "CaT, thin ground",
  "blind": "DeCap without the clock",
  "unguarded": "DeCap without the guard",
  "decap-exact-continued": "Eq. 4 whole, the paper's limits",
  "close": "Eq. 4 whole, close limits",
  "middle": "Eq. 4 whole, middle limits",
  "middle-no-barrier": "without barrier",
  "wide": "Eq. 4 whole, wide limits",
  "kappa-3": "κ 3",
  "kappa-6": "κ 6",
  "rho-0.5": "ρ 0.5",
  "rho-0.9": "ρ 0.9",
  "p-max-half": "p_max halved",
  "p-max-half-no-barrier": "p_max halved, without barrier",
}
"""Row -> what the tables call it. Others are called as their files are."""


SHOWN = (
  "Smoothness",
  "Steps with a violation by at least one joint, and task performance",
  "Steps with a violation by at least one joint (%)",
  "Followed forward and backward",
  "Followed sideways, turning and mixed; standing",
  "Gait",
  "Angular velocity (root mean square)",
  "What a run cost",
)
"""Tables of `decap compare` that the page has, the first two the paper's, and `COST`."""
BRIEF = (*SHOWN[:2], SHOWN[-1])
"""Those of ablations."""

COST: Contents = (
  "What a run cost",
  "",
  {
    "": (
      Column("Samples", ("cost", "samples"), 1, 1e-6, None, "M"),
      Column("Wall clock", ("cost", "seconds"), 1, 1 / 60, None, "min"),
      Column("Runs side by side", ("cost", "side_by_side"), 0, better=None),
      Column("GPU time", ("cost", "gpu_seconds"), 1, 1 / 60, "lower", "min"),
      share("δ̄ applied", ("cost", "applied"), better=None, unit="%"),
      share("Falls in training", ("cost", "falls"), 0, "lower", "% of 20 s"),
    )
  },
)
"""What training took, by the learning curve beside the metrics."""


def _above(group: str, quantity: str) -> tuple[str, ...]:
  return "violations", group, quantity, "any_joint"


SUMMARY: Contents = (
  "All methods at a glance",
  "",
  {
    "": (
      share("Followed", ("tracking", "followed"), 0, "whole", "%"),
      *(
        Column(f"{body}, {name}", ("smoothness", group, quantity), unit=unit)
        for body, group in (("Arms", "upper"), ("Legs", "lower"))
        for name, quantity, unit in (
          ("action rate", "action_rate", "rad/s"),
          ("acc.", "joint_acc", "rad/s²"),
          ("energy", "energy", "Nm·rad/s"),
        )
      ),
      share("Arms above 20 rad/s²", _above("upper", "joint_acc"), 1, unit="%"),
      share("Legs above 20 Nm", _above("lower", "joint_torque"), 1, unit="%"),
      Column(
        "Torso turns",
        ("commands", "forward 0.5", "angular_velocity", "torso", "norm"),
        unit="rad/s",
      ),
    )
  },
)
"""What to look at first: means over seeds, torso at 0.5 m/s."""


@dataclass(frozen=True)
class Section:
  """Rows that are compared with one of them."""

  name: str
  title: str
  task: str
  baseline: str = "smoothness-rewards"
  rows: tuple[str, ...] = ()
  """Patterns; empty: all rows of the task that no other section has."""
  paper: bool = False
  """Whether the paper's values stand beside."""
  shown: tuple[str, ...] = SHOWN

  def has(self, row: str) -> bool:
    """Whether a row is one of its patterns'."""
    return any(fnmatchcase(row, pattern) for pattern in self.rows)


SCRATCH = ("blind", "unguarded", "decap-exact")
CONTINUED = (
  "decap-exact-continued",
  *("close", "middle", "middle-no-barrier", "wide"),
  *("kappa-*", "rho-*", "p-max-*"),
)
SECTIONS = (
  Section("methods", "Methods on flat ground", "g1-flat", paper=True),
  Section(
    "coefficients", "Coefficients", "g1-flat", "", ("coefficient-*",), shown=BRIEF
  ),
  Section(
    "weights",
    "Weights of smoothness rewards",
    "g1-flat",
    rows=("weights-*",),
    shown=(*BRIEF, SHOWN[2]),
  ),
  Section(
    "scratch", "Ablations from scratch", "g1-flat", "decap", SCRATCH, shown=BRIEF
  ),
  Section(
    "continued",
    "Ablations that go on from one policy",
    "g1-flat",
    "middle",
    CONTINUED,
    paper=True,
    shown=BRIEF,
  ),
  Section(
    "profiled",
    "Limits by the paper's rule",
    "g1-flat",
    "decap",
    ("profiled", "calm-arms"),
    shown=(*BRIEF, SHOWN[2], SHOWN[6]),
  ),
  Section("rough", "Rough ground", "g1-rough"),
  Section("23dof", "23 degrees of freedom", "g1-23dof-flat", shown=BRIEF),
)


def read_rows(
  root: Path, task: str, disturbed: bool = False
) -> dict[str, list[Result]]:
  """Row -> its results, seed by seed, with what they cost."""
  found: dict[str, list[Result]] = {}
  for path in sorted((root / task).glob("*.json")):
    match = NAME.fullmatch(path.stem)
    if match is None or bool(match["disturbed"]) != disturbed:
      continue
    result, row = load_result(path), match["row"]
    policy = result.policy
    assert policy["seed"] == int(match["seed"]), f"{path} is of seed {policy['seed']}"
    assert row not in METHOD_TITLES or policy["method"] == row, f"{path}: {policy}"
    stem = path.stem.removesuffix("-disturbed")
    result.metrics["cost"] = _cost(root, path.with_name(f"{stem}.csv"))
    found.setdefault(row, []).append(result)
  return {row: found[row] for row in _ordered(found)}


def _ordered(rows: Iterable[str]) -> list[str]:
  """Rows as the tables have them, unknown ones last, by what they are and its value."""
  order = list(TITLES)

  def place(row: str) -> tuple[int, str, float]:
    if row in order:
      return order.index(row), "", 0.0
    kind, _, value = row.rpartition("-")
    return len(order), kind, float(value) if value.replace(".", "").isdigit() else 0.0

  return sorted(rows, key=place)


def read_curve(path: Path) -> dict[str, np.ndarray]:
  """Column -> values of a learning curve; seconds go on where a run was resumed."""
  rows = list(csv.DictReader(path.read_text().splitlines()))
  curve = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
  steps = np.diff(curve["seconds"], prepend=0.0)
  curve["seconds"] = np.where(steps < 0, curve["seconds"], steps).cumsum()
  return curve


def _cost(root: Path, path: Path) -> dict[str, float]:
  if not path.is_file():
    return {}
  curve = read_curve(path)
  cost = {name: float(curve[name][-1]) for name in ("samples", "seconds")}
  last = curve["samples"] > 0.95 * curve["samples"][-1]
  if (share := _applied(curve, last)) is not None:
    cost["applied"] = share
  if "upright" in curve:  # 1 minus the falls in 1000 steps of a robot.
    cost["falls"] = 1.0 - float(curve["upright"][last].mean())
  gpu = yaml.safe_load((root / "gpu.yaml").read_text())
  name = f"{path.parent.name}/{path.stem}"
  for pattern, count in gpu["side-by-side"].items():
    if fnmatchcase(name, pattern):
      if count:  # None share a GPU that there was not.
        cost |= {"side_by_side": count, "gpu_seconds": cost["seconds"] / count}
      break
  return cost


def _applied(curve: dict[str, np.ndarray], last: np.ndarray) -> float | None:
  """Share of δ̄ that was applied over the last samples; None without δ̄."""
  whole, applied = (
    float(curve[name][last].mean()) if name in curve else math.nan
    for name in ("delta", "delta_applied")
  )
  return applied / whole if whole and math.isfinite(applied) else None


def read_methods(
  root: Path, section: Section, disturbed: bool = False
) -> list[MethodResults]:
  """The section's rows; none where there is only what they would be compared with."""
  found = read_rows(root, section.task, disturbed)
  wanted = [row for row in found if _belongs(row, section)]
  if section.rows and wanted == [section.baseline]:
    return []
  pairs = [(result, _label(row, found[row])) for row in wanted for result in found[row]]
  return group_results([r for r, _ in pairs], [label for _, label in pairs])


def _belongs(row: str, section: Section) -> bool:
  if section.rows:
    return section.has(row) or row == section.baseline
  return not any(s.has(row) for s in SECTIONS if s.task == section.task)


def title_of(row: str) -> str:
  """What the tables call a row."""
  prefix, _, rest = row.partition("-")
  if prefix in ("coefficient", "weights"):
    method, _, value = rest.rpartition("-")
    return f"{METHOD_TITLES.get(method, method)}, {value}"
  return TITLES.get(row, row)


def _label(row: str, results: Sequence[Result]) -> str:
  """Title and seeds, and in every table what share of the constraints was in force."""
  shares = [r.metrics["cost"].get("applied") for r in results]
  share = f", {round(100 * fmean(shares), 2):g} % of δ̄" if None not in shares else ""
  return f"{title_of(row)} (n = {len(results)}{share})"


def row_of(method: MethodResults) -> str:
  """The row's name, from a file of it."""
  path = method.results[0].path
  match = NAME.fullmatch(path.stem) if path else None
  assert match
  return match["row"]


def read_curves(root: Path) -> dict[str, list[dict[str, np.ndarray]]]:
  """Label -> learning curves of its seeds, of methods on flat ground."""
  curves: dict[str, list[dict[str, np.ndarray]]] = {}
  for path in sorted((root / "g1-flat").glob("*.csv")):
    match = NAME.fullmatch(path.stem)
    if match and _belongs(match["row"], SECTIONS[0]):
      curves.setdefault(match["row"], []).append(read_curve(path))
  return {title_of(row): curves[row] for row in _ordered(curves)}
