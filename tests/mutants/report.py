"""What became of the mutants, file by file: lines to read, and JSON to go on from."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class Report:
  """Results by file; whole after each of them, so that a run may end at any time."""

  def __init__(self, output: str | None, order: Iterable[str], fresh: bool):
    self._path = Path(output) if output else None
    self._order = list(order)
    self._digests: dict[str, str] = {}
    self.files: dict[str, dict[str, Any]] = {}
    if self._path and self._path.exists() and not fresh:
      self.files = json.loads(self._path.read_text())["files"]

  @property
  def share_killed(self) -> float:
    return self._sum("killed") / max(1, self._sum("killed") + self._sum("survived"))

  def keep(self, digests: dict[str, str], paths: Iterable[str]) -> None:
    """Forget results of files that have changed since, or whose tests have."""
    self._digests = digests
    self.files = {p: f for p, f in self.files.items() if f["of"] == digests.get(p)}
    for path in paths:
      if path in self.files:
        print(f"{path}: as before", flush=True)

  def add(
    self,
    path: str,
    total: int,
    equivalent: dict[str, str],
    outcomes: dict[str, str],
    times: dict[str, float],
  ) -> None:
    """Note, show and write the results of one file. outcomes: mutant → its killer."""
    killed = [name for name, by in outcomes.items() if by and name not in equivalent]
    alive = [n for n, by in outcomes.items() if not by and n not in equivalent]
    noticed = [name for name in equivalent if outcomes.get(name)]
    self.files[path] = {
      "mutants": total,
      "killed": len(killed),
      "survived": len(alive),
      "equivalent": sum(name.startswith(f"{path}:") for name in equivalent),
      **times,
      "of": self._digests[path],
      "survivors": alive,
    }
    print(f"{path}: {self._line([self.files[path]])}", flush=True)
    for name in alive:
      print("  survived:", name, flush=True)
    for name in noticed:
      print("  not equivalent, a test notices it:", name, flush=True)
    self._write()

  def summary(self) -> str:
    """Of all files that were tried, now or before; written, too."""
    self._write()
    left = f" Not tried: {', '.join(self._left)}." if self._left else ""
    return f"In all: {self._line(self.files.values())}.{left}"

  @property
  def _left(self) -> list[str]:
    return [path for path in self._order if path not in self.files]

  def _line(self, files: Iterable[dict[str, Any]]) -> str:
    killed, alive, same, wall_s, cpu_s = (
      sum(file[key] for file in files)
      for key in ("killed", "survived", "equivalent", "wall_s", "cpu_s")
    )
    tried = killed + alive
    share = killed / max(1, tried)
    return (
      f"{killed} of {tried} mutants killed ({share:.1%}), {same} equivalent, "
      f"{wall_s / 60:.1f} minutes ({cpu_s / 60:.1f} of CPU time)"
    )

  def _sum(self, key: str) -> int:
    return sum(file[key] for file in self.files.values())

  def _write(self) -> None:
    if not self._path:
      return
    report = {
      "command": "make mutants",
      **{
        key: self._sum(key) for key in ("mutants", "killed", "survived", "equivalent")
      },
      "share_killed": round(self.share_killed, 4),
      "wall_minutes": round(self._sum("wall_s") / 60, 1),
      "cpu_minutes": round(self._sum("cpu_s") / 60, 1),
      "not_tried": self._left,
      "files": {p: self.files[p] for p in self._order if p in self.files},
    }
    text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
    partial = self._path.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(self._path)
