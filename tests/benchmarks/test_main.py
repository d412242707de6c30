"""`python -m benchmarks`: its options, and lines of the documentation that use it."""

import re
import shlex
from pathlib import Path
from typing import get_args

import pytest

from benchmarks.__main__ import Name, Options, main
from benchmarks.cases import BENCHMARKS
from decap.options.args import validate
from decap.options.reading import read

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
  ("line", "message"),
  [
    ("nothing", "one of training, engines, scaling, cores, methods, learning, not"),
    ("--steps 3", "Unknown option '--steps' of 'python -m benchmarks'"),
    ("engines --cases stock", "Unknown case of engines 'stock' (there are decap, nat"),
    ("--cases fast", "Unknown case of training 'fast' (there are stock, eager, capt"),
    ("cores --cases 100000", "Unknown case of cores '100000'"),
    ("--device cpu --cases captured", "The case 'captured' needs a GPU"),
    ("--task g2", "Unknown task 'g2'"),
    ("--num-envs 0", "--num-envs must be at least 1, not 0"),
    ("--num-envs 1000000000", "environments need at least"),
    ("--seconds 0", "--seconds must be above 0"),
    ("--seconds inf", "--seconds must be a finite number"),
    ("scaling --iterations x", "--iterations must be a whole number, not 'x'"),
    ("--json /proc/x/bench.json", "Cannot write"),
    ("engines --plot speed.png", "There is no figure of engines"),
    ("--from a.json --num-envs 4", "nothing and takes no --num-envs"),
    ("--from a.json --json b.json", "nothing and takes no --json"),
    ("--from /a.json", "/a.json is no file of 'python -m benchmarks'"),
  ],
)
def test_a_mistake_gets_one_sentence(line, message, capsys):
  assert (
    main([*line.split(), *(() if "--device" in line else ("--device", "cpu"))]) == 2
  )
  (sentence,) = capsys.readouterr().err.splitlines()
  assert sentence.startswith("benchmarks: ") and message in sentence


def test_a_renderer_that_does_not_start_is_told(monkeypatch, capsys):
  """MuJoCo does not load with it, though nothing is drawn."""
  monkeypatch.setenv("MUJOCO_GL", "wgpu")
  assert main(["engines"]) == 2
  assert "MUJOCO_GL=wgpu; egl needs no display" in capsys.readouterr().err


def test_help_lists_all_benchmarks(capsys):
  assert get_args(Name) == tuple(BENCHMARKS)
  with pytest.raises(SystemExit):
    main(["--help"])
  text = capsys.readouterr().out
  assert all(name in text for name in BENCHMARKS)


def test_command_lines_of_pages_are_accepted():
  found = 0
  for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")):
    text = page.read_text("utf-8")
    for line in re.findall(r"python -m benchmarks\b([^`\n#]*)", text):
      validate(read(Options, shlex.split(line.replace(" NAME", ""))))
      found += 1
  assert found > 3


def test_stored_numbers_are_shown_and_drawn(tmp_path, capsys):
  stored = ROOT / "results" / "bench"
  for name in ("throughput", "learning"):
    figure = tmp_path / f"{name}.png"
    assert main(["--from", str(stored / f"{name}.json"), "--plot", str(figure)]) == 0
    assert figure.read_bytes().startswith(b"\x89PNG")
  table = tmp_path / "throughput.md"
  assert main(["--from", str(stored / "throughput.json"), "--table", str(table)]) == 0
  assert table.read_text() == (stored / "throughput.md").read_text()
  told = capsys.readouterr().out
  assert "4096 environments: training 2.31 × stock, rollout 2.05 × stock" in told
  assert main(["--from", str(stored / "cores.json"), "--plot", "x.png"]) == 2
