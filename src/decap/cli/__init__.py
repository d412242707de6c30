"""The command line: ``decap COMMAND [OPTIONS]``.

Importing torch and mjlab takes ten seconds on a small machine. So this file and the
command modules import nothing heavy at the top, the options that a user gets wrong
most often are checked first, and only then does a command import what it needs.
"""

from __future__ import annotations

import errno
import importlib
import io
import sys
from collections.abc import Sequence

from decap import __version__
from decap.errors import UserError, check_known
from decap.options.args import Args, validate
from decap.options.reading import read

SUBCOMMANDS = {
  "train": "train a policy, or continue a run",
  "play": "watch a policy in the browser, or record a video",
  "export": "write a run's policy as a bundle for a robot",
  "deploy": "drive a robot with policy bundles",
  "simulator": "a simulated robot on the network",
  "faults": "play faults around a walking robot",
  "flight": "show what the flight recorder wrote",
  "sim2sim": "walk a policy on the simulated robot",
  "sweep": "train, evaluate and compare a list of runs",
  "evaluate": "measure smoothness, violations, tracking",
  "compare": "put the results of several runs in one table",
  "profile": "propose limits from measured motion",
  "list": "list tasks, methods and physics backends",
  "demo": "two policies side by side, then a minute of training",
}
"""Name → one line of help. The module NAME holds the dataclass `NameArgs`."""


HELP = """usage: decap COMMAND [OPTIONS]

Trains, measures and exports smooth legged-locomotion policies.

commands:
{}

'decap COMMAND --help' shows the options of a command."""

TRAINING_PACKAGES = (
  *("torch", "mjlab", "mjbatch", "rsl_rl", "rich", "yaml", "tensordict"),
  *("tensorboard", "onnx", "matplotlib", "mediapy", "scipy", "warp"),
)
"""Top-level modules that come with ``decap[train]`` only."""


SURROUNDINGS = (
  *(errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG),
  errno.EIO,
)
"""What a disk may say of any file, at any time."""


def main(argv: Sequence[str] | None = None) -> int:
  """Run one command; returns the exit code.

  0, 1 for a training that diverged, 2 for a user's error, 130 for Ctrl-C.
  """
  for stream in (sys.stdout, sys.stderr):
    if isinstance(stream, io.TextIOWrapper):
      stream.reconfigure(errors="replace")  # Not every terminal has a δ.
  try:
    return _run(list(sys.argv[1:] if argv is None else argv))
  except UserError as error:
    print(f"decap: {str(error).removesuffix('.')}.", file=sys.stderr)
    return error.exit_code
  except KeyboardInterrupt:
    print("decap: interrupted.", file=sys.stderr)
    return 130
  except BrokenPipeError:  # The reader of our output, `head` for example, has left.
    sys.stderr.close()
    return 0
  except OSError as error:
    if error.errno not in SURROUNDINGS:
      raise
    what = f"Cannot use {error.filename}: " if error.filename else ""
    print(f"decap: {what}{error.strerror}.", file=sys.stderr)
    return 2


def parse(argv: Sequence[str]) -> Args:
  """A command with its options."""
  name, *rest = argv
  check_known("command", name, SUBCOMMANDS)
  return read(command_class(name), rest, name, SUBCOMMANDS[name])


def command_class(name: str) -> type[Args]:
  """The dataclass of a command; imports its module."""
  # A module called `list` would hide Python's in this package.
  module = importlib.import_module(f"decap.cli.{'list_' if name == 'list' else name}")
  return getattr(module, f"{name.capitalize()}Args")


def _run(argv: list[str]) -> int:
  if not argv or argv[0] in ("-h", "--help"):
    commands = (f"  {name:<10} {summary}" for name, summary in SUBCOMMANDS.items())
    print(HELP.format("\n".join(commands)))
    return 0
  if argv[0] == "--version":
    print(f"decap {__version__}")
    return 0
  try:
    args = parse(argv)
    validate(args)
    return args.run() or 0
  except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] not in TRAINING_PACKAGES:
      raise
    raise UserError(
      f"'decap {argv[0]}' needs {error.name}, which deployment does without: "
      "pip install 'decap[train]'"
    ) from error
