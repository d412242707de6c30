"""``decap faults``: what can go wrong around a walking robot, played and judged."""

from __future__ import annotations

import argparse
import json

from decap.errors import UserError
from decap.files import check_writable, write_text


def add_options(parser: argparse.ArgumentParser) -> None:
  """A policy, which faults, and how many of each."""
  add = parser.add_argument
  add("bundle", metavar="BUNDLE", help="policy bundle that walks")
  add("--seeds", type=int, default=20, help="runs per class (default: 20)")
  add("--kind", action="append", metavar="CLASS", help="only this class; may repeat")
  add("--soak", type=float, default=0.0, metavar="S", help="also walk for S seconds")
  add("--domain", type=int, default=200, help="first of 20 DDS domains (default: 200)")
  add("--output", metavar="FILE", help="write the results as JSON")


def run(options: argparse.Namespace) -> int:
  """Play all faults; the exit code is 1 if a run did not end as it must."""
  from pathlib import Path

  from decap.deploy.campaign import run_faults, soak, summary
  from decap.deploy.faults import KINDS
  from decap.deploy.session import load_policies

  kinds = tuple(options.kind or KINDS)
  for kind in kinds:
    if kind not in KINDS:
      raise UserError(f"Unknown class '{kind}' (there are {', '.join(KINDS)}).")
  if not 0 <= options.domain <= 212:
    raise UserError(f"--domain must be between 0 and 212, not {options.domain}.")
  if options.seeds < 0 or not options.soak >= 0:
    raise UserError("--seeds and --soak must not be negative.")
  if options.output:
    check_writable(Path(options.output).absolute().parent)
  (bundle,), _ = load_policies([options.bundle])
  outcomes, legs = [], []
  for outcome in run_faults(bundle, kinds, options.seeds, options.domain):
    outcomes.append(outcome)
    if not outcome.passed or outcome.seed == options.seeds - 1:
      print(_line(outcome, outcomes), flush=True)
  if options.soak:
    for leg in soak(bundle, options.soak):
      legs.append(leg)
      print(
        f"{leg.terrain:<14} {leg.seconds:5.1f} s  {leg.end} {leg.reason}", flush=True
      )
  found = {"policy": bundle.info["onnx_sha256"], **summary(outcomes, legs)}
  print(f"{found['passed']} of {found['runs']} runs ended as their class states.")
  if legs:
    walks = found["soak"]
    print(
      f"{walks['seconds']:.0f} s walked, {walks['falls']} falls, "
      f"{walks['false_stops']} false stops."
    )
  if options.output:
    write_text(options.output, json.dumps(found, indent=2) + "\n")
  failed = found["passed"] < found["runs"] or found["soak"].get("false_stops", 0)
  return 1 if failed else 0


def _line(outcome, outcomes) -> str:
  """A class when it is done, or a run that failed."""
  if not outcome.passed:
    return f"{outcome.kind}, seed {outcome.seed}: FAILED: {outcome.detail}"
  same = [o for o in outcomes if o.kind == outcome.kind]
  slowest = max((o.reaction_s for o in same if o.reaction_s is not None), default=None)
  reaction = (
    "" if slowest is None else f", damping after at most {1e3 * slowest:.0f} ms"
  )
  return f"{outcome.kind}: {sum(o.passed for o in same)} of {len(same)}{reaction}"
