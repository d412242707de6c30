"""How long training takes on laptops: its speed on some of this machine's cores.

``python benchmarks/cores.py`` measures 2, 8 and 16 cores in a minute, writes
results/bench/cores.json and the table of docs/laptops.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from decap.bench.report import Row, Settings, write_report
from decap.bench.training import configure_torch, measure_case

CORES_BENCHMARK = SimpleNamespace(
  name="cores", measured="environment steps per second of training, by cores"
)
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "bench" / "cores.json"
PAGE = ROOT / "docs" / "laptops.md"
MARKED = re.compile(r"(<!-- cores -->\n).*?(<!-- / -->)", re.DOTALL)
RUN_STEPS = 25e6
"""Of the run from scratch that the page is about."""


def bench_cores(
  counts: Sequence[int],
  *,
  num_envs: int = 256,
  seconds: float = 2.0,
  json_path: Path | None = None,
) -> list[Row]:
  """Trains on the first so many cores, one number after the other; a line each.

  The engine starts one thread to each core that the process may use.
  """
  configure_torch("cpu")
  cores = sorted(os.sched_getaffinity(0))
  if not counts or min(counts) < 1 or max(counts) > len(cores):
    raise SystemExit(f"This machine has {len(cores)} cores for {list(counts)}.")
  settings = Settings("g1-flat", num_envs, "cpu", seconds)
  rows: list[Row] = []
  try:
    for count in counts:
      os.sched_setaffinity(0, cores[:count])
      rows.append({"cores": count, **measure_case("eager", settings)})
      if rows[-1]["error"]:
        raise SystemExit(rows[-1]["error"])
      print(f"{count} cores: {rows[-1]['train_steps_per_s']:,.0f} steps/s", flush=True)
  finally:
    os.sched_setaffinity(0, cores)
  if json_path is not None:
    write_report(json_path, CORES_BENCHMARK, {"task": settings.task}, rows)
  return rows


def table(report: Mapping[str, Any]) -> str:
  """What a file says, for the page."""
  lines = [
    "| cores | steps per second | an hour | 25 million steps |",
    "|---|---:|---:|---:|",
  ]
  for row in report["results"]:
    speed = row["train_steps_per_s"]
    lines.append(
      f"| {row['cores']} of {report['machine']['cpu']} | {speed / 1e3:.1f} k "
      f"| {speed * 3600 / 1e6:.0f} million | {RUN_STEPS / speed / 3600:.1f} h |"
    )
  return "\n".join(lines) + "\n"


def write_page(path: Path = PAGE, results: Path = RESULTS) -> None:
  """Put the table into the page."""
  rows = table(json.loads(results.read_text("utf-8")))
  text = path.read_text("utf-8")
  path.write_text(MARKED.sub(lambda m: m[1] + rows + m[2], text), "utf-8")


if __name__ == "__main__":
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--cores", type=int, nargs="+", default=[2, 8, 16])
  parser.add_argument("--seconds", type=float, default=2.0)
  options = parser.parse_args()
  bench_cores(options.cores, seconds=options.seconds, json_path=RESULTS)
  write_page()
