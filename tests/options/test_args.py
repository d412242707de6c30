"""Options: declared once, read by tyro, checked in one place."""

import re
from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
from tyro.conf import OmitArgPrefixes, Positional, UseAppendAction

from decap.cli import SUBCOMMANDS, command_class
from decap.cli.sim2sim import Sim2simArgs
from decap.errors import UserError
from decap.options.args import Args, above, at_least, validate
from decap.options.reading import option_types, read
from decap.options.types import (
  Count,
  Flag,
  MethodName,
  Seed,
  TaskName,
  Velocity,
  shown,
)


@dataclass(kw_only=True)
class PartArgs:
  speed: Annotated[float, above(0)] = 1.0


@dataclass(kw_only=True)
class SomeArgs(Args):
  """For these tests."""

  source: Positional[Annotated[str, shown("SOURCE")]]
  task: TaskName = None
  method: MethodName = None
  num_envs: Count = None
  seeds: Annotated[tuple[int, ...] | None, at_least(0)] = None
  command: Velocity = None
  kind: UseAppendAction[tuple[Literal["red", "green"], ...]] = ()
  capture: Flag = True
  seed: Seed = 0
  part: OmitArgPrefixes[PartArgs] = field(default_factory=PartArgs)

  def check(self) -> None:
    if self.seed and self.seeds:
      raise UserError("--seed and --seeds exclude each other.")


def _read(line: str) -> SomeArgs:
  args = read(SomeArgs, line.split(), "some")
  validate(args)
  return args


def test_a_line_becomes_a_dataclass():
  args = _read(
    "here --num-envs 3 --seeds 4 5 --command 1 -0.5 0 --kind red --kind green "
    "--no-capture --speed 2"
  )
  assert args == SomeArgs(
    source="here",
    num_envs=3,
    seeds=(4, 5),
    command=(1.0, -0.5, 0.0),
    kind=("red", "green"),
    capture=False,
    part=PartArgs(speed=2.0),
  )
  assert args.argv[:2] == ("some", "here")


@pytest.mark.parametrize(
  "line, sentence",
  [
    ("", "The argument SOURCE is missing (see 'decap some --help')."),
    ("a b", "Unknown argument 'b' of 'decap some' (see 'decap some --help')."),
    (
      "a --nm-envs 3",
      "Unknown option '--nm-envs' of 'decap some' (did you mean '--num-",
    ),
    ("a --num-envs 1.5", "--num-envs must be a whole number, not '1.5'."),
    ("a --num-envs", "--num-envs needs a whole number."),
    ("a --num-envs 0", "--num-envs must be at least 1, not 0."),
    ("a --num-envs=-2", "--num-envs must be at least 1, not -2."),
    ("a --seeds 1 -1", "--seeds must be at least 0, not -1."),
    ("a --seeds 1 x", "--seeds must be whole numbers, not '1 x'."),
    ("a --command 1 2", "--command must be 3 numbers, not '1 2'."),
    ("a --command 1 2 inf", "--command must be a finite number, not inf."),
    ("a --kind gren", "--kind must be one of red, green, not 'gren' (did you mean 'g"),
    ("a --speed fast", "--speed must be a number, not 'fast'."),
    ("a --speed nan", "--speed must be above 0, not nan."),
    ("a --task g1-flt", "Unknown task 'g1-flt' (did you mean 'g1-flat'?)."),
    ("a --method dcap", "Unknown method 'dcap' (did you mean 'decap'?)."),
    (
      "a --seed -1",
      "--seed must be from 0 to below 2^32, as all generators take, not -1.",
    ),
    ("a --seed 1 --seeds 2", "--seed and --seeds exclude each other."),
    ("a --env.seed 1", "'decap some' takes no '--env.seed'."),
    ("a --capture", "Unknown option '--capture' of 'decap some' (did you mean '--no-"),
  ],
)
def test_a_mistake_gets_one_sentence(line, sentence):
  with pytest.raises(UserError) as found:
    _read(line)
  assert str(found.value).startswith(sentence)


@pytest.mark.parametrize(
  "name", [*SUBCOMMANDS, *(f"sim2sim {mode}" for mode in Sim2simArgs.modes)]
)
def test_every_command_explains_itself(name, capsys):
  command, *mode = name.split()
  cls = command_class(command)
  with pytest.raises(SystemExit) as found:
    read(cls, [*mode, "--help"], command, SUBCOMMANDS[command])
  assert found.value.code in (None, 0)
  text = capsys.readouterr().out
  assert f"usage: decap {name} [" in text
  assert mode or SUBCOMMANDS[name][1:] in text.replace("\n", " ")
  options = option_types(cls.modes[mode[0]] if mode else cls)
  for option in options:
    assert f"{option} " in text
  assert set(re.findall(r"^\W* (--[a-z][\w-]*)", text, re.MULTILINE)) == set(options)
  assert "None" not in text  # No user's word.


def test_help_has_what_is_given(capsys):
  texts = []
  for given in ("", "here --seed 3 "):
    with pytest.raises(SystemExit):
      _read(f"{given}--help")
    texts.append(capsys.readouterr().out)
  assert texts[0] == texts[1] and "SOURCE" in texts[0]
