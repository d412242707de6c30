"""From the command line to a policy."""

import errno
import json
import os
import signal
import subprocess
import sys

import pytest
import torch
import yaml

from decap import provenance, runs
from decap.cli import main
from decap.deploy.bundle import load_bundle
from decap.errors import UserError
from decap.rl import checkpoint, checkpoint_files
from decap.runs import load_spec
from tests.cli.conftest import SMALL


def test_a_run_folder_has_all_its_parts(run):
  assert run.name.endswith("_decap_s1_first")
  spec = load_spec(run)
  assert (spec.task, spec.method, spec.num_envs) == ("g1-flat", "decap", 4)
  env = yaml.safe_load((run / "params" / "env.yaml").read_text())
  assert env["scene"]["num_envs"] == 4 and env["seed"] == 1
  assert env["rewards"]["track_xy"]["func"].endswith(":track_velocity_xy")
  agent = yaml.safe_load((run / "params" / "agent.yaml").read_text())
  assert agent["policy"]["hidden_dims"] == [32, 16]
  assert agent["algorithm"]["survival"] is True
  assert list(run.glob("events.out.tfevents.*"))
  assert checkpoint_files.resolve(run).name == "model_2.pt"


def test_a_run_is_looked_at_while_it_trains(tmp_path, capsys, monkeypatch):
  from decap.evaluation import probe

  small = {"robots": 1, "steps": 60}
  monkeypatch.setattr(probe.Probe.__init__, "__kwdefaults__", small)
  options = ["--task", "g1-flat", "--num-envs", "4", "--iterations", "2"]
  options += ["--device", "cpu", "--log-root", str(tmp_path), *SMALL]
  assert main(["train", *options, "--agent.eval-interval", "2"]) == 0
  out = capsys.readouterr().out
  first, second = (line for line in out.splitlines() if line[:4] in ("1/2 ", "2/2 "))
  assert "followed" not in first and "  followed " in second
  (folder,) = (tmp_path / "g1-flat").iterdir()
  best = checkpoint.load(checkpoint_files.best_path(folder))
  assert best["iter"] == 2 and f"at iteration 2: {folder}" in out


@pytest.mark.slow
def test_ctrl_c_saves_and_exits_with_130(tmp_path):
  command = [sys.executable, "-m", "decap", "train", "--task", "g1-flat"]
  command += ["--num-envs", "4", "--device", "cpu", "--log-root", str(tmp_path), *SMALL]
  process = subprocess.Popen(
    command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
  )
  assert process.stdout is not None
  for line in process.stdout:
    if line.strip().startswith("2/"):
      break
  process.send_signal(signal.SIGINT)
  rest = process.stdout.read()
  assert process.wait() == 130
  assert "Traceback" not in rest and "Stopped and saved" in rest
  (folder,) = (tmp_path / "g1-flat").iterdir()
  iteration = checkpoint.load(checkpoint_files.resolve(folder))["iter"]
  assert iteration >= 2
  load_bundle(folder / "policy")


@pytest.mark.parametrize(
  "override, message",
  [
    (["--env.rewards.track-xy.wieght", "2"], "Unrecognized options"),
    (["--env.termination.rho", "half"], "could not convert string to float: 'half'"),
    (["--env.termination.rho", "1.5"], "rho must be in"),
    (
      ["--env.rewards.track-xy.weight", "nan"],
      "track-xy.weight must be finite, not nan",
    ),
    (["--env.termination.kappa", "inf"], "kappa"),
    (["--agent.algorithm.learning-rate", "inf"], "learning_rate must be finite"),
    (
      ["--env.constraints.joint-vel.limits", "{'upper': 1e999, 'lower': 1.0}"],
      "--env.constraints.joint-vel.limits.upper must be finite, not inf",
    ),
    (["--agent.algorithm.schedule", "slow"], "invalid choice 'slow'"),
    (["--agent.algorithm.num-mini-batches", "0"], "num_mini_batches must be at least"),
    (["--env.decimation", "0"], "--env.decimation must be above 0, not 0"),
    (["--agent.save-interval", "0"], "save_interval must be at least 1, not 0"),
    (["--agent.logger", "wandb"], "Give --logger instead of --agent.logger"),
    (["--agent.algorithm.gradient-penalty-coef", "1"], "Unrecognized options"),
  ],
)
def test_overrides_are_checked_before_the_environment_is_built(
  override, message, tmp_path, capsys
):
  options = ["--task", "g1-flat", "--device", "cpu", "--log-root", str(tmp_path)]
  assert main(["train", *options, *override]) == 2
  captured = capsys.readouterr()
  assert message in captured.err and len(captured.err.splitlines()) == 1
  assert "Building" not in captured.out
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("interval, kept", [(1000, False), (1, True)])
def test_a_run_that_diverges_says_so_and_keeps_what_was_good(
  interval, kept, tmp_path, capsys, monkeypatch
):
  from decap.rl.runner import Runner

  iterate = Runner.iterate

  def poisoned(self, watch):
    if self.iteration == 2:
      with torch.no_grad():
        next(self.alg.actor.parameters())[0] = float("nan")
    return iterate(self, watch)

  monkeypatch.setattr(Runner, "iterate", poisoned)
  options = ["--task", "g1-flat", "--device", "cpu", "--num-envs", "2"]
  options += ["--iterations", "5", "--log-root", str(tmp_path), *SMALL]
  assert main(["train", *options, "--agent.save-interval", str(interval)]) == 1
  captured = capsys.readouterr()
  assert "Done" not in captured.out and len(captured.err.splitlines()) == 1
  assert "diverged in iteration 3: not finite are " in captured.err
  assert "loss value" in captured.err and "network weights actor " in captured.err
  folders = list((tmp_path / "g1-flat").iterdir())
  assert len(folders) == kept
  if not kept:
    assert "There is no checkpoint from before" in captured.err
    return
  path = checkpoint_files.resolve(folders[0])
  assert f"The last good checkpoint is {path}" in captured.err
  assert checkpoint.load(path)["iter"] == 2
  assert not (folders[0] / "policy").exists()


def test_an_agent_that_cannot_be_built_leaves_no_run(tmp_path, capsys):
  options = ["--task", "g1-flat", "--device", "cpu", "--num-envs", "1"]
  options += ["--log-root", str(tmp_path), "--agent.num-steps-per-env", "2"]
  assert main(["train", *options]) == 2
  sentence = "The agent cannot be built: 2 samples per iteration are too few for 4"
  assert sentence in capsys.readouterr().err
  assert not list(tmp_path.iterdir())


def test_an_environment_that_cannot_be_built_leaves_no_run(tmp_path, capsys):
  options = ["--task", "g1-flat", "--device", "cpu", "--num-envs", "1"]
  options += ["--log-root", str(tmp_path), "--env.constrained-entity", "robto"]
  assert main(["train", *options]) == 2
  sentence = "The environment cannot be built: Scene element 'robto' not found.\n"
  assert capsys.readouterr().err.endswith(sentence)
  assert not list(tmp_path.iterdir())


def test_a_run_without_a_checkpoint_leaves_no_folder(tmp_path, monkeypatch, capsys):
  def full(path, state):
    raise UserError(f"Cannot write the checkpoint {path}: No space left on device.")

  monkeypatch.setattr(checkpoint, "save", full)
  options = ["--task", "g1-flat", "--device", "cpu", "--num-envs", "2"]
  options += ["--iterations", "1", "--log-root", str(tmp_path)]
  assert main(["train", *options, *SMALL]) == 2
  assert "No space left on device" in capsys.readouterr().err
  assert not list((tmp_path / "g1-flat").iterdir())


def test_a_disk_that_fills_up_leaves_no_folder(tmp_path, monkeypatch, capsys):
  def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  monkeypatch.setattr(provenance, "remember", full)
  options = ["--task", "g1-flat", "--device", "cpu", "--num-envs", "2"]
  assert main(["train", *options, "--log-root", str(tmp_path), *SMALL]) == 2
  assert capsys.readouterr().err == "decap: No space left on device.\n"
  assert not list((tmp_path / "g1-flat").iterdir())


def test_runs_that_start_in_the_same_second_have_folders_of_their_own(
  own_run, monkeypatch
):
  """A command and the same with another override, both in the background."""
  history = (own_run / provenance.HISTORY_FILE).read_text()
  (own_run.with_name(f"{own_run.name}_2") / "params").mkdir(parents=True)
  monkeypatch.setattr(runs, "default_run_folder", lambda *_: own_run)
  options = ["--task", "g1-flat", "--device", "cpu", "--num-envs", "2"]
  assert main(["train", *options, "--iterations", "1", *SMALL]) == 0
  assert (own_run / provenance.HISTORY_FILE).read_text() == history
  other = own_run.with_name(f"{own_run.name}_3")
  assert checkpoint_files.resolve(other).name == "model_1.pt"
  assert "resumed_by" not in (other / provenance.HISTORY_FILE).read_text()


def test_a_limit_of_an_unknown_group_is_refused(tmp_path, capsys):
  limits = tmp_path / "limits.yaml"
  limits.write_text("joint_vel: {tail: 1.0}")
  options = ["--task", "g1-flat", "--device", "cpu", "--limits", str(limits)]
  options += ["--log-root", str(tmp_path / "runs")]
  assert main(["train", *options]) == 2
  assert (
    "limits of 'joint_vel': 'tail' (there are upper, lower)" in capsys.readouterr().err
  )
  assert os.listdir(tmp_path) == ["limits.yaml"]


def test_a_blind_run_trains_is_exported_and_evaluated(tmp_path):
  options = ["--task", "g1-flat", "--num-envs", "4", "--iterations", "1", "--blind"]
  options += ["--device", "cpu", "--log-root", str(tmp_path), "--run-name", "blind"]
  assert main(["train", *options, *SMALL]) == 0
  (folder,) = (tmp_path / "g1-flat").iterdir()
  assert load_spec(folder).blind
  info = json.loads((folder / "policy" / "policy.json").read_text())
  assert "clock" not in [term["name"] for term in info["observations"]]
  short = ["--rollouts", "1", "--envs", "2", "--steps", "60", "--per-command", "0"]
  for source in (folder, folder / "policy"):
    words = ["evaluate", str(source), *short, "--output", str(tmp_path / "out")]
    assert main([*words, "--device", "cpu"]) == 0
