"""Jobs: what is found on disk, and which command follows."""

import errno
import io
import json
import os
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.live import Live

from decap.errors import UserError
from decap.evaluation.protocol import Protocol, file_names
from decap.rl.display import Status
from decap.rl.status import STATUS_FILE, StatusFile, read_status
from decap.sweep import display, mps
from decap.sweep.job import Job, train_command
from decap.sweep.plan import Plan, make_plan
from decap.sweep.scheduler import LocalScheduler, Slot, _slots, locked

DATA = {"task": "g1-flat", "method": "decap", "iterations": 10, "num-envs": 64}


def make_job(tmp_path, **changes) -> Job:
  return Job(make_plan({**DATA, **changes}).runs[0], tmp_path)


def make_folder(job: Job, iteration: int, stamp: str = "2025", **changes):
  """A run folder as training leaves it after some iterations."""
  folder = job.root / job.run.spec.task / f"{stamp}_{job.run.spec.method}_s1"
  (folder / "params").mkdir(parents=True)
  spec = {**job.run.spec.to_dict(), **changes}
  (folder / "params" / "run.json").write_text(json.dumps(spec))
  if iteration:
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / f"model_{iteration}.pt").touch()
    export(folder, iteration)
  return folder


def export(folder, iteration: int) -> None:
  (folder / "policy").mkdir(exist_ok=True)
  (folder / "policy" / "policy.json").write_text(json.dumps({"iteration": iteration}))


def measure(folder, label: str = "", limits=None, **protocol):
  """Metrics as an evaluation leaves them."""
  told = Protocol(task="g1-flat", **protocol).to_dict()
  path = folder / file_names(label)[0]
  layout = {"limits": limits or {}}
  path.write_text(json.dumps({"protocol": told, "layout": layout}))
  return path


def test_progress_is_read_from_what_training_writes(tmp_path):
  job = make_job(tmp_path)
  assert job.progress() is None
  folder = make_folder(job, 0)
  log = {"Train/episode_length": 204.0, "Train/reward": 3.25, "Constraint/delta": 0.04}
  with StatusFile(folder) as status:
    status.update(Status(7, 300, 1234.4, 3661.0), log)
    # Held back for a moment, and written at the end.
    status.update(Status(8, 300, 1234.4, 3661.0), log)
    assert job.progress().iteration == 7
  progress = job.progress()
  assert (progress.iteration, progress.total) == (8, 300)
  assert progress.steps_per_s == 1234.4
  assert progress.values == {"episode": 204.0, "reward": 3.25, "δ̄": 0.04}
  job.state = "training"
  table = Console(width=120, file=io.StringIO())
  table.print(display.table([job]))
  cells = table.file.getvalue().splitlines()[-1].split()
  assert cells[1:] == ["training", "8/300", "204", "3.25", "0.040", "1234", "1:01:01"]


def test_a_screen_of_lines_has_the_table_once_a_minute(tmp_path, monkeypatch, capsys):
  now = [100.0]
  monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
  board = display.PlainBoard()
  for seconds in (0.0, 59.0, 1.0):
    now[0] += seconds
    board.update([make_job(tmp_path)])
  assert capsys.readouterr().out.count("g1-flat_decap_s1") == 2


def test_a_file_that_is_no_progress_is_none(tmp_path):
  (tmp_path / STATUS_FILE).write_text('{"iteration": 3')
  assert read_status(tmp_path) is None
  (tmp_path / STATUS_FILE).write_text('{"later": 3}')
  assert read_status(tmp_path) is None
  with StatusFile(None) as status:
    status.update(Status(1, 2, 3.0, 4.0), {})


def test_a_run_is_found_by_its_description(tmp_path):
  job = make_job(tmp_path)
  assert job.folder() is None
  make_folder(job, 10, "2024", seed=2)
  assert job.folder() is None
  early = make_folder(job, 4, "2025")
  make_folder(job, 0, "2026")
  assert job.folder() == early
  assert job.done_iterations() == 4
  assert not job.trained()
  # A longer file continues a run that was shorter.
  late = make_folder(job, 12, "2027", iterations=3)
  assert job.folder() == late
  assert job.trained()
  # A kill between the last checkpoint and the bundle of it.
  export(late, 9)
  assert not job.trained()
  (late / "policy" / "policy.json").unlink()
  assert not job.trained()


def test_metrics_count_only_if_newer_than_the_checkpoint(tmp_path):
  job = make_job(tmp_path)
  folder = make_folder(job, 10)
  plan = Plan(runs=(job.run,))
  assert not job.evaluated(plan)
  metrics = measure(folder)
  os.utime(metrics, (1, 1))
  assert not job.evaluated(plan)
  os.utime(metrics)
  assert job.evaluated(plan)
  metrics.touch()
  metrics.write_text("")
  assert not job.evaluated(plan)


def test_metrics_count_only_for_what_was_asked(tmp_path):
  job = make_job(tmp_path)
  folder = make_folder(job, 10)
  plan, quick, disturbed = (
    make_plan({**DATA, "evaluate": options})
    for options in (True, {"quick": True}, {"disturbed": True})
  )
  measure(folder, rollouts=4, envs=16, steps=300, per_command=16)
  assert job.evaluated(quick) and not job.evaluated(plan)
  measure(folder, per_command=0)  # None that was told "stop", for example.
  assert not job.evaluated(plan)
  measure(folder)
  # A larger one serves, too; another protocol has another file.
  assert job.evaluated(quick) and job.evaluated(plan)
  assert not job.evaluated(disturbed)
  measure(folder, "disturbed", disturbed=True)
  assert job.evaluated(disturbed)


def test_metrics_count_only_against_the_limits_that_were_asked_for(tmp_path):
  job = make_job(tmp_path)
  folder = make_folder(job, 10)
  (tmp_path / "limits.yaml").write_text("joint_vel: {upper: 2.0}\ntilt: 1")
  asked = make_plan({**DATA, "evaluate": {"limits": "limits.yaml"}}, tmp_path)
  # Those of groups that the file does not name are the task's.
  for upper, tilt, done in ((2.0, 1.0, True), (3.0, 1.0, False), (2.0, 0.5, False)):
    measure(folder, limits={"joint_vel": {"upper": upper, "lower": 9.0}, "tilt": tilt})
    assert job.evaluated(asked) is done
  for other in ({"joint_vel": {"upper": 2.0}}, {"joint_vel": 2.0, "tilt": 1.0}):
    measure(folder, limits=other)
    assert not job.evaluated(asked)
  assert job.evaluated(make_plan(DATA))


def test_commands_start_and_continue(tmp_path):
  job = make_job(tmp_path, grid={"env.termination.kappa": [3]}, blind=True, seed=4)
  plan = Plan(runs=(job.run,), devices=("cpu",))
  assert train_command(job, plan, "cpu") == [
    *("train", "--device", "cpu", "--backend", "auto", "--iterations", "10"),
    *("--task", "g1-flat", "--method", "decap", "--seed", "4", "--num-envs", "64"),
    *("--log-root", str(tmp_path), "--run-name", "kappa=3", "--blind"),
    *("--env.termination.kappa", "3"),
  ]
  folder = make_folder(job, 4)
  assert train_command(job, plan, "cpu") == [
    *("train", "--device", "cpu", "--backend", "auto", "--iterations", "10"),
    *("--resume", str(folder)),
  ]


def test_a_run_that_is_beyond_a_shorter_file_gets_its_bundle(tmp_path):
  """Killed at iteration 12, before the file was made to ask for 10."""
  job = make_job(tmp_path)
  folder = make_folder(job, 12, iterations=20)
  (folder / "policy" / "policy.json").unlink()
  state, command = job.next_stage(Plan(runs=(job.run,), devices=("cpu",)))
  assert state == "training"
  assert command[-4:] == ["--iterations", "12", "--resume", str(folder)]


def test_runs_at_work_are_on_the_screen_however_many_there_are(tmp_path):
  jobs = [make_job(tmp_path, seed=seed) for seed in range(30)]
  jobs[-1].state = "training"
  console = Console(width=120, height=10, file=io.StringIO(), force_terminal=True)
  with Live(auto_refresh=False, console=console) as live:
    display.LiveBoard(live).update(jobs)
    assert "g1-flat_decap_s29" in console.file.getvalue()


def test_an_evaluation_gets_the_options_that_have_values(tmp_path):
  job = make_job(tmp_path)
  folder = make_folder(job, 10)
  options = {"seed": None, "task": None, "disturbed": None, "quick": True, "steps": 60}
  plan = make_plan({**DATA, "device": "cpu", "evaluate": options})
  assert job.next_stage(plan) == (
    "evaluating",
    ["evaluate", str(folder), "--device", "cpu", "--quick", "--steps", "60"],
  )


def test_a_run_starts_from_weights_that_may_move_later(tmp_path):
  weights = tmp_path / "weights.pt"
  weights.write_bytes(b"weights")
  job = make_job(tmp_path, **{"init-from": str(weights)})
  command = train_command(job, Plan(runs=(job.run,)), "cpu")
  assert command[-2:] == ["--init-from", str(weights)]
  make_folder(job, 10, "2024", init_sha256="others")
  assert job.folder() is None
  folder = make_folder(job, 10, "2025", init_from="elsewhere/weights.pt")
  assert job.folder() == folder


def test_estimate(tmp_path):
  job, new = make_job(tmp_path), make_job(tmp_path, seed=2)
  folder = make_folder(job, 4)
  plan = Plan(runs=(job.run, new.run), devices=("cpu",), jobs=1, steps_per_s=1000.0)
  # 6 and 10 iterations of 64 × 24 steps, and two starts of 30 s.
  seconds, basis = display.estimate(plan, [job, new])
  assert seconds == pytest.approx(16 * 64 * 24 / 1000 + 60)
  assert basis.startswith("30 s for each start, and 24,576 steps at 1000 steps/s")
  assert "file" in basis
  # Two at a time, each as fast as the first says.
  status = {"iteration": 4, "total": 10, "steps_per_s": 500.0, "left_s": 60.0}
  (folder / STATUS_FILE).write_text(json.dumps(status))
  plan = Plan(runs=plan.runs, devices=("cpu",), jobs=2)
  seconds, basis = display.estimate(plan, [job, new])
  assert seconds == pytest.approx(16 * 64 * 24 / 1000 + 30)
  assert "earlier runs" in basis
  assert "  4/10" in display.plan_lines(plan, [job, new])[0]


def test_nothing_is_started_when_all_is_done(tmp_path):
  job = make_job(tmp_path)
  measure(make_folder(job, 10))
  plan = Plan(runs=(job.run,), devices=("cpu",), jobs=1)
  scheduler = LocalScheduler(plan, tmp_path, {}, 0, display.PlainBoard())
  scheduler.work()
  assert [job.state for job in scheduler.jobs] == ["done"]
  assert not (tmp_path / "logs").exists()


def test_a_run_that_cannot_be_started_stops_no_other(tmp_path, monkeypatch, capsys):
  first, second = make_job(tmp_path), make_job(tmp_path, seed=2)

  def full(*args, **kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  monkeypatch.setattr("subprocess.Popen.__init__", full)
  plan = Plan(runs=(first.run, second.run), devices=("cpu",), jobs=1)
  scheduler = LocalScheduler(plan, tmp_path, {}, 0, display.PlainBoard())
  scheduler.work()
  assert [job.state for job in scheduler.jobs] == ["failed", "failed"]
  assert "it cannot be started: No space left on device" in capsys.readouterr().out


def test_a_run_that_was_killed_is_told_apart_from_what_it_printed_last(tmp_path):
  job = make_job(tmp_path)
  plan = Plan(runs=(job.run,), devices=("cpu",), jobs=1)
  scheduler = LocalScheduler(plan, tmp_path, {}, 0, display.PlainBoard())
  (tmp_path / "logs").mkdir()
  job.log_file.write_text("  7/10  reward 3.25  left 0:01:00\n")
  killed = SimpleNamespace(poll=lambda: -9, told=0)
  scheduler._processes[job.run.name] = killed
  scheduler._places[job.run.name] = Slot("cpu")
  job.state = "training"
  scheduler._watch(job, killed)
  assert job.note == "training: killed by signal 9"


def test_jobs_divide_the_cores_of_a_cpu():
  cores = os.sched_getaffinity(0)
  assert _slots(1, ("cpu",)) == [Slot("cpu", frozenset(cores))]
  first, second = (slot.cpus for slot in _slots(2, ("cpu",)))
  assert first and second
  if len(cores) > 1:
    assert first | second == cores and not first & second
  gpus = ("cuda:0", "cuda:2")
  assert _slots(3, gpus) == [Slot("cuda:0")] * 3 + [Slot("cuda:2")] * 3


def test_one_sweep_at_a_time_in_a_folder(tmp_path):
  with locked(tmp_path):
    with pytest.raises(UserError, match="Another sweep"):
      with locked(tmp_path):
        pass
  with locked(tmp_path):
    pass


def test_mps_that_no_client_reaches_is_stopped_again(tmp_path, monkeypatch):
  """A control program that notes its calls; the probe fails where no driver is."""
  calls = tmp_path / "calls"
  control = tmp_path / "nvidia-cuda-mps-control"
  control.write_text(f'#!/bin/sh\necho "$1$(cat)" >> {calls}\n')
  control.chmod(0o755)
  monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
  monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
  monkeypatch.setattr(mps, "_PROBE", "raise SystemExit(1)")
  with mps.shared_gpu() as (variables, note):
    assert variables == {}
    assert "take turns" in note
  assert calls.read_text().split() == ["-d", "quit"]
  monkeypatch.setattr(mps, "_PROBE", "")
  with mps.shared_gpu() as (variables, note):
    assert os.path.isdir(variables["CUDA_MPS_PIPE_DIRECTORY"])
    assert "through MPS" in note
    assert calls.read_text().split() == ["-d", "quit", "-d"]
  assert calls.read_text().split() == ["-d", "quit", "-d", "quit"]


def test_mps_numbers_the_gpus_that_it_serves_from_zero_on(tmp_path, monkeypatch):
  """The daemon takes CUDA_VISIBLE_DEVICES as it is; a client that did would find none."""
  calls, control = tmp_path / "calls", tmp_path / "nvidia-cuda-mps-control"
  control.write_text(f'#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES" >> {calls}\n')
  control.chmod(0o755)
  monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
  monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
  monkeypatch.setattr(mps, "num_gpus", lambda: 2)
  probe = "import os, sys; assert [os.environ['CUDA_VISIBLE_DEVICES'], sys.argv[1]] == "
  monkeypatch.setattr(mps, "_PROBE", f"{probe} ['0,1', '1']")
  monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
  with mps.shared_gpu("cuda:1") as (variables, note):
    assert variables["CUDA_VISIBLE_DEVICES"] == "0,1" and "through MPS" in note
  assert calls.read_text().split() == ["4,6", "4,6"]
  monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
  monkeypatch.setattr(mps, "_PROBE", "")
  with mps.shared_gpu() as (variables, _):
    assert "CUDA_VISIBLE_DEVICES" not in variables


def test_mps_is_not_there(monkeypatch):
  monkeypatch.setenv("PATH", "")
  monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
  with mps.shared_gpu() as (variables, note):
    assert variables == {} and "there is no nvidia-cuda-mps-control" in note
