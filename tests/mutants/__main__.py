"""Which small wrong changes of the code do the tests notice? `make mutants` says.

All mutants of the files below are tried, two at a time, on the tests that run the
changed line, quick ones first. `equivalent.yaml` lists those that change nothing that
anyone could see, each with its reason.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import resource
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tests.mutants.operators import Mutant, mutants

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
  "rl/ppo.py": ("rl/test_ppo", "rl/test_recipe", "rl/test_lcp", "rl/test_cost_critic"),
  "rl/losses.py": ("rl/test_losses", "rl/test_ppo"),
  "rl/schedules.py": ("rl/test_schedules", "rl/test_ppo"),
  "rl/optimizer.py": ("rl/test_ppo",),
  "rl/unsupported.py": ("rl/test_ppo",),
  "rl/cost_critic.py": ("rl/test_cost_critic", "rl/test_lagrangian", "rl/test_n_ipo"),
  "envs/constraint_manager.py": (
    "envs/test_constraint_manager",
    "envs/test_constrained_env",
  ),
  "envs/mdp/rewards.py": ("envs/mdp/test_rewards", "envs/mdp/test_terrain"),
  "envs/masked_reset.py": (
    "envs/test_masked_reset",
    "envs/test_constrained_env",
    "envs/mdp/test_events",
    "envs/mdp/test_actuation",
    "envs/test_stock",
  ),
  "evaluation/metrics.py": ("evaluation/test_metrics", "evaluation/test_motion"),
  "deploy/bundle.py": ("deploy/test_bundle",),
}
"""File → tests that are to notice its changes, the nearest first."""
LONGEST_S, ENOUGH_S = 2.0, 5.0
"""Tests that take longer are left out, and no mutant is tried for longer; both by the
time that tests took before, which was about twice as long as usual."""
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
  if options.share < 1.0:
    tried = random.Random(options.seed).sample(tried, round(options.share * len(tried)))
  outcomes = _try_all(tried, tests, work / "outcomes", options.verbose)
  usage = resource.getrusage(resource.RUSAGE_CHILDREN)
  own = resource.getrusage(resource.RUSAGE_SELF)
  cpu = sum(u.ru_utime + u.ru_stime for u in (usage, own))
  report = _report(tried, equivalent, outcomes, len(all_mutants))
  report["sample"] = {"share": options.share, "seed": options.seed}
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
  parser.add_argument("--share", type=float, default=1.0, help="try a sample only")
  parser.add_argument("--seed", type=int, default=0, help="of the sample")
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
  tried: list[Mutant], tests: dict[str, Any], folder: Path, verbose: bool
) -> dict[str, dict[str, Any]]:
  """Mutant → what noticed it ("" for a survivor) and CPU seconds."""
  from tests.mutants import trial

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
  for name, outcome in outcomes.items():
    if outcome["by"].startswith(trial.BROKEN):
      sys.exit(f"{outcome['by']} with {name}")
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

  files = _test_files(dict.fromkeys(mutant.path for mutant in tried))
  _silence(verbose)
  child = os.fork()
  if not child:  # So that this process stays without decap, for the cold ones.
    trials = trial.Trials(following, lambda m: _tests_of(m, tests), done)
    pytest.main([*trial.PYTEST, *files], plugins=[trials])
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
    "tried": len(real),
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
    f"{report['killed']} of {report['tried']} mutants killed "
    f"({report['share_killed']:.1%}), {report['equivalent']} equivalent; "
    f"{report['cpu_minutes']} minutes of CPU time in {report['wall_minutes']} minutes."
  )


if __name__ == "__main__":
  sys.exit(main())
