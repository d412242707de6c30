"""What several processes cost and gain: measured with one and two, modelled for more.

A process that is alone and processes that train together take turns, so that a machine
that is busy with other work slows both down. With one process they compute the same
numbers, and all that differs is the distributed code path.

The model, which is no measurement: an all-reduce of b bytes over n processes takes
2 ⌈log₂ n⌉ messages of a tree and moves 2 b (n − 1) / n bytes of a ring through each
link; nothing overlaps with computation, as in the code, and no process waits for a
slower one.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from decap.bench.report import Benchmark, Row, Settings
from decap.errors import UserError

PROCESSES = {"one": 1, "two": 2}
CASES = {
  "one": "one process, in a group of one",
  "two": "two processes on two cores",
}

# The model.

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


def measure(settings: Settings) -> Iterator[Row]:
  """Each case in processes of its own, started by torchrun."""
  for case in settings.cases:
    number = PROCESSES[case]
    if settings.num_envs % number:
      raise UserError(
        f"{settings.num_envs} environments cannot be shared by {number} processes."
      )
    row: Row = {"case": case, "num_envs": settings.num_envs, "processes": number}
    row["load"] = round(os.getloadavg()[0], 1)
    yield {**row, **_run(settings, number)}


def _run(settings: Settings, number: int) -> dict[str, Any]:
  """What the first process measured; or what went wrong, in its last line."""
  with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "result.json"
    arguments = [settings.task, str(settings.num_envs), settings.device]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(number), "-m", "decap.bench.scaling_process"]
    done = subprocess.run(
      [*command, *arguments, str(settings.seconds), str(file)],
      env={**os.environ, "OMP_NUM_THREADS": "1"},
      capture_output=True,
      text=True,
    )
    if done.returncode == 0:
      return json.loads(file.read_text())
  lines = [line for line in done.stderr.splitlines() if "Error" in line]
  return {"error": lines[0].strip() if lines else "the processes ended with an error"}


def _default_cases(device: str, num_envs: int) -> tuple[str, ...]:
  return ("one", "two") if device == "cpu" else ("one",)


def with_ratios(rows: Sequence[Row]) -> list[Row]:
  """Rows and how much faster, or slower, training together is."""
  out = []
  for row in rows:
    if row.get("error"):
      out.append(row)
      continue
    apart = row.get("apart_s")
    derived = {
      "speed_up": row["alone_s"] / row["together_s"],
      # Of processes that know nothing of each other: the machine's best.
      "ceiling": row["processes"] * row["alone_s"] / apart if apart else None,
      "steps_per_s": row["steps"] / row["together_s"],
      "count": sum(row["reductions"].values()),
      "megabytes": sum(int(b) * n for b, n in row["reductions"].items()) / 1e6,
    }
    out.append({**row, **derived})
  return out


def _overhead(alone: Sequence[float], together: Sequence[float]) -> tuple[float, float]:
  """Median over turns of what the group adds, and the standard error.

  Turns are compared in pairs, since both ways train alike and at nearly the same time.
  The first pair fills caches.
  """
  ratios = [t / a - 1.0 for a, t in zip(alone[1:], together[1:], strict=True)]
  return statistics.median(ratios), statistics.stdev(ratios) / math.sqrt(len(ratios))


def summary(rows: Sequence[Row]) -> dict[str, Any]:
  """Overhead of one process, speed-up of two, and the model that follows."""
  found = {row["case"]: row for row in with_ratios(rows) if not row.get("error")}
  out: dict[str, Any] = {}
  if one := found.get("one"):
    out["overhead"], out["overhead_error"] = _overhead(**one["turns_s"])
    if one["share"] is not None:
      # Counted within iterations, so that others on the machine do not matter.
      out["share_of_reductions"] = one["share"]
      out["share_without_group"] = one["alone_share"]
  if two := found.get("two"):
    out |= {name: two[name] for name in ("speed_up", "ceiling")}
    out["speed_up_without_reductions"] = two["alone_s"] / two["halves_s"]
    if two["alone_cpu_s"]:
      out["speed_up_by_cpu_time"] = two["alone_cpu_s"] / two["together_cpu_s"]
  if found:
    last = list(found.values())[-1]
    measured = last["alone_s"] if last["device"] != "cpu" else None
    out["model"] = model(last["reductions"], measured, last["num_envs"])
  return out


def notes(rows: Sequence[Row]) -> list[str]:
  """What was measured, and the model, said to be one."""
  found = summary(rows)
  lines = []
  if "overhead" in found:
    text = f"One process in a group of one: {found['overhead']:+.2%} of time"
    text += f" (± {found['overhead_error']:.2%})"
    if "share_of_reductions" in found:
      text += (
        f"; reductions take {found['share_of_reductions']:.2%} of processor time, "
      )
      text += f"and without a group {found['share_without_group']:.3%}"
    lines.append(text)
  if "speed_up" in found:
    cpu = found.get("speed_up_by_cpu_time")
    by_cpu = f" ({cpu:.2f} × by processor time, waiting aside)" if cpu else ""
    lines += [
      f"Two processes on two cores: {found['speed_up']:.2f} × one on one core{by_cpu}",
      f"The ceiling: two trainings at once that know nothing of each other do "
      f"{found['ceiling']:.2f} × the work of one; with half of the environments each, "
      f"{found['speed_up_without_reductions']:.2f} ×",
    ]
  return lines + (model_lines(found["model"]) if "model" in found else [])


def reduction_s(size: int, gpus: int, latency_s: float, bytes_per_s: float) -> float:
  """Seconds of one all-reduce."""
  if gpus == 1:
    return 0.0
  messages = 2 * math.ceil(math.log2(gpus)) * latency_s
  return messages + 2 * size * (gpus - 1) / gpus / bytes_per_s


def model(
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


def model_lines(found: Mapping[str, Any]) -> list[str]:
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


BENCHMARK = Benchmark(
  name="scaling",
  measured="training with several processes, and with one that is alone",
  cases=CASES,
  columns=(
    ("steps_per_s", "training, steps/s", "{:,.0f}"),
    ("speed_up", "× alone", "{:.2f}"),
    ("ceiling", "at most", "{:.2f}"),
    ("count", "reductions", "{}"),
    ("megabytes", "MB", "{:.1f}"),
    ("turns", "turns", "{}"),
    ("load", "load", "{}"),
  ),
  measure=measure,
  num_envs={"cpu": (256,), "cuda": (4096,)},
  default_cases=_default_cases,
  summary=summary,
  notes=notes,
  complete=with_ratios,
)
