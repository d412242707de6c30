"""The commands as a user calls them: evaluate, compare, profile, and training after."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from decap.cli import checks, main, profile
from decap.cli.evaluate import EvaluateArgs, _output_folder, print_result
from decap.cli.profile import _check_worth, _warn
from decap.deploy.bundle import write_bundle
from decap.envs.build import make_env
from decap.errors import UserError
from decap.evaluation import environment, rollout
from decap.evaluation.environment import evaluation_cfg
from decap.evaluation.protocol import Protocol
from decap.evaluation.results import load_result
from decap.evaluation.rollout import describe_env
from decap.evaluation.trajectory import load_trajectory
from decap.export import actor_to_onnx
from decap.options import machine
from decap.runs import RunSpec, build_configs, read_limits
from decap.tasks import env_cfg

TINY = ["--rollouts", "2", "--envs", "2", "--steps", "60", "--device", "cpu"]
TINY += ["--per-command", "1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """A folder with a bundle of a random network, evaluated, and `stand` beside it."""
  folder = tmp_path_factory.mktemp("evaluation")
  env = make_env(evaluation_cfg(Protocol(rollouts=1, envs=1, per_command=0)), "cpu")
  description = describe_env(env, "g1-flat")
  env.close()
  torch.manual_seed(0)
  size = sum(term["dim"] for term in description["observations"])
  weights = {
    "mlp.0.weight": 0.1 * torch.randn(16, size),
    "mlp.0.bias": torch.zeros(16),
    "mlp.2.weight": 0.1 * torch.randn(29, 16),
    "mlp.2.bias": torch.zeros(29),
  }
  write_bundle(folder / "bundle", actor_to_onnx(weights, "elu", 1e-2), description)
  for name, source in (
    ("bundle", [str(folder / "bundle")]),
    ("stand", ["stand", "--task", "g1-flat"]),
  ):
    out = ["--output", str(folder / f"{name}-out")]
    assert main(["evaluate", *source, *TINY, *out]) == 0
  return folder


def test_evaluate_writes_metrics_and_a_trajectory(folder):
  data = json.loads((folder / "bundle-out" / "metrics.json").read_text())
  assert data["policy"]["method"] == "decap" and data["engine"]["backend"] == "native"
  assert data["protocol"]["steps"] == 60
  trajectory = load_trajectory(folder / "bundle-out" / "trajectory.npz")
  assert trajectory.num_steps == 60 and trajectory.num_envs == 2  # One per rollout.


def test_stops_are_told_of_where_there_were_any(folder, capsys):
  """The robots of a short evaluation have not finished their first one."""
  result = load_result(folder / "bundle-out" / "metrics.json")
  stop = result.metrics["commands"]["stop"]
  assert stop["falls_per_minute"] is None
  print_result(result)
  assert "of the stops" not in capsys.readouterr().out
  stop["falls_per_minute"] = 3.75  # 15 stops a minute: every fourth.
  print_result(result)
  assert "falls in 25.0 % of the stops" in capsys.readouterr().out


def test_commands_that_training_never_gave_are_named(tmp_path, capsys):
  told = ["--command", "5", "0", "0", "--output", str(tmp_path)]
  assert main(["evaluate", "stand", *TINY, *told]) == 0
  out = capsys.readouterr().out
  assert "forward 5 m/s lies outside of -0.5 to 1, which the policy" in out


def test_a_smaller_evaluation_of_the_same_policy_replaces_no_larger_one(folder, capsys):
  before = (folder / "bundle-out" / "metrics.json").read_bytes()
  less = [*TINY, "--steps", "55"]
  where = ["--output", str(folder / "bundle-out")]
  for path in (f"{folder}/bundle", f"{folder}/./bundle/"):
    assert main(["evaluate", path, *less, *where]) == 2
    assert "holds a larger evaluation" in capsys.readouterr().err
  assert (folder / "bundle-out" / "metrics.json").read_bytes() == before


def test_compare_prints_tables_and_writes_a_report(folder, capsys):
  sources = [str(folder / "bundle-out"), str(folder / "stand-out")]
  out = folder / "report.html"
  options = ["--format", "markdown", "--html", str(out), "--plot", "traces"]
  where = ["--plot-folder", str(folder / "plots"), "--plot-format", "svg"]
  assert main(["compare", *sources, *options, *where]) == 0
  text = capsys.readouterr().out
  assert "| upper | DeCap" in text and "| Standing still |" in text
  assert out.read_text().count("<canvas") == 2
  assert (folder / "plots" / "traces.svg").stat().st_size > 1000


def test_compare_takes_labels_and_files(folder, capsys):
  file = folder / "bundle-out" / "metrics.json"
  csv = folder / "out.csv"
  assert main(["compare", f"mine={file}", "--format", "csv", "--output", str(csv)]) == 0
  assert ",mine," in csv.read_text()


def test_tables_on_the_screen_are_all_that_is_on_standard_output(folder, capsys):
  source, out = str(folder / "bundle-out"), folder / "beside.html"
  assert main(["compare", source, "--format", "csv"]) == 0
  tables = capsys.readouterr().out
  assert main(["compare", source, "--format", "csv", "--html", str(out)]) == 0
  shown = capsys.readouterr()
  assert shown.out == tables
  assert shown.err == f"Wrote {out}\n"
  # Where the tables are in a file, what was written is what there is to read.
  file = ["--output", str(folder / "beside.csv")]
  assert main(["compare", source, "--format", "csv", *file, "--html", str(out)]) == 0
  shown = capsys.readouterr()
  assert shown.out.count("Wrote ") == 2 and not shown.err


def test_compare_leaves_out_runs_that_wait_for_their_evaluation(folder, capsys):
  sources = [str(folder / name) for name in ("new-run", "bundle-out")]
  params = folder / "new-run" / "params"
  params.mkdir(parents=True)
  # A folder that is no run is a mistake.
  assert main(["compare", *sources]) == 2
  (params / "run.json").write_text("{}")
  capsys.readouterr()
  assert main(["compare", *sources, "--format", "markdown"]) == 0
  shown = capsys.readouterr()
  assert "| upper | DeCap" in shown.out
  assert f"Left out, not evaluated yet: {sources[0]} (see" in shown.err


def test_a_policy_for_another_robot_is_refused(folder, capsys):
  argv = ["evaluate", str(folder / "bundle"), "--task", "g1-23dof-flat", *TINY]
  assert main(argv) == 2
  assert "joints, not 23" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["evaluate", "profile"])
def test_a_gpu_that_torch_cannot_use_is_told(command, capsys, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(machine, "num_gpus", lambda: 1)
  monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
  assert main([command, "stand", "--device", "cuda:0"]) == 2
  assert "cannot use the GPU; install a build with CUDA" in capsys.readouterr().err
  assert not list(tmp_path.iterdir())


def test_calls_that_name_no_gpu_mean_the_one_in_use(monkeypatch):
  """Such as torch.cuda.synchronize, which would wait for the first GPU, and fill it."""
  current = []
  monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
  monkeypatch.setattr(torch.cuda, "set_device", current.append)
  monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10**11, 10**11))
  checks.check_torch_device("cuda:2", 64)
  assert current == ["cuda:2"]


@pytest.mark.parametrize("command", ["evaluate", "profile"])
def test_a_full_memory_is_told(command, capsys, tmp_path, monkeypatch):
  def full(*args, **kwargs):
    raise RuntimeError("CUDA out of memory.")

  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(rollout, "evaluate", full)
  assert main([command, "stand", "--device", "cpu"]) == 2
  error = capsys.readouterr().err
  assert "out of memory: fewer environments need less (--envs)." in error


def test_a_quantile_of_a_scalar_may_be_chosen(capsys, monkeypatch):
  cfg = env_cfg("g1-flat")
  cfg.constraints = {
    "tilt": dataclasses.replace(cfg.constraints["joint_vel"], limits=1)
  }

  def measure(*_):
    raise UserError("Measured.")

  monkeypatch.setattr(environment, "measured_cfg", lambda _: cfg)
  monkeypatch.setattr(profile.ProfileArgs, "measure", measure)
  argv = ["profile", "stand", "--task", "g1-flat", "--device", "cpu"]
  assert main([*argv, "--quantile", "tilt=0.9"]) == 2
  assert "Measured." in capsys.readouterr().err


def test_limits_say_on_which_task_they_were_measured(folder, monkeypatch):
  """Which may be another one than the policy's."""
  trajectory = load_trajectory(folder / "bundle-out" / "trajectory.npz")
  metrics = {
    "tracking": {"followed": {"mean": 0.9}},
    "falls_per_minute": {"mean": 0.0},
  }
  result = SimpleNamespace(metrics=metrics)
  found = SimpleNamespace(result=result, trajectory=trajectory)
  monkeypatch.setattr(profile.ProfileArgs, "measure", lambda *_, **__: found)
  out = folder / "rough.yaml"
  argv = ["profile", str(folder / "bundle"), "--task", "g1-rough", "--device", "cpu"]
  assert main([*argv, "--output", str(out)]) == 0
  assert "bundle (g1-rough)." in out.read_text()


def test_an_interrupted_save_leaves_no_trajectory_of_another_evaluation(tmp_path):
  def fail(path):
    raise KeyboardInterrupt

  result, trajectory = SimpleNamespace(save=Path.touch), SimpleNamespace(save=fail)
  (tmp_path / "trajectory.npz").touch()
  with pytest.raises(KeyboardInterrupt):
    rollout.Evaluation(result, trajectory, 1.0).save(tmp_path)
  assert not (tmp_path / "trajectory.npz").exists()


def test_profiled_limits_go_into_training(folder, capsys):
  out = folder / "limits.yaml"
  options = ["--envs", "4", "--steps", "60", "--device", "cpu", "--output", str(out)]
  assert main(["profile", str(folder / "bundle"), *options]) == 2
  error = capsys.readouterr().err
  assert "its limits would not be those of walking (--force" in error
  assert not out.exists()
  assert main(["profile", str(folder / "bundle"), *options, "--force"]) == 0
  shown = capsys.readouterr()
  assert "Proposed limits" in shown.out and "Warning: bundle carries out" in shown.err
  assert f"measured on {folder / 'bundle'} (g1-flat)." in out.read_text()
  limits = read_limits(out)
  env, _ = build_configs(RunSpec(task="g1-flat", method="decap", limits=limits))
  for name, term in env.constraints.items():
    assert term.limits == limits[name]


@pytest.mark.parametrize(
  ("followed", "falls", "says"),
  [
    (0.49, 0.0, "carries out 49 % of the velocity that it is told: "),
    (0.9, 1.5, "falls 1.5 times per minute: "),
    (None, 1.5, "carries out 0 % of the velocity that it is told and falls 1.5"),
  ],
)
def test_a_profile_of_standing_or_falling_is_refused(capsys, followed, falls, says):
  metrics = {
    "tracking": {"followed": {"mean": followed}},
    "falls_per_minute": {"mean": falls},
  }
  with pytest.raises(UserError, match=says):
    _check_worth(metrics, "a", force=False)
  _check_worth(metrics, "a", force=True)
  assert "not limits of walking" in capsys.readouterr().err


def test_a_profile_warns_of_limits_that_the_policy_itself_exceeds(capsys):
  _warn({"joint_vel/upper": 0.5, "joint_vel/lower": 0.05}, 0.05)
  error = capsys.readouterr().err
  assert "in more than 5% of its steps: joint_vel/upper 50%. " in error
  _warn({"joint_vel/lower": 0.05}, 0.05)
  assert capsys.readouterr().err == ""


def test_a_profile_of_walking_is_not(capsys):
  good = {"tracking": {"followed": {"mean": 0.6}}, "falls_per_minute": {"mean": 0.5}}
  _check_worth(good, "a", force=False)
  assert capsys.readouterr().err == ""


def test_results_of_a_runs_own_bundle_are_beside_those_of_others(tmp_path):
  (tmp_path / "run" / "params").mkdir(parents=True)
  for bundle in (tmp_path / "mine", tmp_path / "run" / "policy"):
    bundle.mkdir()
    (bundle / "policy.json").touch()
  (tmp_path / "run" / "checkpoints").mkdir()
  (tmp_path / "run" / "checkpoints" / "model_3.pt").touch()
  for source, where in (
    ("run", tmp_path / "run"),
    ("run/checkpoints/model_3.pt", Path("evaluation/run-model_3")),
    ("mine", Path("evaluation/mine")),
    ("run/policy", Path("evaluation/run-policy")),
  ):
    assert _output_folder(EvaluateArgs(policy=str(tmp_path / source)), "t") == where


def test_quick_is_a_default_that_explicit_sizes_override():
  quick = EvaluateArgs(policy="stand", quick=True).protocol("g1-flat")
  assert (quick.rollouts, quick.envs, quick.steps, quick.warmup) == (4, 16, 300, 50)
  short = EvaluateArgs(policy="stand", quick=True, steps=60).protocol("g1-flat")
  assert (short.envs, short.steps, short.warmup) == (16, 60, 50)
  full = EvaluateArgs(policy="stand").protocol("g1-flat")
  assert (full.num_envs, full.steps) == (1280 + 14 * 32, 1000)
