"""Faults end as their class states; the whole campaign is ``decap faults``."""

import copy
import functools
import json
import os

import numpy as np
import pytest

from decap.cli import main
from decap.cli.faults import _line
from decap.deploy import campaign, controller, faults, grounds
from decap.deploy.faults import KINDS, STOPPED, TOLERATED, Outcome, make_plan, play
from decap.deploy.kill import KILLS, play_kill
from decap.deploy.stops import Limits
from decap.errors import UserError

from .network import needs_dds
from .robots import POLICY, released

IN_PROCESS = [kind for kind in KINDS if kind not in KILLS]


def test_every_class_has_one_end_and_seeds_decide():
  assert len(KINDS) == len(set(KINDS)) == 28
  assert set(KINDS) == set(TOLERATED) | set(STOPPED)
  starts = {make_plan("sustained loss", seed).start_s for seed in range(20)}
  assert len(starts) > 15
  assert (
    make_plan("sustained loss", 3).start_s == make_plan("sustained loss", 3).start_s
  )


# One run of each class takes long enough; seeds that are not the campaign's first.
@pytest.mark.slow
@pytest.mark.parametrize("kind", IN_PROCESS)
def test_each_class_ends_as_stated(kind):
  outcome = play(kind, 21, released())
  assert outcome.passed, outcome
  assert (outcome.reaction_s is None) == (kind in TOLERATED)


def test_a_stop_for_another_reason_fails_the_campaign(monkeypatch):
  """One that comes later, for what follows from the fault, would hide a dead check."""
  monkeypatch.setattr(faults, "AFTER_S", 0.2)
  monkeypatch.setattr("decap.deploy.stops.Deadlines.fault", lambda *_: None)
  outcome = play("stalled controller", 0, released())
  assert not outcome.passed and outcome.reaction_s <= faults.DAMPING_S
  assert outcome.detail.startswith("stopped for another reason than 'a cycle came': a")


def test_a_tolerated_class_ends_as_stated(monkeypatch):
  monkeypatch.setattr(faults, "AFTER_S", 0.3)
  outcome = play("late state", 2, released())
  assert outcome.passed, outcome


def test_the_command_plays_a_class_and_writes_results(monkeypatch, tmp_path, capsys):
  monkeypatch.setattr(faults, "AFTER_S", 0.3)
  file = tmp_path / "faults.json"
  argv = ["faults", str(POLICY), "--kind", "frozen or corrupted states"]
  assert main([*argv, "--seeds", "1", "--output", str(file)]) == 0
  assert "1 of 1 runs ended as their class states" in capsys.readouterr().out
  found = json.loads(file.read_text())["classes"]["frozen or corrupted states"]
  assert found["passed"] == 1 and 0.0 < found["longest_reaction_s"] <= 0.1


@needs_dds
@pytest.mark.parametrize("kind", KILLS)
def test_a_robot_is_damped_by_what_was_not_killed(kind):
  domain = 100 + (os.getpid() + 45 * KILLS.index(kind)) % 90
  outcome = play_kill(kind, 1, released(), domain)
  assert outcome.passed, outcome
  assert 0.0 <= outcome.reaction_s <= 0.1


def test_a_controller_without_its_checks_fails_the_campaign(monkeypatch):
  """The judges can say no: the same faults on a controller that ignores them."""
  monkeypatch.setattr(faults, "AFTER_S", 0.2)
  monkeypatch.setattr("decap.deploy.stops.Monitor.fault", lambda self, now_s: None)
  outcome = play("sustained loss", 0, released())
  # The only damping is the one at the end of the run.
  assert not outcome.passed and outcome.reaction_s == pytest.approx(0.2)


def test_results_add_up():
  outcomes = [
    Outcome("sustained loss", 0, True, "states are lost", 0.05),
    Outcome("sustained loss", 1, False, "was never damped"),
    Outcome("dropped state", 0, True, "missing 1"),
  ]
  legs = [
    campaign.Leg("flat", 0, 30.0, "walked"),
    campaign.Leg("gravel", 1, 10.0, "fell", "tilt"),
    campaign.Leg("flat", 2, 20.0, "false stop", "late"),
  ]
  found = campaign.summary(outcomes, legs)
  assert (found["passed"], found["runs"]) == (2, 3)
  loss = found["classes"]["sustained loss"]
  assert (loss["passed"], loss["runs"], loss["longest_reaction_s"]) == (1, 2, 0.05)
  assert loss["failures"][0]["seed"] == 1
  assert found["soak"]["seconds"] == 60.0
  assert (found["soak"]["falls"], found["soak"]["false_stops"]) == (1, 1)
  assert found["soak"]["by_terrain"]["flat"]["seconds"] == 50.0


def test_a_short_walk_has_no_false_stop():
  (leg,) = campaign.soak(released(), 0.5, leg_s=1.0)
  assert (leg.terrain, leg.end) == ("flat", "walked")
  assert leg.seconds == pytest.approx(1.0, abs=0.01)


def test_a_policy_that_never_walks_ends_the_soak():
  useless = copy.copy(released())
  useless.act = lambda obs: np.full((1, 29), np.nan, np.float32)
  legs = campaign.soak(useless, 1.0)
  with pytest.raises(UserError, match="g1-flat-cat does not walk: the policy's output"):
    for _ in range(10):
      assert next(legs).seconds == 0.0


def test_a_stop_of_a_robot_that_would_have_walked_on_is_a_false_one(monkeypatch):
  wary = functools.partial(Limits, joint_speed_share=0.05)
  monkeypatch.setattr(controller, "Limits", wary)
  leg = campaign.walk_leg(released(), "flat", seed=0, leg_s=3.0)
  assert leg.end == "false stop" and "is faster than" in leg.reason


def test_two_processes_walk_the_same_walks():
  alone = list(campaign.soak(released(), 0.5, leg_s=0.3))
  together = list(campaign.soak(released(), 0.5, jobs=2, leg_s=0.3))
  assert together == alone and [leg.terrain for leg in alone] == ["flat", "carpet"]


def test_unknown_classes_are_refused(capsys):
  assert main(["faults", str(POLICY), "--kind", "rain"]) == 2
  assert "Unknown class 'rain' (there are dropped state" in capsys.readouterr().err
  assert main(["faults", str(POLICY), "--seeds", "-1"]) == 2


def test_a_walk_of_the_soak_ends_before_its_course_does(monkeypatch):
  """Behind the edge a robot falls, and its ankles spin: no stop would be false."""
  short = grounds.Course((("flat", grounds.PAD_M), ("flat", 0.2)))
  monkeypatch.setitem(grounds.TERRAINS, "short", short)
  leg = campaign.walk_leg(released(), "short", seed=0)
  assert leg.end == "walked" and 1.0 < leg.seconds < 15.0


def test_a_reaction_in_the_same_cycle_takes_no_negative_time():
  outcome = Outcome("second publisher", 0, True, "another program", -2.2e-16)
  expected = "second publisher: 1 of 1, damping after at most 0 ms"
  assert _line(outcome, [outcome]) == expected


def test_a_growing_delay_ends_as_stated(monkeypatch):
  monkeypatch.setattr(faults, "AFTER_S", 0.2)
  outcome = play("growing delay", 2, released())
  assert outcome.passed and 0.05 < outcome.reaction_s, outcome
