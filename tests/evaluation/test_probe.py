"""Short looks at a policy while it trains."""

import math

import pytest
import torch

from decap import tasks
from decap.evaluation.probe import KINDS, Probe, _report
from decap.evaluation.protocol import COMMANDS


def motion(followed=0.8, yaw=0.6, correlation=-0.5, flight=0.0):
  """What `Motion.result` gives, the same for each command."""
  bins = len(COMMANDS)
  values = {
    "followed": followed,
    "followed_yaw": yaw,
    "correlation": correlation,
    "flight": flight,
    "falls_per_minute": 0.0,
    "drift": 0.01,
  }
  return {name: torch.full((bins,), value) for name, value in values.items()}


def test_the_bands_hold_every_command_that_asks_for_motion_once():
  told = [name for names in KINDS.values() for name in names]
  assert sorted([*told, "zero", "stop"]) == sorted(COMMANDS)


def test_the_score_is_what_is_followed_within_the_limits():
  report = _report(motion(), {"a": 0.1, "b": 0.3})
  # Two of twelve commands are turns.
  assert report["followed"] == pytest.approx((10 * 0.8 + 2 * 0.6) / 12)
  assert report["followed/turning"] == pytest.approx(0.6)
  assert report["violations"] == pytest.approx(0.2)
  assert report["score"] == pytest.approx(report["followed"] * 0.8)
  assert report["violations/b"] == 0.3 and report["drift"] == pytest.approx(0.01)


@pytest.mark.parametrize("changes", [{"correlation": 0.1}, {"flight": 0.05}])
def test_hopping_halves_the_score(changes):
  good, bad = _report(motion(), {}), _report(motion(**changes), {})
  assert bad["score"] == pytest.approx(good["score"] / 2)


def test_stops_that_end_in_a_fall_cost_their_share():
  falls = torch.zeros(len(COMMANDS))
  falls[-1] = 3.75  # 15 stops a minute: every fourth.
  good, bad = (
    _report(motion(), {}),
    _report({**motion(), "falls_per_minute": falls}, {}),
  )
  assert good["fallen_stops"] == 0.0 and bad["fallen_stops"] == pytest.approx(0.25)
  assert bad["score"] == pytest.approx(0.75 * good["score"])


def test_overshooting_and_walking_backward_are_no_following():
  followed = torch.tensor([2.0, -1.0] * 6 + [math.nan] * 2)
  report = _report({**motion(), "followed": followed}, {})
  assert report["followed/fast"] == 0.0 and report["followed/slow"] == 1.0


def test_a_stander_has_no_gait_and_no_nan():
  report = _report(motion(followed=0.0, yaw=0.0, correlation=math.nan), {})
  assert "gait" not in report and report["score"] == 0.0
  assert all(map(math.isfinite, report.values()))


@pytest.fixture(scope="module")
def probe():
  cfg = tasks.env_cfg("g1-flat")
  robot = tasks.TASKS["g1-flat"].describe()
  probe = Probe(cfg, robot, "cpu", robots=1, steps=80)
  yield probe
  probe.close()
  assert "push" in cfg.events  # The config of training is left alone.


def test_two_looks_at_one_policy_say_the_same(probe):
  def act(obs):
    return 0.1 * obs["actor"][:, :29]

  first, second = probe(act), probe(act)
  assert first == second
  assert {"score", "followed", "falls", "violations/joint_torque/lower"} < set(first)
  assert probe(lambda obs: torch.zeros(14, 29)) != first


def test_a_look_changes_no_threads_and_says_nothing(probe, capsys):
  before = torch.get_num_threads()
  probe(lambda obs: torch.zeros(14, 29))
  assert torch.get_num_threads() == before
  assert capsys.readouterr().out == ""


def test_a_look_that_would_count_nothing_is_refused():
  robot = tasks.TASKS["g1-flat"].describe()
  with pytest.raises(ValueError, match="more than 50 steps, not 50"):
    Probe(tasks.env_cfg("g1-flat"), robot, "cpu", steps=50)
