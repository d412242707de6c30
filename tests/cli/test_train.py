"""From the command line to a policy: train, continue, export, play."""

import dataclasses
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
import yaml

from decap.cli import main
from decap.deploy.bundle import load_bundle
from decap.errors import UserError
from decap.lock import one_writer
from decap.rl import checkpoint, checkpoint_files
from decap.rl.inference import policy_from_state
from decap.runs import RUN_FILE, load_spec

SMALL = ["--agent.policy.hidden-dims", "(32,16)", "--agent.num-steps-per-env", "6"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  """A run folder of two iterations, made by the command line."""
  root = tmp_path_factory.mktemp("runs")
  options = ["--task", "g1-flat", "--num-envs", "4", "--iterations", "2"]
  options += ["--device", "cpu", "--log-root", str(root), "--run-name", "first"]
  assert main(["train", *options, *SMALL]) == 0
  (folder,) = (root / "g1-flat").iterdir()
  return folder


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


def test_a_run_and_its_bundle_remember_what_made_them(run):
  history = (run / "params" / "history.jsonl").read_text().splitlines()
  first = json.loads(history[0])
  assert first["iteration"] == 0 and first["command"].startswith("decap")
  info = json.loads((run / "policy" / "policy.json").read_text())
  made = info["made_by"]
  assert made == {k: v for k, v in first.items() if k != "iteration"}
  assert made["versions"]["torch"] == torch.__version__.split("+")[0] or (
    made["versions"]["torch"] == torch.__version__
  )


def test_the_bundle_acts_as_the_trained_policy(run):
  bundle = load_bundle(run / "policy")
  policy = policy_from_state(checkpoint.load(checkpoint_files.resolve(run)))
  dim = sum(term.dim for term in bundle.observations)
  obs = torch.randn(1000, dim)
  assert bundle.observations[-1].name == "clock"
  obs[:, -2:] *= (obs[:, 6:9].norm(dim=1, keepdim=True) > 0.1).float()
  with torch.no_grad():
    expected = policy({"actor": obs}).numpy()
  np.testing.assert_allclose(bundle.act(obs.numpy()), expected, rtol=1e-5, atol=1e-5)


def test_the_bundle_describes_the_robot(run):
  info = json.loads((run / "policy" / "policy.json").read_text())
  by_name = {
    name: tuple(info[key][i] for key in ("stiffness", "damping", "action_scale"))
    for i, name in enumerate(info["joint_names"])
  }
  # mjlab's gains and scale, 0.25 · effort / kp; the knee's effort limit is 139 Nm.
  assert len(by_name) == 29
  kp, kd, scale = by_name["left_knee_joint"]
  assert kp == pytest.approx(99.10, abs=0.01) and kd == pytest.approx(6.309, abs=0.01)
  assert scale == pytest.approx(0.25 * 139 / kp, rel=1e-4)
  assert by_name["left_elbow_joint"][2] == pytest.approx(0.4386, abs=1e-4)
  knee = info["joint_names"].index("left_knee_joint")
  assert info["default_joint_pos"][knee] == pytest.approx(0.3)
  assert info["effort_limit"][knee] == pytest.approx(139.0)
  terms = [(term["name"], term["dim"]) for term in info["observations"]]
  assert terms == [
    ("base_ang_vel", 3),
    ("projected_gravity", 3),
    ("command", 3),
    ("joint_pos", 29),
    ("joint_vel", 29),
    ("actions", 29),
    ("clock", 2),
  ]
  clock = info["observations"][-1]
  assert info["schema"] == 2
  assert (clock["period_s"], clock["command_threshold"]) == (0.8, 0.1)
  assert info["control_dt_s"] == 0.02 and info["physics_dt_s"] == 0.005
  assert info["command_ranges"]["twist"]["lin_vel_x"] == [-0.5, 1.0]
  limits = info["constraints"]["limits"]
  assert limits["joint_acc"] == {"upper": 20.0, "lower": 600.0}
  upper = info["constraints"]["groups"]["upper"]
  assert upper["p_max"] == 0.5 and "left_wrist_yaw_joint" in upper["joint_names"]
  assert info["iteration"] == 2 and info["method"] == "decap"


def test_export_writes_another_folder(run, tmp_path, capsys):
  assert main(["export", str(run), "--output", str(tmp_path / "bundle")]) == 0
  assert "iteration 2, 29 joints at 50 Hz" in capsys.readouterr().out
  original = (run / "policy" / "policy.onnx").read_bytes()
  assert (tmp_path / "bundle" / "policy.onnx").read_bytes() == original
  # What others load is there too.
  assert b"joint_stiffness" in original and b"observation_names" in original
  assert "joint_ids_map: [0, 1, 2," in (tmp_path / "bundle" / "deploy.yaml").read_text()


def test_a_run_that_was_killed_before_its_bundle_gets_it(run):
  original = (run / "policy" / "policy.onnx").read_bytes()
  for leave in ((), ("policy.json",)):
    for path in (run / "policy").iterdir():
      if path.name not in leave:
        path.unlink()
    info = run / "policy" / "policy.json"
    if leave:  # That of an earlier end.
      info.write_text(json.dumps(json.loads(info.read_text()) | {"iteration": 1}))
    assert main(["train", "--resume", str(run), "--device", "cpu"]) == 0
    assert (run / "policy" / "policy.onnx").read_bytes() == original
    assert checkpoint_files.resolve(run).name == "model_2.pt"


def test_a_run_goes_on_to_a_larger_number_only(run, capsys):
  assert main(["train", "--resume", str(run), "--device", "cpu"]) == 2
  assert "is at iteration 2 of 2; give a larger" in capsys.readouterr().err
  options = ["--resume", str(run), "--iterations", "3", "--device", "cpu"]
  assert main(["train", *options]) == 0
  assert checkpoint_files.resolve(run).name == "model_3.pt"
  assert load_spec(run).iterations == 3
  # What is trained from an older one would be taken for old itself.
  older = str(checkpoint_files.path_for(run, 2))
  options = ["--resume", older, "--iterations", "9", "--device", "cpu"]
  capsys.readouterr()
  assert main(["train", *options]) == 2
  assert "model_2.pt is older than model_3.pt" in capsys.readouterr().err


def test_a_run_is_looked_at_while_it_trains(tmp_path, capsys, monkeypatch):
  from decap.evaluation import probe

  monkeypatch.setattr(probe.make_probe, "__kwdefaults__", {"robots": 1, "steps": 60})
  options = ["--task", "g1-flat", "--num-envs", "4", "--iterations", "2"]
  options += ["--device", "cpu", "--log-root", str(tmp_path), *SMALL]
  assert main(["train", *options, "--agent.eval-interval", "2"]) == 0
  out = capsys.readouterr().out
  first, second = (line for line in out.splitlines() if line[:4] in ("1/2 ", "2/2 "))
  assert "followed" not in first and "  followed " in second
  (folder,) = (tmp_path / "g1-flat").iterdir()
  best = checkpoint.load(checkpoint_files.best_path(folder))
  assert best["iter"] == 2 and f"at iteration 2: {folder}" in out


def test_a_run_that_is_being_trained_is_not_continued(run, capsys):
  options = ["--resume", str(run), "--iterations", "9", "--device", "cpu"]
  with one_writer(run):
    assert main(["train", *options]) == 2
  captured = capsys.readouterr()
  assert f"{run} is being trained by process {os.getpid()} on" in captured.err
  assert "Building" not in captured.out


def test_mjlabs_own_play_runs_a_checkpoint(run, monkeypatch):
  import mjlab.tasks  # noqa: F401
  from mjlab.scripts import play

  import decap.tasks.registration  # noqa: F401
  from decap.sim.backend import simulation_backend

  steps = []

  class ShortViewer(play.ViserPlayViewer):
    def run(self, *args, **kwargs):
      super().run(num_steps=3)
      assert self._last_error is None
      steps.append(self._step_count)

  monkeypatch.setattr(play, "ViserPlayViewer", ShortViewer)
  path = str(checkpoint_files.resolve(run))
  cfg = play.PlayConfig(checkpoint_file=path, device="cpu", viewer="viser", num_envs=2)
  # Warp's kernels would compile for a minute.
  with simulation_backend("native"):
    play.run_play("Decap-G1-Flat", cfg)
  assert len(steps) == 1 and steps[0] >= 3  # Several at a time on a busy machine.


@pytest.mark.slow
@pytest.mark.parametrize("part", ["", "policy"])  # A run, a bundle.
def test_play_records_a_video(run, part, tmp_path):
  import mediapy

  video = tmp_path / "walk.mp4"
  options = ["--video", str(video), "--seconds", "0.2", "--device", "cpu"]
  assert main(["play", str(run / part), *options]) == 0
  frames = mediapy.read_video(video)
  assert frames.shape == (5, 480, 640, 3)
  assert frames[-1].std() > 10  # Not an empty picture.
  assert [p.name for p in tmp_path.iterdir()] == ["walk.mp4"]


@pytest.mark.slow
def test_a_shaky_policy_is_a_start_for_another_method(run, tmp_path):
  options = ["--task", "g1-flat", "--method", "lcp", "--num-envs", "4", "--device"]
  options += ["cpu", "--iterations", "1", "--log-root", str(tmp_path)]
  shutil.copytree(run, tmp_path / "start")
  start = checkpoint_files.resolve(tmp_path / "start")
  argv = ["train", *options, "--init-from", str(tmp_path / "start"), *SMALL]
  assert main(argv) == 0
  (folder,) = (tmp_path / "g1-flat").iterdir()
  new, old = (
    checkpoint.load(checkpoint_files.resolve(f))["actor_state_dict"]["mlp.0.weight"]
    for f in (folder, run)
  )
  # One update away from where it started, and far from another initialisation.
  assert 0 < (new - old).abs().max() < 0.05
  # The run says where it comes from, and goes on without it.
  spec = load_spec(folder)
  assert spec.init_from == str(start)
  assert spec.init_sha256 == hashlib.sha256(start.read_bytes()).hexdigest()
  shutil.rmtree(tmp_path / "start")
  options = ["--resume", str(folder), "--iterations", "2", "--device", "cpu"]
  assert main(["train", *options]) == 0
  assert load_spec(folder).init_from == str(start)


@pytest.mark.slow
def test_ctrl_c_saves_and_exits_with_130(tmp_path):
  command = [sys.executable, "-m", "decap.cli", "train", "--task", "g1-flat"]
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


def test_a_damaged_checkpoint_is_told_before_the_environment_is_built(
  run, tmp_path, capsys
):
  shutil.copytree(run, tmp_path / "run")
  path = checkpoint_files.resolve(tmp_path / "run")
  for _, older in checkpoint_files.list_checkpoints(tmp_path / "run")[:-1]:
    older.unlink()
  path.write_bytes(path.read_bytes()[:1000])
  options = ["--resume", str(tmp_path / "run"), "--iterations", "9", "--device", "cpu"]
  assert main(["train", *options]) == 2
  captured = capsys.readouterr()
  assert "is corrupt or not a checkpoint" in captured.err
  assert "Building" not in captured.out


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(run, tmp_path, capsys):
  folder = tmp_path / "run"
  shutil.copytree(run, folder)
  good = checkpoint_files.resolve(folder)
  iteration = checkpoint_files.iteration_of(good)
  damaged = checkpoint_files.path_for(folder, iteration + 5)
  damaged.write_bytes(good.read_bytes()[:1000])
  total = str(iteration + 6)
  options = ["--resume", str(folder), "--iterations", total, "--device", "cpu"]
  assert main(["train", *options]) == 0
  out = capsys.readouterr().out
  assert f"{damaged.name} is corrupt or not a checkpoint at all; going on" in out
  assert f"going on from {good.name}" in out
  assert f"\n{iteration + 1}/{total}" in out
  assert damaged.with_name(f"{damaged.name}.damaged").is_file()
  # A quiet start: no tables of managers, no seeds, no devices.
  assert "Manager" not in out and "Setting seed" not in out and "Warp" not in out


def test_a_limit_of_an_unknown_group_is_refused(tmp_path, capsys):
  limits = tmp_path / "limits.yaml"
  limits.write_text("joint_vel: {tail: 1.0}")
  options = ["--task", "g1-flat", "--device", "cpu", "--limits", str(limits)]
  options += ["--log-root", str(tmp_path / "runs")]
  assert main(["train", *options]) == 2
  assert "unknown group 'tail' (there are upper, lower)" in capsys.readouterr().err
  assert os.listdir(tmp_path) == ["limits.yaml"]


def test_the_description_of_a_run_survives_json(run):
  spec = dataclasses.replace(load_spec(run), limits={"joint_vel": {"upper": 2.0}})
  assert type(spec).from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_a_run_of_an_earlier_decap_gets_one_sentence(run, tmp_path, capsys):
  shutil.copytree(run, tmp_path / "run")
  path = checkpoint_files.resolve(tmp_path / "run")
  state = torch.load(path, weights_only=True)
  # What they lack, and how their overrides were spelt.
  del state["progress"]
  torch.save({**state, "version": 1}, path)
  spec = json.loads((tmp_path / "run" / RUN_FILE).read_text())
  spec["overrides"] += ["--env.feasibility.budget", "0.01"]
  spec["feasibility"] = "anneal"
  (tmp_path / "run" / RUN_FILE).write_text(json.dumps(spec))
  options = ["--resume", str(tmp_path / "run"), "--iterations", "9", "--device", "cpu"]
  assert main(["train", *options]) == 2
  captured = capsys.readouterr()
  assert "was written by an earlier decap" in captured.err
  assert captured.err.count("\n") == 1 and "Building" not in captured.out


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
