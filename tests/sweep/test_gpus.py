"""Several GPUs share the runs of a sweep out; all but the processes is real."""

from typing import Any

import pytest

from decap.cli import main
from decap.cli.sweep import SweepArgs, _plan
from decap.errors import UserError
from decap.options import machine
from decap.sweep import display, scheduler
from decap.sweep.plan import make_plan
from decap.sweep.scheduler import LocalScheduler
from tests.sweep.test_job import DATA, make_folder, measure

SWEEP = "{task: g1-flat, iterations: 10, num-envs: 64, device: [cuda:0, cuda:2]}"


class Sweep(LocalScheduler):
  """Its processes end when they are told to; `run(3)` is the one with seed 3."""

  def __init__(
    self, root, count: int, jobs: int, gpus: int = 2, evaluate: bool = False
  ):
    plan = make_plan({**DATA, "seed": list(range(1, count + 1)), "evaluate": evaluate})
    plan.settle(tuple(f"cuda:{index}" for index in range(gpus)), jobs)
    super().__init__(plan, root, {}, 0, display.PlainBoard())

  def run(self, seed: int) -> Any:
    return self._processes[f"g1-flat_decap_s{seed}"]

  def devices(self) -> dict[int, str]:
    """Where each run is at work, by seed."""
    seeds = [j.run.spec.seed for j in self.jobs if j.run.name in self._processes]
    return {seed: self.run(seed).device for seed in seeds}

  def train(self, *seeds: int) -> None:
    """Let trainings come to their end."""
    for seed in seeds:
      make_folder(self.jobs[seed - 1], 10, f"{seed}")
      self.run(seed).code = 0


class FakeProcess:
  """Notes where it was started; as it stands, it is at work."""

  def __init__(self, arguments, log_file, env, cpus, lock):
    self.arguments, self.told, self.code = arguments, 0, None
    self.device = arguments[arguments.index("--device") + 1]

  def poll(self):
    return self.code


@pytest.fixture(autouse=True)
def fake_processes(monkeypatch):
  monkeypatch.setattr(scheduler, "Process", FakeProcess)


def test_runs_spread_over_the_gpus_and_a_finished_one_frees_its_own(tmp_path):
  sweep = Sweep(tmp_path, count=8, jobs=2, gpus=3)
  assert sweep.step()
  # 3 GPUs of 2 runs each: six of eight, in turn.
  begun = {1: "cuda:0", 2: "cuda:1", 3: "cuda:2", 4: "cuda:0", 5: "cuda:1", 6: "cuda:2"}
  assert sweep.devices() == begun
  sweep.train(5)
  sweep.step()
  assert sweep.devices() == {s: d for s, d in begun.items() if s != 5} | {7: "cuda:1"}
  sweep.train(3)
  sweep.step()
  assert sweep.devices()[8] == "cuda:2"
  sweep.train(1, 2, 4, 6, 7, 8)
  assert not sweep.step()
  assert {job.state for job in sweep.jobs} == {"done"}


def test_a_run_goes_to_the_gpu_with_the_fewest(tmp_path):
  sweep = Sweep(tmp_path, count=7, jobs=3)
  sweep.step()
  # 1, 3, 5 on the first, 2, 4, 6 on the second; two stay there, and one here.
  sweep.train(1, 2, 4)
  sweep.step()
  assert sweep.devices() == {3: "cuda:0", 5: "cuda:0", 6: "cuda:1", 7: "cuda:1"}


def test_an_evaluation_stays_where_its_run_was(tmp_path):
  sweep = Sweep(tmp_path, count=4, jobs=2, evaluate=True)
  sweep.step()
  sweep.train(1, 3, 4)
  for seed in (1, 3):  # They evaluated themselves: the first GPU becomes empty.
    measure(sweep.jobs[seed - 1].folder())
  sweep.step()
  assert sweep.devices() == {2: "cuda:1", 4: "cuda:1"}
  assert sweep.run(4).arguments[0] == "evaluate"


def test_a_run_goes_on_wherever_there_is_room(tmp_path):
  sweep = Sweep(tmp_path, count=3, jobs=1)
  folder = make_folder(sweep.jobs[1], 4)
  make_folder(sweep.jobs[0], 10, "done")
  sweep = Sweep(tmp_path, count=3, jobs=1)
  sweep.step()
  assert sweep.devices() == {2: "cuda:0", 3: "cuda:1"}
  command = sweep.run(2).arguments
  assert command[command.index("--resume") + 1] == str(folder)


def test_a_broken_gpu_does_not_fail_all_runs(tmp_path, capsys):
  sweep = Sweep(tmp_path, count=9, jobs=2)
  sweep.step()
  while processes := list(sweep._processes.values()):
    for seed, device in sweep.devices().items():
      if device == "cuda:1":
        sweep.run(seed).code = 1
    if "cuda:1" not in sweep.devices().values():
      sweep.train(*sweep.devices())
    sweep.step()
    assert processes != list(sweep._processes.values())
  # 2 and 4 there at first, then 5 and 6, of which one would have been enough to tell.
  states = {job.run.spec.seed: job.state for job in sweep.jobs}
  assert [s for s, state in states.items() if state == "failed"] == [2, 4, 5, 6]
  assert set(states.values()) == {"failed", "done"}
  said = [x for x in capsys.readouterr().out.splitlines() if "no more" in x]
  assert said == ["cuda:1 gets no more runs: 3 failed in a row."]


def test_what_fails_on_all_gpus_is_no_gpus_fault(tmp_path):
  sweep = Sweep(tmp_path, count=9, jobs=1)
  while sweep.step():
    for seed in sweep.devices():
      sweep.run(seed).code = 1
  assert [job.state for job in sweep.jobs] == ["failed"] * 9


def test_the_estimate_is_that_of_the_gpu_with_the_most_to_do(tmp_path):
  sweep = Sweep(tmp_path, count=3, jobs=2)
  plan, jobs = sweep._plan, sweep.jobs
  plan.steps_per_s = 1000.0
  # 10 iterations of 64 × 24 steps a run: two on one GPU, which start together.
  run_s = 10 * 64 * 24 / 1000
  seconds, basis = display.estimate(plan, jobs)
  assert seconds == pytest.approx(2 * run_s + 30)
  assert "46,080 steps at 1000 steps/s on each GPU (steps-per-s of the file)" in basis
  plan.jobs = 1
  assert display.estimate(plan, jobs)[0] == pytest.approx(2 * run_s + 60)
  assert display.estimate(plan, jobs[:1])[0] == pytest.approx(run_s + 30)
  plan.devices = ("cuda:0",)
  assert display.estimate(plan, jobs)[0] == pytest.approx(3 * run_s + 90)


def test_the_plan_says_how_many_gpus_and_runs(tmp_path):
  sweep = Sweep(tmp_path, count=3, jobs=2)
  said = display.plan_lines(sweep._plan, sweep.jobs)[-1]
  assert said.startswith("3 runs on 2 GPUs (cuda:0, cuda:1), 2 at a time on each GPU;")


@pytest.mark.parametrize(
  ("names", "expected"),
  [
    ("auto", ("cuda:0", "cuda:1", "cuda:2")),
    ("cuda", ("cuda:0",)),
    ("cuda:1", ("cuda:1",)),
    ("cuda:2, cuda", ("cuda:2", "cuda:0")),
    ("cpu", ("cpu",)),
  ],
)
def test_names_of_devices(names, expected, monkeypatch):
  monkeypatch.setattr(machine, "num_gpus", lambda: 3)
  assert machine.check_devices(names) == expected


@pytest.mark.parametrize(
  ("names", "message"),
  [
    ("cuda:0,cuda:3", "There is no GPU 3; this machine has 3"),
    ("cuda:0,cpu", "Several devices must be GPUs by name, not 'cuda:0,cpu'"),
    ("cuda:1,auto", "Several devices must be GPUs by name"),
    ("cuda,cuda:0", "'cuda,cuda:0' names a GPU twice"),
    ("", "Unknown device ''"),
    ("cuda:²", "Unknown device 'cuda:²'"),
  ],
)
def test_devices_that_are_refused(names, message, monkeypatch):
  monkeypatch.setattr(machine, "num_gpus", lambda: 3)
  with pytest.raises(UserError, match=message):
    machine.check_devices(names)


def test_the_file_names_gpus_and_the_command_line_wins(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(machine, "num_gpus", lambda: 3)
  monkeypatch.chdir(tmp_path)
  file = tmp_path / "sweep.yaml"
  file.write_text(SWEEP)
  plan = _plan(SweepArgs(file=str(file)))
  assert (plan.devices, plan.jobs) == (("cuda:0", "cuda:2"), 2)
  plan = _plan(SweepArgs(file=str(file), device="cuda:1,cuda:0", jobs=3))
  assert (plan.devices, plan.jobs) == (("cuda:1", "cuda:0"), 3)
  plan = _plan(SweepArgs(file=str(file), device="auto"))
  assert plan.devices == ("cuda:0", "cuda:1", "cuda:2")
  monkeypatch.setattr(machine, "num_gpus", lambda: 2)
  assert main(["sweep", str(file)]) == 2
  assert "There is no GPU 2; this machine has 2." in capsys.readouterr().err
  assert list(tmp_path.iterdir()) == [file]
  file.write_text(SWEEP.replace("[cuda:0, cuda:2]", "[]"))
  assert main(["sweep", str(file)]) == 2
