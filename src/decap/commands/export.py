"""``decap export``: write a run's policy as a bundle for a robot."""

from __future__ import annotations

import argparse
from pathlib import Path

from decap.files import check_writable
from decap.rl import checkpoint_files
from decap.runs import run_folder


def add_options(parser: argparse.ArgumentParser) -> None:
  """A run, and where the bundle goes."""
  parser.add_argument("run", metavar="RUN", help="run folder or checkpoint")
  parser.add_argument(
    "--output", metavar="DIR", help="bundle folder (default: RUN/policy)"
  )
  parser.add_argument(
    "--weights",
    action="store_true",
    help="also what `train --init-from` continues from",
  )


def run(options: argparse.Namespace) -> None:
  """Export the latest checkpoint of a run, or the given one, and check the result."""
  checkpoint = checkpoint_files.resolve(options.run)
  folder = Path(options.output or run_folder(options.run) / "policy")
  check_writable(folder)
  from decap.deploy.bundle import load_bundle
  from decap.export import export_checkpoint

  export_checkpoint(checkpoint, folder, weights=options.weights)
  bundle = load_bundle(folder)
  print(
    f"{folder}: {bundle.info['method']} on {bundle.info['task']}, iteration "
    f"{bundle.info['iteration']}, {len(bundle.joint_names)} joints at "
    f"{1 / bundle.control_dt_s:.0f} Hz."
  )
