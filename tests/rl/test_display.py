"""What a user sees of a training."""

import io
from contextlib import redirect_stdout

import pytest
from rich.live import Live

from decap.rl.display import PlainDisplay, Status, make_display


def shown(log) -> str:
  with redirect_stdout(io.StringIO()) as stream:
    PlainDisplay().update(Status(7, 300, 1234.4, 3661.0), log)
  return stream.getvalue()


def test_a_line_says_how_much_of_delta_is_applied():
  log = {"Train/reward": 3.25, "Constraint/delta": 0.2}
  assert shown(log) == "  7/300  reward 3.25  δ̄ 0.200  1234 steps/s  left 1:01:01\n"
  assert "  δ̄ 0.200  applied 0.60%  " in shown(
    {**log, "Constraint/delta_applied": 0.0012}
  )
  nothing = {"Constraint/delta": 0.0, "Constraint/delta_applied": 0.0}
  assert "  δ̄ 0.000  applied 0.00%  " in shown(nothing)


@pytest.mark.parametrize("terminal, live", [("xterm", True), ("dumb", False)])
def test_a_terminal_that_cannot_move_its_cursor_has_lines(terminal, live, monkeypatch):
  """rich draws nothing there until the end."""
  monkeypatch.setenv("TERM", terminal)
  with redirect_stdout(io.StringIO()) as stream:
    stream.isatty = lambda: True
    with make_display(lambda: None, lambda panel: panel) as found:
      assert isinstance(found, Live) == live
