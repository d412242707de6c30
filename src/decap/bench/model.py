"""A model, not a measurement: training on 1 to 64 GPUs, from what one iteration reduces.

An all-reduce of b bytes over n processes takes 2 ⌈log₂ n⌉ messages of a tree and moves
2 b (n − 1) / n bytes of a ring through each link; nothing overlaps with computation, as
in the code, and no process waits for a slower one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

LINKS = {
  "NVLink": (6e-6, 300e9),
  "PCIe 4.0 x16": (10e-6, 20e9),
  "100 Gb/s Ethernet": (30e-6, 11e9),
}
"""Seconds of a message and bytes per second of a link: assumed, not measured here."""

GPUS = (1, 2, 4, 8, 16, 32, 64)
NUM_ENVS = 4096
ITERATION_S = 0.3059
"""Of 4096 environments on one H200: results/bench/throughput.json."""
STEPS = 24

ASSUMPTIONS = (
  f"{NUM_ENVS} environments on every GPU, however many there are",
  "every GPU has a link of its own, as fast as the table says",
  "reductions wait for computation and computation for reductions",
  "all processes are equally fast: nobody waits for the slowest",
)


def reduction_s(size: int, gpus: int, latency_s: float, bytes_per_s: float) -> float:
  """Seconds of one all-reduce."""
  if gpus == 1:
    return 0.0
  messages = 2 * math.ceil(math.log2(gpus)) * latency_s
  return messages + 2 * size * (gpus - 1) / gpus / bytes_per_s


def describe(
  reductions: Mapping[str, int], iteration_s: float | None, num_envs: int
) -> dict[str, Any]:
  """The model's rows, and all that went into it.

  Args:
    reductions: Bytes → number of reductions of one iteration.
    iteration_s: Of one GPU that was measured; None takes that of an H200.
    num_envs: Environments that it had.
  """
  if iteration_s is None:
    iteration_s, num_envs = ITERATION_S, NUM_ENVS
  rows = []
  for link, (latency_s, bytes_per_s) in LINKS.items():
    for gpus in GPUS:
      reduce_s = sum(
        number * reduction_s(int(size), gpus, latency_s, bytes_per_s)
        for size, number in reductions.items()
      )
      whole_s = iteration_s + reduce_s
      rows.append(
        {
          "link": link,
          "gpus": gpus,
          "reductions_ms": reduce_s * 1e3,
          "steps_per_s": gpus * num_envs * STEPS / whole_s,
          "efficiency": iteration_s / whole_s,
        }
      )
  links = {name: {"message_s": m, "bytes_per_s": b} for name, (m, b) in LINKS.items()}
  given = {"iteration_s": iteration_s, "num_envs": num_envs, "links": links}
  return {"is": "a model", "assumptions": ASSUMPTIONS, **given, "results": rows}


def lines(found: Mapping[str, Any]) -> list[str]:
  """The model as a short table, with what it assumes."""
  counts = (2, 8, 64)
  out = ["A model, not a measurement: share of ideal speed that is left"]
  for link in LINKS:
    rows = {row["gpus"]: row for row in found["results"] if row["link"] == link}
    cells = [
      f"{n} GPUs {rows[n]['efficiency']:.0%} ({rows[n]['steps_per_s'] / 1e6:.2f} M/s)"
      for n in counts
    ]
    out.append(f"  {link:<18} {', '.join(cells)}")
  return [*out, f"  assuming: {'; '.join(found['assumptions'])}"]
