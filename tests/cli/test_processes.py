"""Several processes that train together: what is refused, and how they end."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from decap.cli import main, processes
from decap.cli import train as training_of
from decap.errors import UserError
from decap.options import machine
from decap.rl import checkpoint, checkpoint_files
from decap.runs import RunSpec

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
needs_two_cores = pytest.mark.skipif(
  len(os.sched_getaffinity(0)) < 2, reason="needs two cores"
)
TRAIN = ["train", "--task", "g1-flat", "--device", "cpu", "--iterations", "3"]


def test_environments_that_do_not_divide_start_nothing(capsys, monkeypatch):
  monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
  assert main([*TRAIN, "--num-envs", "5", "--gpus", "2"]) == 2
  assert "5 environments cannot be shared by 2 processes" in capsys.readouterr().err


def test_a_system_that_does_not_say_which_cores_are_ours_has_all(capsys, monkeypatch):
  """As macOS; one core more is too many."""
  monkeypatch.delattr(os, "sched_getaffinity", raising=False)
  monkeypatch.setattr(os, "cpu_count", lambda: 3)
  assert main([*TRAIN, "--gpus", "4"]) == 2
  assert "--gpus must be between 1 and 3, the cores here." in capsys.readouterr().err


def test_mistakes_are_told_before_processes_start(capsys, monkeypatch):
  monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
  monkeypatch.delattr(processes, "launch")
  two = [*TRAIN, "--gpus", "2"]
  assert main([*two, "--limits", "nowhere"]) == 2
  assert "Cannot read the limits file nowhere" in capsys.readouterr().err
  assert main(["train", "--device", "cpu", "--gpus", "2", "--resume", "nowhere"]) == 2
  assert "There is no run folder" in capsys.readouterr().err


def test_several_gpus_are_all_of_them_from_the_first_on():
  with pytest.raises(
    UserError, match="--gpus takes GPUs from 0 on; leave out --device"
  ):
    processes.check_devices(2, "cuda:1")


def test_one_gpu_may_be_any(monkeypatch):
  monkeypatch.setattr(machine, "num_gpus", lambda: 2)
  processes.check_devices(1, "cuda:1")


def test_processes_that_differ_are_refused(tmp_path):
  """Each has a seed of its own, as if somebody had typed the command twice."""
  command = f"{sys.executable} -m decap {' '.join(TRAIN)} --num-envs 4 --seed $RANK"
  done = subprocess.run(
    [*TORCHRUN, "--nproc-per-node", "2", "--no-python", "sh", "-c", command],
    cwd=tmp_path,
    capture_output=True,
    text=True,
  )
  assert done.returncode != 0
  sentence = "decap: The processes of this training do not agree on: options."
  assert sentence in done.stderr
  assert not list(tmp_path.iterdir())


def test_a_run_that_another_machine_does_not_see_is_named(monkeypatch, capsys):
  monkeypatch.setenv("WORLD_SIZE", "2")
  monkeypatch.setenv("RANK", "1")
  assert main(["train", "--device", "cpu", "--resume", "runs/elsewhere"]) == 2
  error = capsys.readouterr().err
  assert "runs/elsewhere is not there for process 1 on" in error
  assert "a disk that they share" in error


def test_a_damaged_checkpoint_that_another_process_put_aside_is_passed_over(tmp_path):
  """Both read the same folder at the same time, and must go on from the same file."""
  found = tmp_path / "checkpoints"
  found.mkdir()
  for iteration in (5, 10):
    checkpoint.save(checkpoint_files.path_for(tmp_path, iteration), {"progress": {}})
  last = checkpoint_files.path_for(tmp_path, 10)
  last.write_bytes(b"half of a file")
  older = checkpoint_files.path_for(tmp_path, 5)
  spec = RunSpec("g1-flat", "decap")
  assert training_of._start(spec, tmp_path, last) == older
  assert last.with_name("model_10.pt.damaged").exists() and not last.exists()
  assert training_of._start(spec, tmp_path, last) == older


@pytest.mark.slow
@needs_two_cores
def test_a_nan_ends_all_with_one_sentence(tmp_path):
  command = [sys.executable, "-m", "decap", *TRAIN, "--num-envs", "4", "--gpus", "2"]
  command += ["--agent.algorithm.schedule", "fixed"]
  command += ["--agent.algorithm.learning-rate", "1e30"]
  done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
  assert done.returncode not in (0, 130)
  assert done.stderr.count("Training diverged in iteration 1: not finite are") == 1
  assert "Traceback" not in done.stderr
  assert (
    "Building 2 environments of g1-flat on cpu in each of 2 processes" in done.stdout
  )


@pytest.fixture
def training(tmp_path):
  """Two processes that are at work, started as a user does; and their screen."""
  screen = tmp_path / "screen"
  command = [sys.executable, "-m", "decap", "train", "--task", "g1-flat"]
  command += ["--device", "cpu", "--num-envs", "4", "--gpus", "2"]
  command += ["--iterations", "500", "--agent.save-interval", "2"]
  with screen.open("w") as out:
    process = subprocess.Popen(
      command,
      cwd=tmp_path,
      env={**os.environ, "PWD": str(tmp_path)},
      stdout=out,
      stderr=out,
    )
  try:
    while "3/500" not in screen.read_text():
      assert process.poll() is None, screen.read_text()
      time.sleep(0.2)
    yield process, screen
  finally:
    process.kill()  # The others end with it.


def _last(folder: Path) -> Path:
  (run,) = (folder / "runs" / "g1-flat").iterdir()
  return run


@pytest.mark.slow
@needs_two_cores
def test_ctrl_c_saves_all_and_exits_like_one_process(training, tmp_path):
  process, screen = training
  process.send_signal(signal.SIGINT)
  assert process.wait(120) == 130
  text = screen.read_text()
  assert "Stopped and saved. Continue with:" in text and "Traceback" not in text
  assert (_last(tmp_path) / "policy" / "policy.onnx").exists()


@pytest.mark.slow
@needs_two_cores
def test_a_killed_process_ends_all_and_one_process_goes_on(training, tmp_path):
  process, screen = training
  for path in Path("/proc").glob("[0-9]*"):
    with contextlib.suppress(OSError):
      variables = (path / "environ").read_bytes().split(b"\0")
      if b"RANK=1" in variables and f"PWD={tmp_path}".encode() in variables:
        os.kill(int(path.name), signal.SIGKILL)
  assert process.wait(120) in (1, 2)
  text = screen.read_text()
  assert "goes on from the last checkpoint" in text and "Traceback" not in text
  run = _last(tmp_path)
  command = [sys.executable, "-m", "decap", "train", "--device", "cpu"]
  command += ["--resume", str(run), "--iterations"]
  # With one process, and again with two.
  for more in (["6"], ["8", "--gpus", "2"]):
    done = subprocess.run(
      [*command, *more], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f"{more[0]}/{more[0]}" in done.stdout
