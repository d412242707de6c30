"""The fault campaign: every class with many seeds, and an hour without a false stop."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from decap.deploy.bundle import Bundle
from decap.deploy.controller import Controller, Cycle
from decap.deploy.faults import KINDS, TOLERATED, Outcome, play, within_s
from decap.deploy.grounds import TERRAINS
from decap.deploy.kill import KILLS, play_kill
from decap.deploy.operator import Script
from decap.deploy.parallel import in_order
from decap.deploy.robots import motors_for
from decap.deploy.simulation import SimCfg, SimulatedRobot
from decap.deploy.states import Mode
from decap.deploy.stops import Limits
from decap.errors import UserError

STAND_S, RELEASE_S, WALK_S = 0.4, 1.0, 1.5
LEG_S = 30.0
"""Length of one walk of the soak."""
EDGE_M = 0.5
"""A walk is over so far before a course ends: behind it a robot falls over the edge."""
COMMAND_S = 4.0
AFTER_S = 2.0
"""So long after a stop a robot must still be up, had it not been stopped."""
BLIND = Limits(
  tilt_rad=np.inf,
  joint_margin_rad=np.inf,
  joint_speed_share=np.inf,
  target_jump_rad=np.inf,
)
DOMAINS = 20
"""DDS domains that runs with processes take turns on."""


def run_faults(
  bundle: Bundle, kinds: tuple[str, ...], seeds: int, domain: int, jobs: int = 1
) -> Iterator[Outcome]:
  """All runs, class by class; runs are the same whatever the number of processes."""
  tasks = [(kind, seed, domain) for kind in kinds for seed in range(seeds)]
  for alone, runs in itertools.groupby(tasks, lambda task: task[0] in KILLS):
    # What has processes of its own is timed by the clock on the wall: one at a time.
    yield from in_order(_run, bundle, runs, 1 if alone else jobs)


def _run(bundle: Bundle, kind: str, seed: int, domain: int) -> Outcome:
  if kind not in KILLS:
    return play(kind, seed, bundle)
  # The last run's watchdog still damps: no two runs in a row share a domain.
  turn = seed + KILLS.index(kind) * DOMAINS // len(KILLS)
  return play_kill(kind, seed, bundle, domain + turn % DOMAINS)


@dataclass
class Leg:
  """One walk of the soak."""

  terrain: str
  seed: int
  seconds: float
  end: str
  """walked, fell, or false stop."""
  reason: str = ""


def soak(
  bundle: Bundle, seconds: float, jobs: int = 1, leg_s: float = LEG_S
) -> Iterator[Leg]:
  """Walks on all terrains in turn with changing commands, until enough was walked.

  Walks are the same whatever the number of processes.
  """
  walked, number = 0.0, 0
  names = list(TERRAINS)
  while walked < seconds:
    count = math.ceil((seconds - walked) / leg_s)
    legs = range(number, number + count)
    tasks = [(names[k % len(names)], k, leg_s) for k in legs]
    before = walked
    for leg in in_order(walk_leg, bundle, tasks, jobs):
      walked += leg.seconds
      yield leg
    if walked == before:
      raise UserError(f"{bundle.folder} does not walk: {leg.reason}.")
    number += count


def walk_leg(bundle: Bundle, terrain: str, seed: int, leg_s: float = LEG_S) -> Leg:
  """One walk; a stop of a robot that would have gone on is a false one."""
  leg, fell = _walk(bundle, terrain, seed, leg_s)
  if not leg.reason:
    return leg
  # A robot that stumbles is stopped before it lies: the same walk again, unstopped.
  fell = fell or _walk(bundle, terrain, seed, leg.seconds + AFTER_S, BLIND)[1]
  return replace(leg, end="fell" if fell else "false stop")


def _walk(
  bundle: Bundle, terrain: str, seed: int, leg_s: float, limits: Limits | None = None
) -> tuple[Leg, bool]:
  """A walk that ends with its time, its course or a stop; and whether the robot fell."""
  sim = SimulatedRobot(
    motors_for(bundle.joint_names), SimCfg(terrain=terrain, seed=seed)
  )
  forward_only = terrain not in ("flat", "carpet")
  script = _commands(bundle, seed, forward_only)
  controller = Controller(
    sim, sim.motors, [bundle], Script(script), limits, stand_s=STAND_S
  )

  def release(_: Controller, cycle: Cycle) -> None:
    if sim.held and cycle.now_s >= RELEASE_S:
      sim.release()

  controller.observers.append(release)
  end_s = WALK_S + leg_s
  fell = False

  def over() -> bool:
    nonlocal fell
    # It tips over, or sinks to its knees; before, it may hang.
    down = sim.tilt() > 0.5 or sim.base_height() < 0.6
    fell = fell or (down and sim.now_s() > WALK_S)
    stopped = controller.machine.mode is Mode.DAMPING
    x, y = sim.data.qpos[:2]
    left = not TERRAINS[terrain].holds(x, y, EDGE_M)
    return sim.now_s() >= end_s or stopped or left

  controller.run(over)
  reason = controller.machine.stop_reason
  walked_s = max(0.0, sim.now_s() - WALK_S)
  return Leg(terrain, seed, walked_s, "walked", reason), fell


def _commands(bundle: Bundle, seed: int, forward_only: bool) -> str:
  """A script of random commands within the policy's range, for the longest walk."""
  random = np.random.default_rng([97, seed])
  ranges = next(iter(bundle.info["command_ranges"].values()))
  names = ("lin_vel_x", "lin_vel_y", "ang_vel_z")
  lines = ["0 stand", f"{STAND_S} policy"]
  for start_s in np.arange(WALK_S, WALK_S + LEG_S, COMMAND_S):
    values = [random.uniform(*ranges[name]) for name in names]
    if forward_only:
      values = [0.4 * ranges[names[0]][1], 0.0, 0.0]
    lines.append(f"{start_s} {' '.join(f'{v:.3f}' for v in values)}")
  return "\n".join(lines)


def summary(outcomes: list[Outcome], legs: list[Leg]) -> dict[str, Any]:
  """Everything that was measured, for a JSON file."""
  classes = {}
  for kind in KINDS:
    runs = [o for o in outcomes if o.kind == kind]
    if not runs:
      continue
    reactions = [o.reaction_s for o in runs if o.reaction_s is not None]
    classes[kind] = {
      "must": "walk on"
      if kind in TOLERATED
      else f"damping within {round(1e3 * within_s(kind))} ms",
      "runs": len(runs),
      "passed": sum(o.passed for o in runs),
      "longest_reaction_s": max(reactions, default=None),
      "failures": [asdict(o) for o in runs if not o.passed],
    }
  walks: dict[str, Any] = {}
  if legs:
    ends = [leg.end for leg in legs]
    walks = {
      "seconds": sum(leg.seconds for leg in legs),
      "walks": len(legs),
      "falls": ends.count("fell"),
      "false_stops": ends.count("false stop"),
      "by_terrain": {
        name: {
          "seconds": sum(leg.seconds for leg in legs if leg.terrain == name),
          "falls": sum(leg.end == "fell" for leg in legs if leg.terrain == name),
        }
        for name in TERRAINS
      },
      "stops": [asdict(leg) for leg in legs if leg.end != "walked"],
    }
  return {
    "runs": len(outcomes),
    "passed": sum(o.passed for o in outcomes),
    "classes": classes,
    "soak": walks,
  }
