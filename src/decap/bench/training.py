"""Speed of training: stock mjlab + rsl_rl, ours, and the physics below both."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from decap.bench.cases import CASES, configure_torch
from decap.bench.gpu import is_out_of_memory, release_memory
from decap.bench.report import OUT_OF_MEMORY, Benchmark, Row, Settings

GPU_CASES = ("stock", "eager", "captured", "unconstrained", "physics", "mjlab-task")
CPU_CASES = ("stock", "eager", "unconstrained", "physics")
"""Without a GPU there is nothing to capture, and mjlab's task casts rays, slowly."""

REFERENCE_NUM_ENVS = 4096
"""Where mjlab's own task is measured, unless it is asked for alone."""

RATIOS = {
  "training_over_stock": ("stock", "train", "training {:.2f} × stock"),
  "rollout_over_stock": ("stock", "rollout", "rollout {:.2f} × stock"),
  "training_over_mjlab_task": (
    "mjlab-task",
    "train",
    "training {:.2f} × mjlab's own G1 task",
  ),
  "rollout_over_physics": ("physics", "rollout", "rollout {:.0%} of physics alone"),
  "constraint_overhead": ("unconstrained", "train", "constraints cost {:.1%}"),
}
"""Name → the case that ours is compared with, by which speed, and the words for it."""


def measure(settings: Settings) -> Iterator[Row]:
  """One broken case stops no other."""
  configure_torch(settings.device)
  for case in settings.cases:
    yield measure_case(case, settings)


def measure_case(case: str, settings: Settings) -> Row:
  """Run one case, and turn what goes wrong into a row that says so."""
  release_memory(settings.device)
  start = time.perf_counter()
  error, measured = None, {}
  try:
    measured = CASES[case][1](settings)
  except Exception as problem:
    # Only its text: the traceback would keep the environment alive.
    error = OUT_OF_MEMORY if is_out_of_memory(problem) else _first_line(problem)
  row = {"case": case, "num_envs": settings.num_envs}
  row["seconds"] = time.perf_counter() - start
  return {**row, **measured, "error": error}


def summary(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
  """The ratios that the numbers are about, by number of environments."""
  found = {(r["case"], r["num_envs"]): r for r in rows if r.get("error") is None}
  out: dict[str, dict[str, float]] = {}
  for count in dict.fromkeys(row["num_envs"] for row in rows):
    ours = found.get(("captured", count)) or found.get(("eager", count))
    if ours is None:
      continue
    ratios: dict[str, float] = {}
    for name, (case, speed, _) in RATIOS.items():
      if other := found.get((case, count)):
        ratio = ours[f"{speed}_steps_per_s"] / other[f"{speed}_steps_per_s"]
        ratios[name] = 1.0 - ratio if name == "constraint_overhead" else ratio
    out[str(count)] = ratios
  return out


def notes(rows: Sequence[Row]) -> list[str]:
  """The ratios as sentences."""
  return [
    f"{count} environments: "
    + ", ".join(RATIOS[name][2].format(value) for name, value in ratios.items())
    for count, ratios in summary(rows).items()
    if ratios
  ]


def _default_cases(device: str, num_envs: int) -> tuple[str, ...]:
  if device == "cpu":
    return CPU_CASES
  reference = num_envs == REFERENCE_NUM_ENVS
  return GPU_CASES if reference else tuple(c for c in GPU_CASES if c != "mjlab-task")


def _first_line(error: BaseException) -> str:
  text = str(error).strip().splitlines()
  return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


BENCHMARK = Benchmark(
  name="throughput",
  measured="environment steps per second of rollout and of training",
  cases={name: title for name, (title, _) in CASES.items()},
  columns=(
    ("rollout_steps_per_s", "rollout, steps/s", "{:,.0f}"),
    ("train_steps_per_s", "training, steps/s", "{:,.0f}"),
    ("collect_ms", "collect, ms", "{:.1f}"),
    ("update_ms", "update, ms", "{:.1f}"),
    ("busy", "GPU busy", "{:.0%}"),
    ("memory_gb", "memory, GB", "{:.1f}"),
  ),
  measure=measure,
  num_envs={"cpu": (64, 256), "cuda": (1024, 4096, 8192, 16384)},
  default_cases=_default_cases,
  summary=summary,
  notes=notes,
)
