"""The demo: a table before and after, a picture, and where to go next."""

from decap.cli import main
from decap.commands.demo import constraint_table, draw_curves


def _log(mean: float, violation: float, length: float) -> dict[str, float]:
  return {
    "Constraint/joint_vel/upper/mean": mean,
    "Constraint/joint_vel/upper/violation": violation,
    "Constraint/delta": 0.04,
    "Train/episode_length": length,
  }


def test_the_table_compares_the_start_with_the_end():
  # Episodes that end in the first three iterations are all short: left out.
  logs = [_log(*v) for v in ((7, 7, 1), (7, 7, 1), (7, 7, 1))]
  logs += [_log(*v) for v in ((3, 1, 10), (3, 1, 10), (0, 1, 10), (9, 9, 9))]
  logs += [_log(*v) for v in ((1, 0.2, 80), (1, 0.1, 90), (1, 0, 100))]
  *_, row, delta, length = constraint_table(logs, {"joint_vel/upper": 1.5})
  # Means of 3, 3, 0 and of 1, 1, 1; of 1, 1, 1 and of 0.2, 0.1, 0.
  values = ["joint_vel/upper", "1.5", "2.00", "1.00", "100.0%", "10.0%", "rad/s"]
  assert row.split() == values
  assert delta.split() == ["δ̄", "0.04", "0.04"]
  assert length.split() == ["episode,", "steps", "10", "90"]


def test_iterations_without_a_finished_episode_are_left_out(tmp_path):
  logs = [_log(1, 1, 10), _log(1, 1, 20)]
  del logs[0]["Train/episode_length"]
  assert constraint_table(logs, {"joint_vel/upper": 1.5})[-1].split()[-2:] == ["20"] * 2
  draw_curves(logs, {"joint_vel/upper": 1.5}, tmp_path / "curves.png")
  assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_the_demo_trains_and_shows(tmp_path, capsys):
  options = ["--num-envs", "4", "--iterations", "2", "--output", str(tmp_path)]
  assert main(["demo", *options]) == 0
  out = capsys.readouterr().out
  (folder,) = (tmp_path / "g1-flat").iterdir()
  assert (folder / "curves.png").is_file()
  for row in ("action_rate/upper", "joint_acc/lower", "joint_torque/upper"):
    assert f"\n{row} " in out
  assert f"decap train --resume {folder}" in out and f"decap play {folder}" in out


def test_the_demo_ends_in_time(tmp_path, capsys):
  options = ["--num-envs", "2", "--iterations", "500", "--output", str(tmp_path)]
  assert main(["demo", *options, "--seconds", "0.5"]) == 0
  (folder,) = (tmp_path / "g1-flat").iterdir()
  (checkpoint,) = (folder / "checkpoints").iterdir()
  assert 1 < int(checkpoint.stem.split("_")[1]) < 100
