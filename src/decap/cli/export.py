"""``decap export``: write a run's policy as a bundle for a robot."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from decap.files import check_writable
from decap.options.args import Args
from decap.options.types import Flag, OutputFolder, shown
from decap.rl import checkpoint_files
from decap.runs import run_folder


@dataclass(kw_only=True)
class ExportArgs(Args):
  """A run, and where the bundle goes."""

  source: Positional[Annotated[str, shown("RUN")]]
  """Run folder or checkpoint."""
  output: OutputFolder = None
  """Bundle folder (default: RUN/policy)."""
  weights: Flag = False
  """Also what 'decap train --init-from' continues from."""

  def run(self) -> None:
    """Export the latest checkpoint of a run, or the given one, and check the result."""
    checkpoint = checkpoint_files.resolve(self.source)
    folder = Path(self.output or run_folder(self.source) / "policy")
    check_writable(folder)
    from decap.deploy.bundle import load_bundle
    from decap.export import export_checkpoint

    export_checkpoint(checkpoint, folder, weights=self.weights)
    bundle = load_bundle(folder)
    print(
      f"{folder}: {bundle.info['method']} on {bundle.info['task']}, iteration "
      f"{bundle.info['iteration']}, {len(bundle.joint_names)} joints at "
      f"{1 / bundle.control_dt_s:.0f} Hz."
    )
