"""All benchmarks as data: their cases, tables, sentences and figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from benchmarks import engines, learning, scaling
from benchmarks.loops import on_cores, ours, physics, stock
from benchmarks.report import Benchmark, Row, Settings
from decap.methods import METHODS
from decap.sim.threads import available_cpus

TRAINING_CASES: dict[str, tuple[str, Callable[[Settings], Row]]] = {
  "stock": ("stock mjlab + rsl_rl", stock),
  "eager": ("ours, eager", partial(ours, use_graphs=False)),
  "captured": ("ours, captured", ours),
  "unconstrained": (
    "ours, no constraints",
    partial(ours, plain=True, constrained=False),
  ),
  "physics": ("physics alone", physics),
  "mjlab-task": ("mjlab's own G1 task + rsl_rl", partial(stock, own_task=True)),
}
"""Name → title and function."""

TRAINING = Benchmark(
  name="throughput",
  measured="environment steps per second of rollout and of training",
  cases={name: title for name, (title, _) in TRAINING_CASES.items()},
  measure=lambda case, settings: TRAINING_CASES[case][1](settings),
  columns=(
    ("rollout_steps_per_s", "rollout, steps/s", "{:,.0f}"),
    ("train_steps_per_s", "training, steps/s", "{:,.0f}"),
    ("collect_ms", "collect, ms", "{:.1f}"),
    ("update_ms", "update, ms", "{:.1f}"),
    ("busy", "GPU busy", "{:.0%}"),
    ("memory_gb", "memory, GB", "{:.1f}"),
  ),
  defaults={
    # Without a GPU there is nothing to capture, and mjlab's task casts rays, slowly.
    "cpu": ((64, 256), ("stock", "eager", "unconstrained", "physics")),
    "cuda": ((1024, 4096, 8192, 16384), tuple(TRAINING_CASES)),
  },
  ratios={
    "over_stock": ("stock", "train_steps_per_s"),
    "rollout_over_stock": ("stock", "rollout_steps_per_s"),
    "over_mjlab_task": ("mjlab-task", "train_steps_per_s"),
    "of_physics": ("physics", "rollout_steps_per_s"),
    "of_unconstrained": ("unconstrained", "train_steps_per_s"),
  },
  notes={
    ("captured", "eager"): (
      "training {over_stock:.2f} × stock",
      "rollout {rollout_over_stock:.2f} × stock",
      "training {over_mjlab_task:.2f} × mjlab's own G1 task",
      "rollout {of_physics:.0%} of physics alone",
      "training {of_unconstrained:.1%} of what it is without constraints",
    )
  },
  panels=(
    ("rollout, steps/s", "num_envs", "rollout_steps_per_s"),
    ("training, steps/s", "num_envs", "train_steps_per_s"),
  ),
)

ENGINES_CASES = {
  "decap": "decap, C MuJoCo",
  "native": "mjlab, C MuJoCo",
  "warp": "mjlab, MuJoCo Warp",
}

ENGINES = Benchmark(
  name="engines",
  measured="control steps per second on the CPU, random actions",
  cases=ENGINES_CASES,
  measure=engines.measure,
  columns=(
    ("env_steps_per_s", "whole step, 1/s", "{:,.0f}"),
    ("env_ratio", "× Warp", "{:.1f}"),
    ("physics_per_s", "physics, 1/s", "{:,.0f}"),
    ("physics_ratio", "× Warp", "{:.1f}"),
    ("start_s", "start, s", "{:.1f}"),
  ),
  defaults={"cpu": ((64, 256), tuple(ENGINES_CASES))},
  ratios={
    "env_ratio": ("warp", "env_steps_per_s"),
    "physics_ratio": ("warp", "physics_per_s"),
  },
  settings={"seconds": 4.0},
)

SCALING = Benchmark(
  name="scaling",
  measured="training with several processes, and with one that is alone",
  cases={
    "one": "one process, in a group of one",
    "two": "two processes on two cores",
  },
  measure=scaling.measure,
  columns=(
    ("steps_per_s", "training, steps/s", "{:,.0f}"),
    ("speed_up", "× alone", "{:.2f}"),
    ("ceiling", "at most", "{:.2f}"),
    ("count", "reductions", "{}"),
    ("megabytes", "MB", "{:.1f}"),
    ("turns", "turns", "{}"),
    ("load", "load", "{}"),
  ),
  defaults={"cpu": ((256,), ("one", "two")), "cuda": ((4096,), ("one",))},
  complete=scaling.with_ratios,
  notes={
    ("one",): (
      "one process in a group of one {overhead:+.2%} of time (± {overhead_error:.2%})",
      "reductions {share:.2%} of processor time, without a group {alone_share:.3%}",
    ),
    ("two",): (
      "two processes on two cores {speed_up:.2f} × one on one core",
      "{speed_up_by_cpu:.2f} × by processor time, waiting aside",
      "two that know nothing of each other {ceiling:.2f} ×",
      "these with half of the environments each {halves:.2f} ×",
    ),
  },
  settings={"seconds": 20.0},
)

CORES_CASES = tuple(str(count) for count in range(1, available_cpus() + 1))
RUN_STEPS = 1650 * 24 * 256
"""Of the run from scratch that docs/laptops.md is about."""


def with_hours(rows: Sequence[Row]) -> list[Row]:
  """Rows and what their speed makes of an hour, and of a run."""
  return [
    {**row, "an_hour": speed * 3600 / 1e6, "run_h": RUN_STEPS / speed / 3600}
    if (speed := row.get("train_steps_per_s"))
    else row
    for row in rows
  ]


CORES = Benchmark(
  name="cores",
  measured="environment steps per second of training, by cores",
  cases=dict(zip(CORES_CASES, CORES_CASES, strict=True)),
  measure=lambda case, settings: on_cores(int(case), settings),
  columns=(
    ("train_steps_per_s", "steps per second", "{:,.0f}"),
    ("an_hour", "an hour", "{:.0f} million"),
    ("run_h", "10.1 million steps", "{:.1f} h"),
  ),
  defaults={"cpu": ((256,), tuple(c for c in ("2", "8", "16") if c in CORES_CASES))},
  complete=with_hours,
  key="cores",
)

PLAIN_PPO = "plain PPO"
METHOD_CASES = (PLAIN_PPO, *METHODS)


def measure_method(case: str, settings: Settings) -> Row:
  row = ours(settings, plain=True) if case == PLAIN_PPO else ours(settings, case)
  return {"steps_per_s": row["train_steps_per_s"], **row}


METHOD = Benchmark(
  name="methods",
  measured="environment steps per second of training, by method",
  cases=dict(zip(METHOD_CASES, METHOD_CASES, strict=True)),
  measure=measure_method,
  columns=(
    ("steps_per_s", "training, steps/s", "{:,.0f}"),
    ("relative", "of plain PPO", "{:.1%}"),
    ("captured", "captured", "{}"),
    ("iterations", "iterations", "{}"),
  ),
  defaults={"cpu": ((64,), METHOD_CASES), "cuda": ((2048,), METHOD_CASES)},
  ratios={"relative": (PLAIN_PPO, "steps_per_s")},
  key="method",
  settings={"seconds": 12.0},
)

LEARNING = Benchmark(
  name="learning",
  measured="reward per step of PPO in both loops, by iteration",
  cases={"stock": "stock mjlab + rsl_rl", "ours": "ours"},
  measure=learning.measure,
  columns=(
    ("seed", "seed", "{}"),
    ("reward_end", "reward per step", "{:.4f}"),
    ("mean", "mean so far", "{:.4f}"),
    ("deviation", "±", "{:.4f}"),
    ("ended_end", "episodes ended, of steps", "{:.3%}"),
    ("million", "million samples", "{:.1f}"),
  ),
  defaults={"cpu": ((64,), ("stock", "ours")), "cuda": ((1024,), ("stock", "ours"))},
  complete=learning.with_ends,
  panels=(("reward per step", "samples", "reward"),),
  settings={"iterations": 150},
  seeds=(1, 2, 3),
)

BENCHMARKS = {
  "training": TRAINING,
  "engines": ENGINES,
  "scaling": SCALING,
  "cores": CORES,
  "methods": METHOD,
  "learning": LEARNING,
}
