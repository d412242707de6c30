"""Velocity commands: what options say, and how it is told."""

import pytest

from decap.deploy.sim2sim import Walk
from decap.errors import UserError
from decap.options import velocity
from decap.tasks import env_cfg


def _commands(command=None, schedule=None):
  return velocity.read_commands(command, schedule)


def test_commands_come_from_an_option_or_a_schedule():
  assert _commands() == ((0.0, 0.5, 0.0, 0.0),)
  assert _commands(command=[0.2, 0, -1]) == ((0.0, 0.2, 0, -1),)
  script = Walk(_commands(schedule="0:0.5,0,0 3:0,0,0.3"), 6.0)
  assert script.at(2.9).tolist() == [0.5, 0, 0] and script.at(3.0)[2] == 0.3
  assert velocity.spell(script.at(2.0)) == "forward 0.5 m/s"
  assert velocity.spell(script.at(4.0)) == "turn left 0.3 rad/s"
  assert velocity.spell((-0.3, 0.1, 0)) == "backward 0.3 m/s, left 0.1 m/s"
  assert velocity.spell((0, 0, 0)) == "stand"


@pytest.mark.parametrize(
  "schedule", ["3", "0:1,2", "0:a,0,0", "-1:0,0,0", "3:0,0,0 1:0,0,0", "0:nan,0,0", " "]
)
def test_odd_schedules_are_refused(schedule):
  with pytest.raises(UserError):
    _commands(schedule=schedule)


def test_commands_that_training_never_gave_are_named():
  cfg = env_cfg("g1-flat").commands["twist"]  # Forward: -0.5 to 1 m/s.
  assert velocity.out_of_range([(1.0, -0.3, 0.5)], cfg) == []
  (sentence,) = velocity.out_of_range([(3.0, 0, 0), (0.5, 0, 0)], cfg)
  assert "forward 3 m/s lies outside of -0.5 to 1" in sentence
