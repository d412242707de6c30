"""`decap bench`: options that are refused before anything is measured."""

import pytest

from decap.cli import main


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (["engines", "--cases", "stock"], "'decap bench engines' has no case 'stock'"),
    (["--task", "g2"], "Unknown task 'g2'"),
    (["--num-envs", "0"], "--num-envs must be at least 1, not 0"),
    (["--seconds", "0"], "--seconds must be above 0"),
    (["--device", "cpu", "--cases", "captured"], "The case 'captured' needs a GPU"),
    (["--cases", "fast"], "no case 'fast' (there are stock, eager, captured"),
    (["nothing"], "one of training, engines, scaling, not 'nothing'"),
    (["--from", "a.json", "--num-envs", "4"], "nothing and takes no --num-envs"),
    (["--from", "/a.json"], "There is no file /a.json"),
  ],
)
def test_wrong_options(arguments, message, capsys):
  assert main(["bench", *arguments]) == 2
  assert message in capsys.readouterr().err
