"""The command line: ``decap COMMAND [OPTIONS]``.

Importing torch and mjlab takes ten seconds on a small machine. So this file and the
command modules import nothing heavy at the top, the options that a user gets wrong
most often are checked first, and only then does a command import what it needs.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

from decap import __version__
from decap.errors import UserError

COMMANDS = {
  "train": ("decap.commands.train", "train a policy, or continue a run"),
  "play": ("decap.commands.play", "watch a policy in the browser, or record a video"),
  "export": ("decap.commands.export", "write a run's policy as a bundle for a robot"),
  "deploy": ("decap.commands.deploy", "drive a robot with policy bundles"),
  "simulator": ("decap.commands.simulator", "a simulated robot on the network"),
  "faults": ("decap.commands.faults", "play faults around a walking robot"),
  "flight": ("decap.commands.flight", "show what the flight recorder wrote"),
  "sim2sim": ("decap.commands.sim2sim", "walk a policy on the simulated robot"),
  "sweep": ("decap.commands.sweep", "train, evaluate and compare a list of runs"),
  "evaluate": ("decap.commands.evaluate", "measure smoothness, violations, tracking"),
  "compare": ("decap.commands.compare", "put the results of several runs in one table"),
  "profile": ("decap.commands.profile", "propose limits from measured motion"),
  "figure": ("decap.commands.figure", "draw the methods' barrier and probability"),
  "bench": ("decap.commands.bench", "measure speed on this machine"),
  "list": ("decap.commands.list_", "list tasks, methods and physics backends"),
  "demo": (
    "decap.commands.demo",
    "two policies side by side, then a minute of training",
  ),
}
"""Name → module and one-line help. A module offers `add_options` and `run`."""


TRAINING_PACKAGES = (
  *("torch", "mjlab", "mjbatch", "rsl_rl", "tyro", "rich", "yaml", "tensordict"),
  *("tensorboard", "onnx", "onnxscript", "matplotlib", "mediapy", "warp"),
)
"""Top-level modules that come with ``decap[train]`` only."""


class Parser(argparse.ArgumentParser):
  """An ArgumentParser whose errors are one sentence."""

  def __init__(self, **kwargs):
    super().__init__(allow_abbrev=False, **kwargs)

  def error(self, message: str):
    raise UserError(f"{message[0].upper()}{message[1:]} (see '{self.prog} --help').")


def main(argv: Sequence[str] | None = None) -> int:
  """Run one command; returns the exit code.

  0, 1 for a training that diverged, 2 for a user's error, 130 for Ctrl-C.
  """
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


def parse(argv: Sequence[str]) -> tuple[ModuleType, argparse.Namespace]:
  """Module of a command, and its options as `run` takes them."""
  name, *rest = argv
  if name not in COMMANDS:
    raise UserError(f"Unknown command '{name}'{suggest(name, COMMANDS)}.")
  module_name, summary = COMMANDS[name]
  module = importlib.import_module(module_name)
  parser = Parser(prog=f"decap {name}", description=summary[0].upper() + summary[1:])
  module.add_options(parser)
  arguments, overrides = split_overrides(rest)
  options, unknown = parser.parse_known_args(arguments)
  if unknown:
    known = list(parser._option_string_actions)
    raise UserError(
      f"Unknown option '{unknown[0]}' of 'decap {name}'{suggest(unknown[0], known)}."
    )
  if overrides and not getattr(module, "TAKES_OVERRIDES", False):
    raise UserError(f"'decap {name}' takes no '{overrides[0]}'.")
  options.overrides = overrides
  options.argv = list(argv)
  return module, options


def split_overrides(argv: list[str]) -> tuple[list[str], list[str]]:
  """Separate ``--env.… VALUE`` and ``--agent.… VALUE`` from the other options."""
  plain, overrides = [], []
  current = plain
  for token in argv:
    if token.startswith(("--env.", "--agent.")):
      current = overrides
    elif token.startswith("--"):
      current = plain
    current.append(token)
  return plain, overrides


def suggest(name: str, known) -> str:
  """A hint at the known name that comes closest, or all names if they are few."""
  close = difflib.get_close_matches(name, list(known), n=1)
  if close:
    return f" (did you mean '{close[0]}'?)"
  return f" (there are {', '.join(known)})" if len(known) <= 12 else ""


def _run(argv: list[str]) -> int:
  if not argv or argv[0] in ("-h", "--help"):
    print(_help())
    return 0
  if argv[0] == "--version":
    print(f"decap {__version__}")
    return 0
  try:
    module, options = parse(argv)
    return module.run(options) or 0
  except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] not in TRAINING_PACKAGES:
      raise
    raise UserError(
      f"'decap {argv[0]}' needs {error.name}, which deployment does without: "
      "pip install 'decap[train]'"
    ) from error


def _help() -> str:
  lines = [
    "usage: decap COMMAND [OPTIONS]",
    "",
    "Trains, measures and exports smooth legged-locomotion policies.",
    "",
    "commands:",
    *(f"  {name:<10} {summary}" for name, (_, summary) in COMMANDS.items()),
    "",
    "'decap COMMAND --help' shows the options of a command.",
  ]
  return "\n".join(lines)


if __name__ == "__main__":
  sys.exit(main())
