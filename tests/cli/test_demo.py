"""The demo: policies that walk, a table before and after, and where to go next."""

import decap
from decap.cli import demo, main
from decap.cli.demo import constraint_rows
from decap.evaluation.protocol import Protocol
from decap.rl import checkpoint_files
from decap.runs import build_configs
from decap.tasks import get_task


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
  *_, row, delta, length = constraint_rows(logs, {"joint_vel/upper": 1.5})
  # Means of 3, 3, 0 and of 1, 1, 1; of 1, 1, 1 and of 0.2, 0.1, 0.
  values = ["joint_vel/upper", "1.5", "rad/s", "2.00", "1.00", "100.0%", "10.0%"]
  assert row == values
  assert delta == ["δ̄", "", "", "0.04", "0.04", "", ""]
  assert length == ["episode, steps", "", "", "10", "90", "", ""]


def test_iterations_without_a_finished_episode_are_left_out():
  logs = [_log(1, 1, 10), _log(1, 1, 20)]
  del logs[0]["Train/episode_length"]
  assert constraint_rows(logs, {"joint_vel/upper": 1.5})[-1][3:5] == ["20", "20"]


def test_legs_start_calmer_than_the_task_s_and_arms_as_calm():
  _, agent_cfg = build_configs(demo.demo_spec(num_envs=4, iterations=2))
  task = get_task(demo.TASK).describe().exploration
  assert sorted(task.values()) == [0.06, 0.6]
  found = agent_cfg.policy.init_std
  assert found == {joint: {0.06: 0.06, 0.6: 0.3}[std] for joint, std in task.items()}


def test_the_demo_compares_films_and_trains(tmp_path, capsys, monkeypatch):
  small = Protocol(rollouts=2, envs=2, steps=60, warmup=50, per_command=0)
  monkeypatch.setattr(demo, "PROTOCOL", small)
  monkeypatch.setattr(
    demo, "FILM", {"seconds": 0.16, "size": (64, 64), "device": "cpu"}
  )
  options = ["--num-envs", "4", "--iterations", "2", "--output", str(tmp_path)]
  assert main(["demo", *options]) == 0
  out = capsys.readouterr().out
  assert "smoothness rewards" in out and (tmp_path / "report.html").is_file()
  # Without a renderer a sentence says how to get one.
  assert (tmp_path / "walk.mp4").is_file() != ("No video: MuJoCo's renderer" in out)
  (folder,) = (tmp_path / "g1-flat").glob("*decap*")
  assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
  for row in ("action_rate/upper", "joint_acc/lower", "joint_torque/upper"):
    assert f"\n {row} " in out
  assert f"decap train --resume {folder}" in out
  assert out.splitlines()[-1].endswith("play policies/g1-flat-decap-calm-torso")


def test_without_the_repository_the_demo_only_trains(tmp_path, capsys, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(decap, "__file__", str(tmp_path / "lib" / "decap" / "x.py"))
  options = ["--num-envs", "2", "--iterations", "500", "--output", "demo"]
  assert main(["demo", *options, "--seconds", "0.5"]) == 0
  out = capsys.readouterr().out
  assert "policies/ of the repository" in out and "part 1" not in out
  (folder,) = (tmp_path / "demo" / "g1-flat").iterdir()
  numbers = [iteration for iteration, _ in checkpoint_files.list_checkpoints(folder)]
  assert 1 < max(numbers) < 100  # It ends in time.
