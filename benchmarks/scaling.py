"""What several processes cost and gain: measured with one and two.

A process that is alone and processes that train together take turns, so that a machine
that is busy with other work slows both down. With one process they compute the same
numbers, and all that differs is the distributed code path.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Row, Settings
from decap.cli.processes import check_share


def measure(case: str, settings: Settings) -> Row:
  """What the first of the processes measured, which torchrun starts."""
  number = {"one": 1, "two": 2}[case]
  check_share(settings.num_envs, number)
  row: Row = {"processes": number, "load": round(os.getloadavg()[0], 1)}
  with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "result.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(number), "-m", "benchmarks.scaling_process"]
    done = subprocess.run(
      [*command, json.dumps(dataclasses.asdict(settings)), str(file)],
      cwd=Path(__file__).parents[1],
      env={**os.environ, "OMP_NUM_THREADS": "1"},
      capture_output=True,
      text=True,
    )
    if done.returncode == 0:
      return {**row, **json.loads(file.read_text())}
  lines = [line.strip() for line in done.stderr.splitlines() if "Error" in line]
  return {**row, "error": (lines or ["the processes ended with an error"])[0]}


def with_ratios(rows: Sequence[Row]) -> list[Row]:
  """Rows and how much faster, or slower, training together is."""
  return [row if row.get("error") else {**row, **_ratios(row)} for row in rows]


def _ratios(row: Row) -> Row:
  alone_s, turns = row["alone_s"], row["turns_s"]
  found = {
    "speed_up": alone_s / row["together_s"],
    "steps_per_s": row["steps"] / row["together_s"],
    "count": sum(row["reductions"].values()),
    "megabytes": sum(int(size) * n for size, n in row["reductions"].items()) / 1e6,
  }
  if row["alone_cpu_s"]:
    found["speed_up_by_cpu"] = row["alone_cpu_s"] / row["together_cpu_s"]
  if "apart_s" in row:
    # Of processes that know nothing of each other: the machine's best.
    found["ceiling"] = row["processes"] * alone_s / row["apart_s"]
    found["halves"] = alone_s / row["halves_s"]
  # Turns in pairs, since both ways train alike and at nearly the same time. The first
  # pair fills caches.
  pairs = zip(turns["alone"][1:], turns["together"][1:], strict=True)
  more = [together / alone - 1.0 for alone, together in pairs]
  found["overhead"] = statistics.median(more)
  found["overhead_error"] = statistics.stdev(more) / math.sqrt(len(more))
  return found
