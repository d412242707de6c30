"""``decap list``: tasks, methods and physics backends."""

from __future__ import annotations

from dataclasses import dataclass

from decap.methods import METHODS
from decap.options.args import Args
from decap.tasks import TASKS

BACKENDS = {
  "native": "C MuJoCo on the CPU; nothing to compile (default without a GPU)",
  "warp": "MuJoCo Warp on an NVIDIA GPU (default with one), or slowly on the CPU",
}


@dataclass(kw_only=True)
class ListArgs(Args):
  """No options."""

  def run(self) -> None:
    """Print three short tables."""
    tables = {
      "Tasks": {name: str(task) for name, task in TASKS.items()},
      "Methods": {name: method.summary for name, method in METHODS.items()},
      "Backends": BACKENDS,
    }
    for title, entries in tables.items():
      print(f"{title}:")
      for name, summary in entries.items():
        print(f"  {name:<20} {summary}")
      print()
