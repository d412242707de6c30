"""Which small wrong changes of the code do the tests notice? `make mutants` says.

All mutants of the files below are tried, two at a time, on the tests that run the
changed line, quick ones first. `equivalent.yaml` lists those that change nothing that
anyone could see, each with its reason.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from tests.mutants.operators import Mutant, mutants

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PACKAGE = ROOT / "src" / "decap"
FILES = (
  "constraints/ema.py",
  "constraints/composition.py",
  "constraints/groups.py",
  "constraints/quantities.py",
  "constraints/termination.py",
  "rl/returns.py",
  "rl/feasibility.py",
  "rl/ppo.py",
  "rl/losses.py",
  "rl/schedules.py",
  "rl/optimizer.py",
  "rl/unsupported.py",
  "rl/cost_critic.py",
  "envs/constraint_manager.py",
  "envs/mdp/rewards.py",
  "envs/masked_reset.py",
  "evaluation/metrics.py",
  "deploy/bundle.py",
)
TESTS = (
  # Whole trainings, curves and CUDA graphs: slow, and they tell little that others don't.
  "--ignore=tests/rl/test_runner.py",
  "--ignore=tests/rl/test_curves.py",
  "--ignore=tests/rl/test_capture.py",
  "tests/constraints",
  "tests/rl",
  "tests/envs",
  "tests/evaluation/test_metrics.py",
  "tests/evaluation/test_motion.py",
  "tests/deploy/test_bundle.py",
)
LONGEST_S = 2.0
"""Tests that take longer are left out; their quicker neighbours must do."""
ENOUGH_S = 4.0
"""Tests are tried on one mutant until they would have taken this long."""
LEAST_SHARE = 0.95
"""Share of the mutants, without equivalent ones, that must be noticed."""
WORKERS = 2


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
  all_mutants = [m for path in paths for m in mutants(PACKAGE, path)]
  equivalent = _equivalent(all_mutants, paths)
  start = time.monotonic()
  work = Path(tempfile.mkdtemp(prefix="mutants-"))
  _import_libraries()
  tests = _baseline(work / "baseline.json", paths, options.verbose)
  tried = [m for m in all_mutants if m.name not in equivalent or options.equivalent]
  outcomes = _try_all(tried, tests, work / "outcomes", options.verbose)
  usage = resource.getrusage(resource.RUSAGE_CHILDREN)
  own = resource.getrusage(resource.RUSAGE_SELF)
  cpu = sum(u.ru_utime + u.ru_stime for u in (usage, own))
  report = _report(tried, equivalent, outcomes, len(all_mutants))
  report["cpu_minutes"] = round(cpu / 60, 1)
  report["wall_minutes"] = round((time.monotonic() - start) / 60, 1)
  if options.output:
    Path(options.output).write_text(json.dumps(report, indent=2, ensure_ascii=False))
  _print(report)
  return 0 if report["share_killed"] >= LEAST_SHARE else 1


def _options() -> argparse.Namespace:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--only", nargs="*", default=(), help="parts of files' paths")
  parser.add_argument("--output", help="JSON file for the result")
  parser.add_argument("--verbose", action="store_true", help="show every mutant")
  parser.add_argument(
    "--equivalent", action="store_true", help="try those of equivalent.yaml too"
  )
  return parser.parse_args()


def _equivalent(found: list[Mutant], paths: list[str]) -> dict[str, str]:
  """Names of equivalent mutants → reason; each must exist."""
  listed = yaml.safe_load((HERE / "equivalent.yaml").read_text()) or {}
  reasons = {name: reason for reason, names in listed.items() for name in names}
  reasons = {n: r for n, r in reasons.items() if n.split(":")[0] in paths}
  stale = sorted(reasons.keys() - {mutant.name for mutant in found})
  if stale:
    sys.exit("equivalent.yaml names mutants that are gone:\n" + "\n".join(stale))
  return reasons


def _import_libraries() -> None:
  """What both kinds of children share; mjlab would import decap, too."""
  import mujoco_warp  # noqa: F401
  import onnx  # noqa: F401
  import onnxruntime  # noqa: F401
  import rsl_rl.algorithms  # noqa: F401
  import torch
  import torch.utils.tensorboard

  torch.set_num_threads(1)


def _baseline(path: Path, paths: list[str], verbose: bool) -> dict[str, Any]:
  """Test → its seconds, and the lines that it runs as (file, number)."""
  from tests.mutants import trial

  child = os.fork()
  if not child:
    import pytest

    _silence(verbose)
    baseline = trial.Baseline([str(PACKAGE / p) for p in paths])
    pytest.main([*trial.PYTEST, *TESTS], plugins=[baseline])
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


def _tests_of(mutant: Mutant, tests: dict[str, Any]) -> list[str]:
  """Tests that run a mutant's statement: the nearest files first, then quick ones."""
  if mutant.hot:
    lines = {(mutant.file, line) for line in mutant.lines}
    chosen = [name for name, test in tests.items() if lines & test["lines"]]
  else:
    chosen = [
      n for n, t in tests.items() if any(f == mutant.file for f, _ in t["lines"])
    ]
  chosen = [name for name in chosen if tests[name]["seconds"] < LONGEST_S]
  by_file: dict[str, list[str]] = {}
  for name in sorted(chosen, key=lambda n: tests[n]["seconds"]):
    by_file.setdefault(name.split("::")[0], []).append(name)
  cost = {f: sum(tests[n]["seconds"] for n in names) for f, names in by_file.items()}
  ordered, seconds = [], 0.0
  mirrored = str(Path("tests", mutant.path).parent)
  for file in sorted(by_file, key=lambda f: (not f.startswith(mirrored), cost[f])):
    for name in by_file[file]:
      seconds += tests[name]["seconds"]
      if seconds < ENOUGH_S:
        ordered.append(name)
  return ordered


def _try_all(
  tried: list[Mutant], tests: dict[str, Any], folder: Path, verbose: bool
) -> dict[str, dict[str, Any]]:
  """Mutant → what noticed it ("" for a survivor) and CPU seconds."""
  folder.mkdir()
  cold = Queue([i for i, m in enumerate(tried) if not m.hot])
  hot = Queue([i for i, m in enumerate(tried) if m.hot])
  workers = []
  for number in range(WORKERS):
    child = os.fork()
    if not child:
      with (folder / f"{number}.jsonl").open("w") as file:
        _work(tried, tests, cold, hot, file, verbose)
      os._exit(0)
    workers.append(child)
  for child in workers:
    os.waitpid(child, 0)
  lines = [line for path in folder.iterdir() for line in path.open()]
  outcomes = {entry.pop("name"): entry for entry in map(json.loads, lines)}
  missing = [m.name for m in tried if m.name not in outcomes]
  if missing:
    sys.exit(f"{len(missing)} mutants were not tried, first {missing[0]}")
  return outcomes


def _work(tried, tests, cold: Queue, hot: Queue, file, verbose: bool) -> None:
  import pytest

  from tests.mutants import trial

  def done(mutant: Mutant, by: str, seconds: float) -> None:
    entry = {"name": mutant.name, "by": by, "seconds": round(seconds, 2)}
    file.write(json.dumps(entry) + "\n")
    file.flush()

  def following() -> Mutant | None:
    index = hot.take()
    return None if index is None else tried[index]

  _silence(verbose)
  child = os.fork()
  if not child:  # So that this process stays without decap, for the cold ones.
    trials = trial.Trials(following, lambda m: _tests_of(m, tests), done)
    pytest.main([*trial.PYTEST, *TESTS], plugins=[trials])
    os._exit(0)
  os.waitpid(child, 0)
  while (index := cold.take()) is not None:
    mutant = tried[index]
    names = _tests_of(mutant, tests)
    limit = int(60 + 3 * sum(tests[name]["seconds"] for name in names))
    attempt = (lambda m=mutant, n=names, s=limit: trial.cold(m, n, s)) if names else str
    done(mutant, *trial.in_child(attempt))


def _silence(verbose: bool) -> None:
  if not verbose:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


def _report(tried, equivalent, outcomes, total: int) -> dict[str, Any]:
  real = [m for m in tried if m.name not in equivalent]
  survivors = [m for m in real if not outcomes[m.name]["by"]]
  counts = Counter(m.path for m in real)
  alive = Counter(m.path for m in survivors)
  same = Counter(name.split(":")[0] for name in equivalent)
  noticed = [n for n in equivalent if n in outcomes and outcomes[n]["by"]]
  return {
    "command": "make mutants",
    "mutants": total,
    "equivalent": len(equivalent),
    "killed": len(real) - len(survivors),
    "share_killed": round(1 - len(survivors) / max(1, len(real)), 4),
    "files": {
      path: {
        "killed": counts[path] - alive[path],
        "survived": alive[path],
        "equivalent": same[path],
      }
      for path in counts
    },
    "survivors": [f"{m.name} (line {m.lines[0]})" for m in survivors],
    **({"not_equivalent": noticed} if noticed else {}),
  }


def _print(report: dict[str, Any]) -> None:
  for name in report["survivors"]:
    print("survived:", name)
  for name in report.get("not_equivalent", ()):
    print("not equivalent, a test notices it:", name)
  print(
    f"{report['killed']} of {report['mutants'] - report['equivalent']} mutants killed "
    f"({report['share_killed']:.1%}), {report['equivalent']} equivalent; "
    f"{report['cpu_minutes']} minutes of CPU time in {report['wall_minutes']} minutes."
  )


if __name__ == "__main__":
  sys.exit(main())
