"""``decap bench``: measure speed on this machine."""

from __future__ import annotations

import argparse

from decap.commands import checks

BENCHMARKS = ("engines",)


def add_options(parser: argparse.ArgumentParser) -> None:
  """Which benchmark, its size, and a file for the numbers."""
  add = parser.add_argument
  add(
    "benchmark",
    choices=BENCHMARKS,
    help="engines: C MuJoCo against MuJoCo Warp's CPU backend",
  )
  add(
    "--num-envs",
    type=int,
    nargs="+",
    default=[64, 256],
    metavar="N",
    help="numbers of environments (default: 64 256)",
  )
  add("--steps", type=int, default=20, metavar="N", help="steps of each (default: 20)")
  add("--json", metavar="FILE", help="write the numbers here as well")


def run(options: argparse.Namespace) -> None:
  """Run a benchmark and print its table."""
  for num_envs in options.num_envs:
    checks.check_num_envs(num_envs, "cpu")
  checks.check_at_least("--steps", options.steps, 1)
  print("Loading torch and mjlab …", flush=True)
  from decap.bench.engines import bench_engines

  bench_engines(options.num_envs, options.steps, options.json)
