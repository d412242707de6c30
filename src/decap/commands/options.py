"""Options that several commands share."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_device(parser: argparse.ArgumentParser) -> None:
  """Where a command computes."""
  parser.add_argument(
    "--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)"
  )


def add_backend(parser: argparse.ArgumentParser) -> None:
  """What moves the robots."""
  parser.add_argument(
    "--backend",
    choices=("auto", "warp", "native"),
    default="auto",
    help="physics: MuJoCo Warp or C MuJoCo (default: native on the CPU)",
  )


def split_label(source: str) -> tuple[str | None, str]:
  """`LABEL=PATH` as its parts; a path may itself hold an equals sign."""
  label, equals, path = source.partition("=")
  if not equals or Path(source).exists():
    return None, source
  return label, path
