"""What robots achieve, and when they count as steady."""

import pytest
import torch

from decap.rl.progress import FALL_STEPS, ITERATIONS, STEADY, Progress


def iterate(progress: Progress, pairs=None, falls: int = 0, robots: int = 1000) -> None:
  """One iteration of one step."""
  fell = torch.arange(robots) < falls
  progress.hear(None if pairs is None else torch.tensor(pairs), fell)
  progress.between_iterations()


def test_achievements_are_what_was_done_of_what_was_asked():
  progress = Progress(("walk", "turn"))
  iterate(progress, [[3.0, 4.0], [-1.0, 2.0]], falls=0)
  assert progress.names == ("walk", "turn", "upright")
  # 3/4; backwards is nothing; nobody fell.
  assert progress.achieved.tolist() == [0.75, 0.0, 1.0]
  iterate(progress, [[9.0, 4.0], [0.0, 0.0]], falls=0)
  # (3 + 9) / (4 + 4), at most 1; what was not asked again stays: −1/2.
  assert progress.achieved.tolist() == [1.0, 0.0, 1.0]
  assert {k: float(v) for k, v in progress.metrics().items()} == {
    "Task/walk": 1.0,
    "Task/turn": 0.0,
    "Task/upright": 1.0,
  }


@pytest.mark.parametrize(("falls", "upright"), [(0, 1.0), (1, 0.5), (2, 0.0), (9, 0.0)])
def test_upright_is_one_minus_the_falls_in_a_thousand_steps(falls, upright):
  assert FALL_STEPS == 1000
  progress = Progress(())
  # `falls` of 2000 robots in one step: falls / 2 in a thousand steps of one robot.
  iterate(progress, falls=falls, robots=2000)
  assert float(progress.achieved[0]) == pytest.approx(upright)


def test_as_many_rows_are_heard_as_have_names():
  with pytest.raises(ValueError, match="0 rows of progress, but the names walk"):
    iterate(Progress(("walk",)))


def test_averages_forget_over_twenty_iterations():
  progress = Progress(("walk",))
  for _ in range(ITERATIONS):
    iterate(progress, [[0.0, 1.0]])
  iterate(progress, [[1.0, 1.0]])
  assert float(progress.achieved[0]) == pytest.approx(1 / ITERATIONS)


def test_steady_begins_once_robots_stay_up_and_never_ends():
  progress = Progress(())
  for _ in range(ITERATIONS + 9):
    iterate(progress, falls=1)  # 1000 robots, one fall a step: upright 0.
  assert progress.steady_iterations == 0
  needed = 0
  while progress.steady_iterations == 0:
    iterate(progress, falls=0)
    needed += 1
  # 1 − 0.95^n ≥ 0.2 from n = 5 on.
  assert STEADY == 0.2 and needed == 5
  for _ in range(50):
    iterate(progress, falls=100)
  assert progress.steady_iterations == 51


def test_robots_that_are_never_told_to_move_are_steady_when_they_stay_up():
  progress = Progress(("stepping",))
  for _ in range(ITERATIONS + 1):
    iterate(progress, [[0.0, 0.0]])
  assert progress.asked.tolist() == [False, True]
  assert progress.steady_iterations == 1


def test_the_first_iterations_are_never_steady():
  progress = Progress(())
  for _ in range(ITERATIONS):
    iterate(progress, falls=0)
  assert progress.steady_iterations == 0
  iterate(progress, falls=0)
  assert progress.steady_iterations == 1


@pytest.mark.parametrize("fade", [1.0, 0.999])
def test_the_best_counts_from_then_on_and_fades_as_told(fade):
  progress = Progress(("walk",), fade=fade)
  for _ in range(ITERATIONS):
    iterate(progress, [[1.0, 1.0]], falls=1)  # Falling forwards follows, too.
  for _ in range(200):
    iterate(progress, [[0.5, 1.0]], falls=0)
  steady = float(progress.best[0])
  assert 0.5 < steady < 0.9  # What it was when they first stood, less what faded.
  before = progress.best.clone()
  iterate(progress, [[0.0, 1.0]], falls=0)
  assert float(progress.best[0]) == pytest.approx(float(before[0]) * fade)
  for _ in range(200):
    iterate(progress, [[1.0, 1.0]], falls=0)
  assert float(progress.best[0]) == pytest.approx(1.0, abs=1e-3)


def test_the_state_survives_and_is_written_in_place():
  first, second = Progress(("walk",)), Progress(("walk",))
  tensors = second.state_dict()
  for i in range(30):
    iterate(first, [[0.1 * i, 1.0]], falls=i % 2)
  second.load_state_dict({k: v.clone() for k, v in first.state_dict().items()})
  for progress in (first, second):
    iterate(progress, [[0.7, 1.0]])
  for name, value in second.state_dict().items():
    assert torch.equal(value, first.state_dict()[name]), name
    assert value is tensors[name]


def test_robots_that_stay_up_but_do_not_step_are_not_steady():
  progress = Progress(("walk", "stepping"))
  for _ in range(2 * ITERATIONS):
    iterate(progress, [[1.0, 1.0], [0.19, 1.0]])
  assert progress.steady_iterations == 0
  for _ in range(ITERATIONS):
    iterate(progress, [[0.0, 1.0], [0.3, 1.0]])
  assert progress.steady_iterations > 0
  assert progress.gait.tolist() == [False, True, False]
