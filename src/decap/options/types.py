"""Types of options that several commands share: their place-holders and their checks.

Nothing here is imported by ``decap --help`` and ``decap list``, which answer without
tyro.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from decap.methods import METHODS
from decap.options import args, machine
from decap.tasks import name_task


def shown(metavar: str) -> Any:
  """What stands for the value in the help, which says itself what the default is."""
  return arg(metavar=metavar, help_behavior_hint="")


def _task(option: str, value: str) -> str:
  name_task(value)
  return value


Flag = Annotated[bool, arg(help_behavior_hint="")]
Count = Annotated[int | None, shown("N"), args.at_least(1)]
"""A number of things; None where another default holds."""
Counts = Annotated[tuple[int, ...] | None, shown("N [N ...]"), args.at_least(1)]
Number = Annotated[float, args.FINITE]
Positive = Annotated[float, args.FINITE, args.above(0)]
Share = Annotated[float, args.FINITE, args.at_least(0)]
Seed = Annotated[int, args.SEED]
MaybeSeed = Annotated[int | None, shown("N"), args.SEED]
TaskName = Annotated[str | None, shown("NAME"), _task]
"""One of ours, or package.module:name of one's own."""
MethodName = Annotated[str | None, shown("NAME"), args.one_of("method", METHODS)]
Tasks = Annotated[tuple[str, ...], _task]
Methods = Annotated[tuple[str, ...], args.one_of("method", METHODS)]
InputFile = Annotated[str | None, shown("FILE")]
"""A file to read."""
OutputFile = Annotated[str | None, shown("FILE"), args.output_file]
OutputFolder = Annotated[str | None, shown("DIR"), args.output_folder]
VideoFile = Annotated[str | None, shown("FILE"), args.video]
Velocity = Annotated[tuple[float, float, float] | None, shown("VX VY YAW"), args.FINITE]
"""What a robot is told: forward and left in m/s, turn in rad/s."""
Domain = Annotated[int, args.between(0, 232)]
"""Networks of DDS."""
Port = Annotated[int, args.between(1, 65535)]
Policy = Positional[Annotated[str, shown("POLICY")]]
Policies = Positional[Annotated[tuple[str, ...], shown("POLICY [POLICY ...]")]]
Bundles = Positional[Annotated[tuple[str, ...], shown("BUNDLE [BUNDLE ...]")]]
Device = Annotated[
  str, arg(metavar="NAME"), lambda _, value: machine.check_device(value)
]
Backend = Literal["auto", "warp", "native"]


@dataclass(kw_only=True)
class Computing(args.Args):
  """A command that computes on a device."""

  device: Device = "auto"
  """auto, cpu, cuda or cuda:N."""


@dataclass(kw_only=True)
class Simulating(Computing):
  """A command that simulates robots, and says by which engine."""

  backend: Backend = "auto"
  """Physics: MuJoCo Warp, or native C MuJoCo, which auto takes on the CPU."""

  def check(self) -> None:
    machine.check_backend(self.backend, self.device)


def split_label(source: str) -> tuple[str | None, str]:
  """`LABEL=PATH` as its parts; a path may itself hold an equals sign."""
  label, equals, path = source.partition("=")
  if not equals or Path(source).exists():
    return None, source
  return label, path
