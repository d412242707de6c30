"""Speed of training: stock mjlab + rsl_rl, ours, and the physics below both."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from decap.bench.cases import CASES, Timing, configure_torch
from decap.bench.gpu import is_out_of_memory, release_memory
from decap.bench.report import OUT_OF_MEMORY, Benchmark, ReportColumn, Row, Settings

GPU_CASES = ("stock", "eager", "captured", "unconstrained", "physics", "mjlab-task")
CPU_CASES = ("stock", "eager", "unconstrained", "physics")
"""Without a GPU there is nothing to capture, and mjlab's task casts rays, slowly."""

REFERENCE_NUM_ENVS = 4096
"""Where mjlab's own task is measured, unless it is asked for alone."""

TEXTS = {
  "training_over_stock": "training {:.2f} × stock",
  "rollout_over_stock": "rollout {:.2f} × stock",
  "training_over_mjlab_task": "training {:.2f} × mjlab's own G1 task",
  "rollout_over_physics": "rollout {:.0%} of physics alone",
  "constraint_overhead": "constraints cost {:.1%}",
}


def measure(settings: Settings) -> Iterator[Row]:
  """One broken case stops no other."""
  configure_torch(settings.device)
  for case in settings.cases:
    yield measure_case(case, settings)


def measure_case(case: str, settings: Settings) -> Row:
  """Run one case, and turn what goes wrong into a row that says so."""
  release_memory(settings.device)
  start = time.perf_counter()
  error = timing = None
  try:
    timing = CASES[case][1](settings)
  except Exception as problem:
    # Only its text: the traceback would keep the environment alive.
    error = OUT_OF_MEMORY if is_out_of_memory(problem) else _first_line(problem)
  row = {"case": case, "num_envs": settings.num_envs}
  row["seconds"] = time.perf_counter() - start
  return {**row, **(_speeds(timing) if timing else {}), "error": error}


def summary(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
  """The ratios that the numbers are about, by number of environments."""
  found = {(r["case"], r["num_envs"]): r for r in rows if r.get("error") is None}
  out: dict[str, dict[str, float]] = {}
  for count in dict.fromkeys(row["num_envs"] for row in rows):
    ours = found.get(("captured", count)) or found.get(("eager", count))
    if ours is None:
      continue
    ratios = {}
    if stock := found.get(("stock", count)):
      ratios["training_over_stock"] = _over(ours, stock, "train_steps_per_s")
      ratios["rollout_over_stock"] = _over(ours, stock, "rollout_steps_per_s")
    if reference := found.get(("mjlab-task", count)):
      ratio = _over(ours, reference, "train_steps_per_s")
      ratios["training_over_mjlab_task"] = ratio
    if physics := found.get(("physics", count)):
      ratios["rollout_over_physics"] = _over(ours, physics, "rollout_steps_per_s")
    if free := found.get(("unconstrained", count)):
      ratios["constraint_overhead"] = 1.0 - _over(ours, free, "train_steps_per_s")
    out[str(count)] = ratios
  return out


def notes(rows: Sequence[Row]) -> list[str]:
  """The ratios as sentences."""
  return [
    f"{count} environments: "
    + ", ".join(TEXTS[name].format(value) for name, value in ratios.items())
    for count, ratios in summary(rows).items()
    if ratios
  ]


def _default_cases(device: str, num_envs: int) -> tuple[str, ...]:
  if device == "cpu":
    return CPU_CASES
  reference = num_envs == REFERENCE_NUM_ENVS
  return GPU_CASES if reference else tuple(c for c in GPU_CASES if c != "mjlab-task")


def _speeds(timing: Timing) -> dict[str, Any]:
  trains = timing.update_s > 0.0
  whole = timing.collect_s + timing.update_s
  return {
    "rollout_steps_per_s": timing.steps / timing.collect_s,
    "train_steps_per_s": timing.steps / whole if trains else None,
    "collect_ms": timing.collect_s * 1e3,
    "update_ms": timing.update_s * 1e3 if trains else None,
    "iterations": timing.iterations,
    "busy": timing.busy,
    "memory_gb": timing.memory_gb,
  }


def _over(row: Row, other: Row, name: str) -> float:
  return row[name] / other[name]


def _first_line(error: BaseException) -> str:
  text = str(error).strip().splitlines()
  return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


BENCHMARK = Benchmark(
  name="throughput",
  measured="environment steps per second of rollout and of training",
  cases={name: title for name, (title, _) in CASES.items()},
  columns=(
    ReportColumn("rollout_steps_per_s", "rollout, steps/s", "{:,.0f}"),
    ReportColumn("train_steps_per_s", "training, steps/s", "{:,.0f}"),
    ReportColumn("collect_ms", "collect, ms", "{:.1f}"),
    ReportColumn("update_ms", "update, ms", "{:.1f}"),
    ReportColumn("busy", "GPU busy", "{:.0%}"),
    ReportColumn("memory_gb", "memory, GB", "{:.1f}"),
  ),
  measure=measure,
  num_envs={"cpu": (64, 256), "cuda": (1024, 4096, 8192, 16384)},
  default_cases=_default_cases,
  summary=summary,
  notes=notes,
)
