"""Runs examples/walk.ipynb and keeps what it prints and draws, without Jupyter.

`python docs/tools/notebook.py` does so after a change; a test runs the same cells.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[2] / "examples" / "walk.ipynb"


def run(notebook: dict[str, Any], folder: Path) -> dict[str, Any]:
  """Run the code cells in their order, in a folder; returns their variables."""
  import matplotlib

  matplotlib.use("agg")
  names: dict[str, Any] = {"__name__": "__main__"}
  before = os.getcwd()
  os.chdir(folder)
  try:
    for index, cell in enumerate(notebook["cells"]):
      if cell["cell_type"] == "code":
        cell["outputs"] = _run_cell("".join(cell["source"]), index, names)
        cell["execution_count"] = None
  finally:
    os.chdir(before)
  return names


def _run_cell(source: str, index: int, names: dict[str, Any]) -> list[dict[str, Any]]:
  printed = io.StringIO()
  with contextlib.redirect_stdout(printed):
    exec(compile(source, f"cell {index}", "exec"), names)
  outputs: list[dict[str, Any]] = []
  if text := printed.getvalue():
    lines = text.splitlines(keepends=True)
    outputs.append({"output_type": "stream", "name": "stdout", "text": lines})
  return outputs + [_picture(png) for png in _drawn()]


def _drawn() -> list[str]:
  """Open figures as PNG, closed then."""
  from matplotlib import pyplot

  found = []
  for number in pyplot.get_fignums():
    file = io.BytesIO()
    pyplot.figure(number).savefig(file, format="png", dpi=80)
    found.append(base64.b64encode(file.getvalue()).decode())
  pyplot.close("all")
  return found


def _picture(png: str) -> dict[str, Any]:
  data = {"image/png": png, "text/plain": ["<Figure>"]}
  return {"output_type": "display_data", "data": data, "metadata": {}}


if __name__ == "__main__":
  loaded = json.loads(NOTEBOOK.read_text("utf-8"))
  run(loaded, NOTEBOOK.parent)
  text = json.dumps(loaded, indent=1, ensure_ascii=False)
  NOTEBOOK.write_text(text + "\n", "utf-8")
