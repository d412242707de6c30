"""``decap faults``: what can go wrong around a walking robot, played and judged."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, UseAppendAction

from decap.errors import check_known
from decap.files import write_text
from decap.options.args import Args, at_least, between
from decap.options.types import OutputFile, Share, shown


@dataclass(kw_only=True)
class FaultsArgs(Args):
  """A policy, which faults, and how many of each."""

  bundle: Positional[Annotated[str, shown("BUNDLE")]]
  """Policy bundle that walks."""
  seeds: Annotated[int, at_least(0)] = 20
  """Runs per class."""
  kind: UseAppendAction[Annotated[tuple[str, ...], shown("CLASS")]] = ()
  """Only this class; may be repeated."""
  soak: Share = 0.0
  """Also walk for so many seconds."""
  jobs: Annotated[int, at_least(1)] = 1
  """Processes."""
  domain: Annotated[int, between(0, 212)] = 200
  """First of 20 DDS domains."""
  output: OutputFile = None
  """Write the results as JSON."""

  def run(self) -> int:
    """Play all faults; the exit code is 1 if a run did not end as it must."""
    from decap.deploy.campaign import run_faults, soak, summary
    from decap.deploy.faults import KINDS
    from decap.deploy.session import load_policies

    for kind in self.kind:
      check_known("class", kind, KINDS)
    kinds = self.kind or tuple(KINDS)
    (bundle,), _ = load_policies([self.bundle])
    outcomes, legs = [], []
    for outcome in run_faults(bundle, kinds, self.seeds, self.domain, self.jobs):
      outcomes.append(outcome)
      if not outcome.passed or outcome.seed == self.seeds - 1:
        print(_line(outcome, outcomes), flush=True)
    if self.soak:
      for leg in soak(bundle, self.soak, self.jobs):
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
    if self.output:
      write_text(self.output, json.dumps(found, indent=2) + "\n")
    failed = found["passed"] < found["runs"] or found["soak"].get("false_stops", 0)
    return 1 if failed else 0


def _line(outcome, outcomes) -> str:
  """A class when it is done, or a run that failed."""
  if not outcome.passed:
    return f"{outcome.kind}, seed {outcome.seed}: FAILED: {outcome.detail}"
  same = [o for o in outcomes if o.kind == outcome.kind]
  slowest = max((o.reaction_s for o in same if o.reaction_s is not None), default=None)
  reaction = (
    "" if slowest is None else f", damping after at most {round(1e3 * slowest)} ms"
  )
  return f"{outcome.kind}: {sum(o.passed for o in same)} of {len(same)}{reaction}"
