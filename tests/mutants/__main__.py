"""Which small wrong changes of the code do the tests notice? `make mutants` says.

All mutants of the files below are tried, two at a time, on the tests that run the
changed line, quick ones first. `equivalent.yaml` lists those that change nothing that
anyone could see, each with its reason. What was found is written file by file; files
that are as they were, with their tests, are not tried again.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import itertools
import json
import os
import random
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.mutants.operators import Mutant, mutants
from tests.mutants.report import Report

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PACKAGE = ROOT / "src" / "decap"
FILES = {
  "constraints/ema.py": ("constraints/test_termination", "rl/test_feasibility"),
  "constraints/composition.py": (
    "constraints/test_composition",
    "envs/test_constraint_manager",
    "rl/test_feasibility",
  ),
  "constraints/groups.py": ("constraints/test_groups",),
  "constraints/quantities.py": ("constraints/test_quantities",),
  "constraints/termination.py": (
    "constraints/test_termination",
    "constraints/test_composition",
    "constraints/test_properties",
  ),
  "rl/returns.py": ("rl/test_returns", "rl/test_ppo"),
  "rl/feasibility.py": ("rl/test_feasibility",),
  "rl/ppo.py": (
    "rl/test_ppo",
    "rl/test_ppo_state",
    "rl/test_recipe",
    "rl/test_lcp",
    "rl/test_cost_critic",
    "rl/test_environment",
  ),
  "rl/losses.py": ("rl/test_losses", "rl/test_ppo"),
  "rl/schedules.py": ("rl/test_schedules", "rl/test_ppo"),
  "rl/optimizer.py": ("rl/test_ppo_state", "rl/test_ppo"),
  "rl/cost_critic.py": ("rl/test_cost_critic", "rl/test_lagrangian", "rl/test_n_ipo"),
  "envs/constraint_manager.py": (
    "envs/test_constraint_manager",
    "envs/test_constrained_env",
  ),
  "envs/mdp/rewards.py": ("envs/mdp/test_rewards", "envs/mdp/test_terrain"),
  "envs/masked_reset.py": (
    "envs/test_masked_reset_terms",
    "envs/test_masked_reset",
    "envs/test_constrained_env",
    "envs/mdp/test_events",
    "envs/mdp/test_actuation",
    "envs/test_substitutes",
  ),
  "evaluation/metrics.py": ("evaluation/test_metrics", "evaluation/test_motion"),
  "deploy/bundle.py": ("deploy/test_bundle", "deploy/test_formats"),
}
"""File → tests that are to notice its changes, the nearest first."""
LONGEST_S, ENOUGH_S = 2.0, 10.0
"""Tests that take longer are left out, and no mutant is tried for longer; both by the
CPU time that tests took before, without their modules' fixtures."""
LEAST_SHARE = 0.95
"""Share of the mutants, without equivalent ones, that must be noticed."""


class Queue:
  """Indices that several processes take from, each once."""

  def __init__(self, indices: list[int]):
    read, write = os.pipe()
    self._read = read
    # The pipe holds 64 KiB, far more than all indices.
    os.write(write, b"".join(struct.pack("i", index) for index in indices))
    os.close(write)

  def take(self) -> int | None:
    data = os.read(self._read, 4)
    return struct.unpack("i", data)[0] if data else None


def main() -> int:
  options = _options()
  os.chdir(ROOT)
  sys.path.insert(0, str(PACKAGE.parent))
  os.environ |= {"OMP_NUM_THREADS": "1", "MUJOCO_GL": "disable"}
  paths = [p for p in FILES if not options.only or any(o in p for o in options.only)]
  found = {path: mutants(PACKAGE, path) for path in FILES}
  equivalent = _equivalent(found)
  report = Report(options.output, FILES, options.fresh)
  report.keep({p: _digest(p, equivalent, options) for p in FILES}, paths)
  todo = [path for path in paths if path not in report.files]
  tried = [m for path in todo for m in _chosen(found[path], equivalent, options)]
  if tried:
    start = time.monotonic()
    _import_libraries()
    tests = _baseline(todo, options.verbose)
    for path, outcomes, cpu_s in _try_all(tried, tests, options):
      now = time.monotonic()
      times = {"wall_s": round(now - start, 1), "cpu_s": round(cpu_s, 1)}
      report.add(path, len(found[path]), equivalent, outcomes, times)
      start = now
  print(report.summary())
  return 0 if report.share_killed >= LEAST_SHARE else 1


def _options() -> argparse.Namespace:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--only", nargs="*", default=(), help="parts of files' paths")
  parser.add_argument("--output", help="JSON file; a run goes on from what is in it")
  parser.add_argument("--fresh", action="store_true", help="begin anew")
  parser.add_argument("--verbose", action="store_true", help="show every mutant")
  parser.add_argument(
    "--equivalent", action="store_true", help="try those of equivalent.yaml too"
  )
  parser.add_argument("--workers", type=int, default=2, help="processes that try")
  parser.add_argument("--share", type=float, default=1.0, help="try a sample only")
  parser.add_argument("--seed", type=int, default=0, help="of the sample")
  return parser.parse_args()


def _equivalent(found: dict[str, list[Mutant]]) -> dict[str, str]:
  """Names of equivalent mutants → reason; each must exist."""
  listed = yaml.safe_load((HERE / "equivalent.yaml").read_text()) or {}
  reasons = {name: reason for reason, names in listed.items() for name in names}
  stale = sorted(reasons.keys() - {m.name for ms in found.values() for m in ms})
  if stale:
    sys.exit("equivalent.yaml names mutants that are gone:\n" + "\n".join(stale))
  return reasons


def _chosen(found: list[Mutant], equivalent, options) -> list[Mutant]:
  """The mutants of a file that are tried."""
  found = [m for m in found if m.name not in equivalent or options.equivalent]
  count = round(options.share * len(found))
  return (
    random.Random(options.seed).sample(found, count) if count < len(found) else found
  )


def _digest(path: str, equivalent: dict[str, str], options) -> str:
  """Changes with a file, its tests, its equivalent mutants and the sample."""
  files = [f"src/decap/{path}", *_test_files([path])]
  texts = [Path(file).read_text() for file in files]
  texts += sorted(name for name in equivalent if name.startswith(f"{path}:"))
  texts += [f"{options.share} {options.seed} {options.equivalent}"]
  return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _import_libraries() -> None:
  """What both kinds of children share; mjlab would import decap, too."""
  import mujoco_warp  # noqa: F401
  import onnx  # noqa: F401
  import onnxruntime  # noqa: F401
  import rsl_rl.algorithms  # noqa: F401
  import torch
  import torch.utils.tensorboard

  torch.set_num_threads(1)


def _baseline(paths: list[str], verbose: bool) -> dict[str, Any]:
  """Test → its seconds, and the lines that it runs as (file, number)."""
  from tests.mutants import trial

  path = Path(tempfile.mkdtemp(prefix="mutants-")) / "baseline.json"
  child = os.fork()
  if not child:
    import pytest

    _silence(verbose)
    baseline = trial.Baseline([str(PACKAGE / p) for p in paths])
    pytest.main([*trial.PYTEST, *_test_files(paths)], plugins=[baseline])
    trial.save(str(path), {"tests": baseline.tests, "failed": baseline.failed})
    os._exit(0)
  os.waitpid(child, 0)
  result = json.loads(path.read_text())
  if not result["tests"]:
    sys.exit("No tests ran; --verbose shows why.")
  if result["failed"]:
    sys.exit("These fail without any change: " + ", ".join(result["failed"]))
  for test in result["tests"].values():
    test["lines"] = {tuple(line) for line in test["lines"]}
  return result["tests"]


def _test_files(paths: Iterable[str]) -> list[str]:
  names = dict.fromkeys(name for path in paths for name in FILES[path])
  return [f"tests/{name}.py" for name in names]


def _tests_of(mutant: Mutant, tests: dict[str, Any]) -> list[str]:
  """Tests that run a mutant's statement: file by file, quick ones first."""
  lines = {(mutant.file, line) for line in mutant.lines}
  chosen = []
  for file in _test_files([mutant.path]):
    names = [n for n in tests if n.split("::")[0] == file]
    if mutant.hot:
      names = [n for n in names if lines & tests[n]["lines"]]
    names = [n for n in names if tests[n]["seconds"] < LONGEST_S]
    chosen += sorted(names, key=lambda n: tests[n]["seconds"])
  spent = itertools.accumulate(tests[name]["seconds"] for name in chosen)
  return [name for name, total in zip(chosen, spent, strict=True) if total < ENOUGH_S]


def _try_all(
  tried: list[Mutant], tests: dict[str, Any], options: argparse.Namespace
) -> Iterator[tuple[str, dict[str, str], float]]:
  """A file as soon as its mutants were tried, what noticed each ("": nothing), and
  the CPU time that they took."""
  from tests.mutants import trial

  cold = Queue([i for i, m in enumerate(tried) if not m.hot])
  hot = Queue([i for i, m in enumerate(tried) if m.hot])
  read, write = os.pipe()
  for _ in range(options.workers):
    if not os.fork():
      os.close(read)
      _silence(options.verbose)
      _work(tried, tests, cold, hot, write)
      os._exit(0)
  os.close(write)
  left = Counter(mutant.path for mutant in tried)
  outcomes: dict[str, dict[str, str]] = {path: {} for path in left}
  cpu_s: Counter[str] = Counter()
  with os.fdopen(read) as answers:
    for index, by, seconds in map(json.loads, answers):
      path, name = tried[index].path, tried[index].name
      if by.startswith(trial.BROKEN):
        sys.exit(f"{by} with {name}")
      outcomes[path][name] = by
      cpu_s[path] += seconds
      left[path] -= 1
      if not left[path]:
        yield path, outcomes.pop(path), cpu_s[path]
  if outcomes:
    sys.exit(f"Workers ended early, with mutants left in {', '.join(outcomes)}.")


def _work(tried, tests, cold: Queue, hot: Queue, answers: int) -> None:
  import pytest

  from tests.mutants import trial

  def done(index: int, by: str, seconds: float) -> None:
    os.write(answers, (json.dumps((index, by[:1000], seconds)) + "\n").encode())

  while (index := cold.take()) is not None:  # While this process is without decap.
    names = _tests_of(tried[index], tests)
    limit = int(60 + 3 * sum(tests[name]["seconds"] for name in names))
    attempt = functools.partial(trial.cold, tried[index], names, limit)
    done(index, *(trial.in_child(attempt) if names else ("", 0.0)))
  trials = trial.Trials(tried, hot.take, lambda m: _tests_of(m, tests), done)
  files = _test_files(dict.fromkeys(mutant.path for mutant in tried))
  pytest.main([*trial.PYTEST, *files], plugins=[trials])


def _silence(verbose: bool) -> None:
  if not verbose:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


if __name__ == "__main__":
  sys.exit(main())
