"""What was to be shown with the paper's grid, and what was found."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from paper_figures import ENOUGH
from paper_rows import SECTIONS, read_methods, row_of

from decap.evaluation.columns import read
from decap.evaluation.tables import MethodResults

VARIANTS = ("decap-calm-torso", "stricter", "looser", "fading")
"""DeCap with other limits or another guard."""


def claims(root: Path) -> str:
  """The numbers that were asked for, as a table of what was found."""
  methods = {row_of(m): m for m in read_methods(root, SECTIONS[0])}
  continued, by_rule, rough = (
    next(section for section in SECTIONS if section.name == name)
    for name in ("continued", "profiled", "rough")
  )
  ruled = {row_of(m): m for m in read_methods(root, by_rule)}
  among = {**methods, **({"decap": ruled["profiled"]} if "profiled" in ruled else {})}
  ablated = {row_of(m): m for m in read_methods(root, continued)}
  without = "-no-barrier"
  found = [
    *(_lowest(methods, *claim) for claim in (("upper", 1), ("lower", 2))),
    *(
      _lowest(among, *claim, "with limits by the paper's rule and 10 M samples more")
      for claim in (("upper", 1), ("lower", 2))
      if "profiled" in ruled
    ),
    _barrier("of runs from scratch", methods, "decap", "decap-no-barrier"),
    _barrier("where Eq. 4 is in force whole", ablated, "middle", f"middle{without}"),
    _barrier(
      "there, with half of p_max", ablated, "p-max-half", f"p-max-half{without}"
    ),
    _rough({row_of(m): m for m in read_methods(root, rough)}),
    _samples(methods),
  ]
  lines = [f"| {claim} | {what} | {holds} |" for claim, what, holds in found]
  head = ["| to be shown | found | holds |", "| --- | --- | --- |"]
  return "\n".join([*head, *lines])


def _mean(method: MethodResults, *path: str) -> float:
  values = [read(result.metrics, path)[0] for result in method.results]
  return fmean(float("nan") if value is None else value for value in values)


def _lowest(
  methods: dict[str, MethodResults], group: str, most: int, how: str = ""
) -> tuple[str, str, str]:
  claim = (
    f"DeCap is {'lowest' if most == 1 else 'lowest or second'} of all methods that follow "
    f"{ENOUGH:.0f} % (its variants aside), {group} body{f', {how}' if how else ''}"
  )
  rivals = {
    row: method
    for row, method in methods.items()
    if row not in VARIANTS and 100 * _mean(method, "tracking", "followed") >= ENOUGH
  }
  if "decap" not in rivals or len(rivals) < 2:
    return claim, "too few methods yet", "–"
  places = {}
  for name in ("action_rate", "joint_acc", "joint_vel", "energy"):
    order = sorted(
      rivals, key=lambda row: _mean(rivals[row], "smoothness", group, name)
    )
    places[name.replace("_", " ")] = order.index("decap") + 1
  text = ", ".join(f"{name}: {place}" for name, place in places.items())
  holds = "yes" if max(places.values()) <= most else "no"
  return claim, f"place among {len(rivals)}: {text}", holds


def _barrier(
  where: str, methods: dict[str, MethodResults], with_it: str, without: str
) -> tuple[str, str, str]:
  claim = (
    "With the barrier fewer violations than without, at equal following (5 points), "
    f"{where}"
  )
  if not {with_it, without} <= methods.keys():
    return claim, "too few methods yet", "–"
  on, off = methods[with_it], methods[without]
  follow = [100 * _mean(m, "tracking", "followed") for m in (on, off)]
  layout = on.results[0].layout
  places = [(g, q) for q in layout.joint_quantities for g in layout.groups]
  shares = [
    sum(100 * _mean(m, "violations", g, q, "any_joint") for g, q in places)
    for m in (on, off)
  ]
  text = (
    f"sum over {len(places)} rates {shares[0]:.2f} against {shares[1]:.2f} %, "
    f"followed {follow[0]:.0f} against {follow[1]:.0f} %"
  )
  holds = shares[0] < shares[1] and abs(follow[0] - follow[1]) <= 5.0
  return claim, text, "yes" if holds else "no"


def _rough(methods: dict[str, MethodResults]) -> tuple[str, str, str]:
  claim = (
    "On rough ground DeCap falls no more than smoothness rewards and follows as much"
  )
  if not {"decap", "smoothness-rewards"} <= methods.keys():
    return claim, "too few methods yet", "–"
  pair = [methods[row] for row in ("decap", "smoothness-rewards")]
  falls = [_mean(method, "falls_per_minute") for method in pair]
  follow = [100 * _mean(method, "tracking", "followed") for method in pair]
  text = (
    f"falls {falls[0]:.2f} against {falls[1]:.2f} a minute, "
    f"followed {follow[0]:.0f} against {follow[1]:.0f} %"
  )
  return claim, text, "yes" if falls[0] <= falls[1] and follow[0] >= follow[1] else "no"


def _samples(methods: dict[str, MethodResults]) -> tuple[str, str, str]:
  claim = "The same number of samples for all, to 1 %"
  counts = [
    result.metrics["cost"]["samples"]
    for method in methods.values()
    for result in method.results
    if result.metrics["cost"]
  ]
  if not counts:
    return claim, "no curves yet", "–"
  text = f"{min(counts) / 1e6:.1f} to {max(counts) / 1e6:.1f} M in {len(counts)} runs"
  return claim, text, "yes" if max(counts) <= 1.01 * min(counts) else "no"
