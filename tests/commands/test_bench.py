"""`decap bench`: options that are refused before anything is measured."""

import pytest

from decap.cli import main


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (["engines", "--cases", "stock"], "'decap bench engines' takes no --cases"),
    (["--steps", "3"], "'decap bench training' takes no --steps"),
    (["--task", "g2"], "Unknown task 'g2'"),
    (["--num-envs", "0"], "--num-envs must be at least 1, not 0"),
    (["--seconds", "0"], "--seconds must be above 0"),
    (["--device", "cpu", "--cases", "captured"], "The case 'captured' needs a GPU"),
    (
      ["--cases", "fast"],
      "one of stock, eager, captured, unconstrained, physics, mjlab-task, not 'fast'",
    ),
    (["nothing"], "one of training, engines, methods, learning, not 'nothing'"),
    (["methods", "--from", "a.json"], "'decap bench methods' takes no --from"),
    (["--from", "a.json", "--num-envs", "4"], "nothing and takes no --num-envs"),
    (["learning", "--from", "a.json", "--seeds", "4"], "nothing and takes no --seeds"),
    (["learning", "--from", "/a.json"], "/a.json is no file of 'decap bench learning"),
  ],
)
def test_wrong_options(arguments, message, capsys):
  assert main(["bench", *arguments]) == 2
  assert message in capsys.readouterr().err


def test_the_command_knows_all_cases():
  from decap.bench import cases
  from decap.commands import bench

  assert tuple(cases.CASES) == bench.CASES
