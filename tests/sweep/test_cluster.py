"""Jobs of a cluster: what is decided about them, and a real SLURM of one node."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from decap.cli import main
from decap.errors import UserError
from decap.sweep import cluster
from decap.sweep.cluster import ClusterScheduler, Work
from decap.sweep.job import train_command
from decap.sweep.plan import Resources, make_plan
from tests.sweep import slurm_node
from tests.sweep.test_job import make_folder

submitit = pytest.importorskip("submitit", reason="pip install 'decap[cluster]'")
from submitit.core.utils import cloudpickle_dump  # noqa: E402

DATA = {
  **{"task": "g1-flat", "method": "decap", "iterations": 10, "num-envs": 64},
  **{"seed": [1, 2], "evaluate": False, "device": "cpu"},
}


class Board:
  """Keeps what is said."""

  def __init__(self):
    self.lines = []

  def update(self, jobs):
    pass

  def message(self, text):
    self.lines.append(text)


@pytest.fixture
def commands(tmp_path, monkeypatch):
  """SLURM's commands as scripts: jobs are numbered, and a file has their states."""
  (tmp_path / "number").write_text("6")
  scripts = {
    "sinfo": "echo up",
    "srun": "",
    "squeue": f"cat {tmp_path}/states",
    "scancel": f'echo "$@" >> {tmp_path}/cancelled',
    "sbatch": f"n=$(($(cat {tmp_path}/number) + 1)); echo $n > {tmp_path}/number; "
    'echo "Submitted batch job $n"',
  }
  for name, script in scripts.items():
    (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / name).chmod(0o755)
  (tmp_path / "states").touch()
  monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
  return tmp_path


def make_scheduler(folder: Path, **changes) -> ClusterScheduler:
  plan = make_plan({**DATA, **changes})
  plan.jobs, plan.slurm = 2, True
  return ClusterScheduler(plan, folder / "sweep", Board())


def left(folder: Path, job: str, error: str | None = None) -> None:
  """What a job leaves behind: its screen, and perhaps an error."""
  logs = folder / "sweep" / "logs" / "slurm"
  (logs / f"{job}_0_log.out").write_text("Starting")
  if error:
    cloudpickle_dump(("error", error), logs / f"{job}_0_result.pkl")


def test_runs_are_one_array_and_are_found_again(commands):
  scheduler = make_scheduler(commands)
  assert scheduler.step()
  assert scheduler._display.lines == ["Submitted jobs 7_0 to 7_1."]
  script = commands / "sweep" / "logs" / "slurm" / "7_submission.sh"
  assert "#SBATCH --array=0-1%2" in script.read_text()
  (commands / "states").write_text("7_0 RUNNING\n7_1 PENDING\n99 FAILED\n")
  # A second look, by another process, submits nothing.
  again = make_scheduler(commands)
  assert again.step()
  assert [job.state for job in again.jobs] == ["training", "waiting"]
  assert (commands / "number").read_text().strip() == "7"
  assert "scancel 7" in again.on_signal
  with pytest.raises(UserError, match=r"A cluster is at work in .* \(job 7_0\)"):
    cluster.refuse_if_at_work(commands / "sweep")
  (commands / "states").write_text("7_0 COMPLETED\n7_1 COMPLETED\n")
  cluster.refuse_if_at_work(commands / "sweep")


def test_what_the_cluster_ends_goes_on_and_what_a_user_ends_does_not(commands):
  scheduler = make_scheduler(commands)
  scheduler.step()
  left(commands, "7_0")
  make_folder(scheduler.jobs[0], 4)
  (commands / "states").write_text("7_0 PREEMPTED\n7_1 CANCELLED\n")
  assert scheduler.step()
  assert [job.state for job in scheduler.jobs] == ["waiting", "stopped"]
  assert "(preempted); going on from iteration 4." in scheduler._display.lines[-2]
  assert scheduler._display.lines[-1] == "Submitted job 8."
  make_folder(scheduler.jobs[0], 10, "2026")
  (commands / "states").write_text("8 COMPLETED\n")
  assert not scheduler.step()
  assert [job.state for job in scheduler.jobs] == ["done", "stopped"]


def test_a_run_that_is_killed_again_and_again_fails(commands):
  scheduler = make_scheduler(commands, seed=1)
  scheduler.step()
  for number in range(7, 7 + cluster.RESTARTS):
    left(commands, str(number))
    (commands / "states").write_text(f"{number} OUT_OF_MEMORY\n")
    assert scheduler.step()
  left(commands, "10")
  (commands / "states").write_text("")  # SLURM has forgotten it meanwhile.
  assert not scheduler.step()
  assert scheduler.jobs[0].state == "failed"
  assert "4 times without coming further" in scheduler.jobs[0].note


def test_a_run_that_fails_by_itself_is_not_started_again(commands):
  scheduler = make_scheduler(commands)
  scheduler.step()
  left(commands, "7_0", "Traceback …\nRuntimeError: training: no such robot")
  left(commands, "7_1", "Traceback …\ndecap.sweep.cluster.Interruption: code -9")
  (commands / "states").write_text("7_0 FAILED\n7_1 FAILED\n")
  assert scheduler.step()
  assert [job.state for job in scheduler.jobs] == ["failed", "waiting"]
  assert "no such robot" in scheduler.jobs[0].note


def test_a_later_sweep_starts_what_failed_again(commands):
  make_scheduler(commands).step()
  left(commands, "7_0", "Traceback …\nRuntimeError: training: no such robot")
  (commands / "states").write_text("7_0 FAILED\n7_1 PENDING\n")
  first = make_scheduler(commands)
  assert first.step()
  assert [job.state for job in first.jobs] == ["failed", "waiting"]
  again = make_scheduler(commands)
  assert again.step()
  assert [job.state for job in again.jobs] == ["waiting", "waiting"]
  assert again._display.lines == ["Submitted job 8."]


def test_a_cluster_that_does_not_answer_ends_nothing(commands):
  scheduler = make_scheduler(commands)
  scheduler.step()
  (commands / "states").unlink()
  assert cluster.slurm_states() is None
  assert scheduler.step()
  assert [job.state for job in scheduler.jobs] == ["waiting", "waiting"]


def test_a_cluster_that_takes_too_long_is_told(commands, monkeypatch):
  for name in ("sinfo", "squeue"):
    (commands / name).write_text("#!/bin/sh\nexec sleep 60\n")
  monkeypatch.setattr(cluster, "ANSWER_S", 0.1)
  with pytest.raises(UserError, match="SLURM does not answer: it takes too long."):
    cluster.check_slurm()
  assert cluster.slurm_states() is None


def test_a_folder_that_nodes_do_not_see_is_told(commands):
  scheduler = make_scheduler(commands)
  scheduler.step()
  (commands / "states").write_text("7_0 FAILED\n7_1 PENDING\n")
  with pytest.raises(UserError, match="must be on a disk that they share"):
    scheduler.step()
  assert (commands / "cancelled").read_text().split() == ["--quiet", "7_1"]


def test_a_node_that_fails_before_the_job_began_is_no_reason_to_end_the_others(
  commands,
):
  scheduler = make_scheduler(commands)
  scheduler.step()
  (commands / "states").write_text("7_0 BOOT_FAIL\n7_1 PENDING\n")
  assert scheduler.step()
  assert scheduler._display.lines[-1] == "Submitted job 8."
  assert not (commands / "cancelled").exists()


def test_a_run_that_failed_has_all_its_tries_again_in_a_later_sweep(commands):
  scheduler = make_scheduler(commands, seed=1)
  scheduler.step()
  for number in range(7, 8 + cluster.RESTARTS):
    left(commands, str(number))
    (commands / "states").write_text(f"{number} NODE_FAIL\n")
    scheduler.step()
  assert scheduler.jobs[0].state == "failed"
  again = make_scheduler(commands, seed=1)
  again.step()
  left(commands, "11")
  (commands / "states").write_text("11 NODE_FAIL\n")
  assert again.step()
  assert again.jobs[0].state == "waiting"


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ("cluster: {gpus: 3}", "g1-flat_decap_s1: 64 environments cannot be shared by 3 "),
    (
      "evaluate: {backend: native}",
      "'evaluate': The native backend needs --device cpu",
    ),
  ],
)
def test_what_every_node_would_refuse_is_said_at_once(
  commands, capsys, monkeypatch, change, message
):
  monkeypatch.chdir(commands)
  text = f"{{task: g1-flat, num-envs: 64, device: cuda, {change}}}"
  Path("sweep.yaml").write_text(text)
  assert main(["sweep", "sweep.yaml", "--cluster", "slurm", "--dry-run"]) == 2
  assert message in capsys.readouterr().err


def test_jobs_that_are_refused_are_a_sentence(commands):
  (commands / "sbatch").write_text(
    "#!/bin/sh\necho 'sbatch: error: invalid partition specified: gpux' >&2; exit 1\n"
  )
  with pytest.raises(UserError, match="SLURM refuses the jobs.*partition.*gpux"):
    make_scheduler(commands).step()


def test_resources_are_options_of_sbatch():
  section = {"partition": "gpu", "gpu": "h100", "gpus": 2, "time": "90m", "cpus": 8}
  plan = make_plan({**DATA, "cluster": {**section, "memory": 64}})
  found = plan.resources.submitit("cuda", 3)
  assert found["gres"] == "gpu:h100:2"
  assert (found["time"], found["mem"], found["array_parallelism"]) == (90, "65536M", 3)
  assert found["srun_args"] == ["--cpus-per-task=8"]
  # SLURM takes no fractions.
  assert Resources(memory=1.5).submitit("cpu", 1)["mem"] == "1536M"
  assert "gres" not in Resources().submitit("cpu", 1)
  # Two GPUs of a run train together; on this machine a run has one.
  job = cluster.Job(plan.runs[0], Path())
  plan.devices = ("cuda",)
  assert "--gpus" not in train_command(job, plan, "cuda")
  plan.slurm = True
  assert "--gpus 2" in " ".join(train_command(job, plan, "cuda"))


@pytest.mark.parametrize(
  ("section", "message"),
  [
    ({"gpus": 0}, "'gpus' must be at least 1, not 0"),
    ({"time": "long"}, "'long' is no duration"),
    ({"nodes": 2}, "unknown key 'nodes'"),
    ({"time": "2m"}, "'grace' must be shorter than 'time'"),
    ([1], "'cluster' must map options to values"),
  ],
)
def test_what_is_wrong_with_the_section_is_said(section, message):
  with pytest.raises(UserError, match=message):
    make_plan({**DATA, "cluster": section})


SIX = """
task: g1-flat
method: decap
seed: [1, 2, 3, 4, 5, 6]
iterations: 30
num-envs: 4
device: cpu
evaluate: {rollouts: 2, envs: 2, steps: 60, trajectory: 0}
overrides: {agent.num-steps-per-env: 8, agent.save-interval: 5}
cluster: {cpus: 1, time: 20m, grace: 60s}
"""


def test_without_slurm_it_ends_at_once(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  Path("six.yaml").write_text(SIX)
  monkeypatch.setenv("PATH", "")
  assert main(["sweep", "six.yaml", "--cluster", "slurm"]) == 2
  assert "there is no 'sbatch' here" in capsys.readouterr().err


def test_a_device_that_no_cluster_has_is_refused(commands, monkeypatch, capsys):
  monkeypatch.chdir(commands)
  Path("six.yaml").write_text(SIX)
  words = ["sweep", "six.yaml", "--cluster", "slurm", "--device"]
  for device in ("gpu", "cuda:1", "cuda:0,cuda:1"):
    assert main([*words, device]) == 2
    sentence = f"On a cluster the device is auto, cpu or cuda, not '{device}'"
    assert sentence in capsys.readouterr().err


@pytest.fixture
def node(tmp_path):
  """A SLURM of one node, and a folder that it does not see."""
  if reason := slurm_node.why_not():
    pytest.skip(f"SLURM cannot be started here: {reason}")
  (tmp_path / "slurm").mkdir()
  with slurm_node.slurm(tmp_path / "slurm", tmp_path / "unshared"):
    yield tmp_path


class Disturbance(threading.Thread):
  """Kills one job and preempts another, once both have a checkpoint."""

  def __init__(self, root: Path):
    super().__init__(daemon=True)
    self.root = root
    self.done = []

  def run(self):
    self._when_saved(1)
    self._kill(0)
    self._when_saved(2)
    command = ["scancel", "--signal", "USR2", self._job(2)]
    subprocess.run(command, check=False)
    self.done.append("preempted")

  def _when_saved(self, seed: int) -> None:
    while not list(self.root.glob(f"g1-flat/*_s{seed}/checkpoints/model_*.pt")):
      time.sleep(0.2)

  def _job(self, seed: int) -> str:
    return cluster._read_jobs(self.root)[f"g1-flat_decap_s{seed}"]

  def _kill(self, index: int) -> None:
    """As a machine does that is out of memory."""
    for path in Path("/proc").glob("[0-9]*"):
      try:
        command = (path / "cmdline").read_bytes()
        variables = (path / "environ").read_bytes().split(b"\0")
      except OSError:
        continue
      ours = b"submitit.core._submit" in command and b"srun" not in command
      if ours and f"SLURM_ARRAY_TASK_ID={index}".encode() in variables:
        os.kill(int(path.name), signal.SIGKILL)
        self.done.append("killed")


@pytest.mark.slow
def test_six_runs_on_a_real_slurm_with_one_killed(node, monkeypatch, capfd):
  monkeypatch.chdir(node)
  Path("six.yaml").write_text(SIX)
  disturbance = Disturbance(node / "runs" / "six")
  disturbance.start()
  assert main(["sweep", "six.yaml", "--cluster", "slurm"]) == 0
  printed = capfd.readouterr().out
  assert disturbance.done == ["killed", "preempted"]
  assert "g1-flat_decap_s1: job" in printed and "going on from iteration" in printed
  assert "6 done" in printed
  for seed in (1, 2):
    log = (node / "runs" / "six" / "logs" / f"g1-flat_decap_s{seed}.log").read_text()
    assert log.count("$ decap train") == 2 and "--resume" in log
  table = (node / "runs" / "six" / "comparison-g1-flat.md").read_text()
  assert "6 training seeds" in table
  # Again: nothing is left to do.
  assert main(["sweep", "six.yaml", "--cluster", "slurm"]) == 0
  assert "Submitted" not in capfd.readouterr().out


@pytest.mark.slow
def test_a_real_node_that_does_not_see_the_folder(node, monkeypatch, capfd):
  if os.getuid() != 0:
    pytest.skip("hiding a folder from the node needs root")
  monkeypatch.chdir(node)
  Path("six.yaml").write_text(SIX)
  output = str(node / "unshared" / "six")
  assert main(["sweep", "six.yaml", "--cluster", "slurm", "--output", output]) == 2
  assert "must be on a disk that they share" in capfd.readouterr().err


def test_work_can_be_sent(tmp_path):
  """What a node gets is small, and knows nothing of the process that it had."""
  import cloudpickle

  plan = make_plan(DATA)
  work = Work(cluster.Job(plan.runs[0], tmp_path), plan)
  work._process = None
  assert cloudpickle.loads(cloudpickle.dumps(work.checkpoint().function)) == work
  assert len(cloudpickle.dumps(work)) < 5000
