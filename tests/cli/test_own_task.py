"""A task that is no part of the package, by all commands that need it."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from decap import tasks
from decap.cli import main, play
from decap.errors import UserError
from decap.evaluation.environment import command_term
from decap.rl import checkpoint_files
from decap.runs import load_spec
from decap.sweep.job import Job, train_command
from decap.sweep.plan import make_plan
from tests.cli.conftest import SMALL

MODULE = """
from functools import partial

from mjlab.tasks.registry import load_env_cfg

from decap.constraints import BodyGroupCfg
from decap.envs import mdp
from decap.envs.constrained_env import constrain
from decap.envs.constraint_manager import ConstraintTermCfg
from decap.robots.go1 import go1
from decap.tasks import Task


def stock(play):
  return constrain(
    load_env_cfg("Mjlab-Velocity-Flat-Unitree-Go1", play),
    constraints={
      "joint_vel": ConstraintTermCfg(func=mdp.joint_vel, limits={"all": 8.0})
    },
    groups={"all": BodyGroupCfg(joint_names=(".*",), p_max=0.5)},
  )


def mute(play):
  cfg = stock(play)
  for name in ("commands", "observations", "rewards", "curriculum", "metrics"):
    setattr(cfg, name, {})
  return cfg


stock_go1 = partial(load_env_cfg, "Mjlab-Velocity-Flat-Unitree-Go1")
trot = Task(go1)
bare = Task(env=stock)
untold = Task(env=mute)
free, ready = Task(env=stock_go1), Task(env=stock(False))
bumpy = Task(go1, "bumpy")
astray, misnamed = Task("decap.robots.go7:go1"), Task("decap.robots.go1:go2")
odd, described = Task(env=stock, agent=dict), Task(go1())
"""
TROT, BARE = "my_own_tasks:trot", "my_own_tasks:bare"
CPU = ["--device", "cpu"]
TINY = ["--rollouts", "1", "--envs", "2", "--steps", "52", "--per-command", "0"]
TINY += ["--trajectory", "0"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  path = tmp_path_factory.mktemp("own")
  (path / "my_own_tasks.py").write_text(MODULE)
  return path


@pytest.fixture(autouse=True)
def fresh(folder, monkeypatch):
  """As in a new process, in that folder."""
  monkeypatch.chdir(folder)
  monkeypatch.setattr(sys, "path", list(sys.path))
  monkeypatch.setattr(tasks, "_NAMED", {})
  sys.modules.pop("my_own_tasks", None)


def train(task):
  options = ["--task", task, "--num-envs", "4", "--iterations", "2", *CPU, *SMALL]
  assert main(["train", *options]) == 0
  tasks._NAMED.clear()
  (run,) = (Path("runs") / task.replace(":", ".")).iterdir()
  return run


def test_all_commands_take_a_robot_of_ones_own(capsys):
  run = train(TROT)
  assert f"play {run} --task {TROT}" in capsys.readouterr().out
  assert load_spec(run).task == TROT
  # What a file says imports nothing, and what is not needed need not be said.
  sys.modules.pop("my_own_tasks")
  more = ["--iterations", "3", *CPU]
  for argv in (["train", "--resume", str(run), *more], ["evaluate", str(run), *CPU]):
    assert main(argv) == 2
    assert "not imported because a file says so" in capsys.readouterr().err
  assert main(["export", str(run), "--output", "bundle"]) == 0
  assert "my_own_tasks" not in sys.modules
  # Named, it goes on.
  assert main(["train", "--resume", str(run), *more, "--task", TROT]) == 0
  assert checkpoint_files.resolve(run).name == "model_3.pt"
  tasks._NAMED.clear()
  assert main(["evaluate", "bundle", "--task", TROT, *TINY, *CPU]) == 0
  metrics = json.loads(Path("evaluation/bundle/metrics.json").read_text())
  assert metrics["protocol"]["task"] == metrics["policy"]["task"] == TROT
  assert play.spec_of("bundle").task == play.spec_of(str(run), task=TROT).task == TROT


@pytest.mark.parametrize(
  ("name", "sentence"),
  [
    (
      "free",
      "The task's env must return ConstrainedEnvCfg (see constrain), not Manager",
    ),
    ("ready", "The task's env must be a function, not a ConstrainedEnvCfg"),
    ("odd", "The task's agent must return AgentCfg, not dict"),
    ("bumpy", "Unknown terrain 'bumpy'"),
    ("astray", "There is no module 'decap.robots.go7'"),
    ("misnamed", "The module 'decap.robots.go1' has no 'go2'"),
    ("described", "The task's robot must be a function, not a RobotDescription"),
  ],
)
def test_what_a_task_makes_is_checked(name, sentence, capsys):
  assert main(["train", "--task", f"my_own_tasks:{name}", *CPU]) == 2
  assert sentence in capsys.readouterr().err


def test_an_environment_without_a_robot_is_trained_and_not_evaluated(capsys):
  run = train(BARE)
  told = ["--task", BARE, *CPU]
  for command in (["evaluate", *TINY], ["evaluate", "--command", "1", "0", "0"]):
    assert main([command[0], str(run), *command[1:], *told]) == 2
    error = capsys.readouterr().err
    assert f"{BARE} cannot be evaluated: it has no description of its robot" in error
  assert main(["profile", str(run), *told, "--steps", "52"]) == 2
  assert "cannot be evaluated" in capsys.readouterr().err

  # It is watched, and told where to go if that is what it learns.
  env, act = play.make_play(
    play.PlayArgs(policies=(str(run),), task=BARE, device="cpu"), str(run)
  )
  play._teller(env)((0.3, 0.0, 0.1))
  with torch.no_grad():
    env.step(act(env.reset()[0]))
  assert command_term(env).command.tolist() == [pytest.approx([0.3, 0.0, 0.1])]
  env.close()
  silent = SimpleNamespace(command_manager=SimpleNamespace(active_terms=[]))
  assert play._teller(silent)((0.3, 0.0, 0.1)) is None
  untold = ["--task", "my_own_tasks:untold", "--command", "1", "0", "0", *CPU]
  assert main(["play", str(run), *untold]) == 2
  assert "my_own_tasks:untold has no velocity command" in capsys.readouterr().err


@pytest.mark.parametrize(
  ("task", "lacking"),
  [(BARE, "description of its robot"), ("my_own_tasks:untold", "velocity command")],
)
def test_a_sweep_says_before_it_trains_what_it_cannot_evaluate(task, lacking, capsys):
  Path("sweep.yaml").write_text(f"{{task: '{task}', iterations: 2, device: cpu}}")
  assert main(["sweep", "sweep.yaml", "--dry-run"]) == 2
  error = capsys.readouterr().err
  assert f"{task} cannot be evaluated: it has no " in error and lacking in error
  assert main(["sweep", "sweep.yaml", "--dry-run", "--no-evaluate"]) == 0
  assert not Path("runs", "sweep").exists()


def test_a_sweep_names_the_task_to_every_process(folder):
  plan = make_plan({"task": TROT, "iterations": 3, "num-envs": 4, "device": "cpu"})
  job = Job(plan.runs[0], folder / "sweep")
  assert train_command(job, plan, "cpu").count(TROT) == 1
  run = job.root / tasks.folder_name(TROT) / "run"
  (run / "params").mkdir(parents=True)
  (run / "params" / "run.json").write_text(json.dumps(job.run.spec.to_dict()))
  for iteration in (2, 3):
    path = checkpoint_files.path_for(run, iteration)
    path.parent.mkdir(exist_ok=True)
    path.touch()
    told = job.next_stage(plan)[1]
    assert told[0] == "train" and "--resume" in told
    assert told[told.index("--task") + 1] == TROT
  (run / "policy").mkdir()
  (run / "policy" / "policy.json").write_text('{"iteration": 3}')
  assert job.next_stage(plan)[1][-2:] == ["--task", TROT]
  plan.evaluate = {"task": None}  # A key without a value has its default.
  assert job.next_stage(plan)[1][-2:] == ["--task", TROT]


def test_ours_import_nothing_of_users():
  with pytest.raises(UserError, match="Unknown task 'trot'"):
    tasks.name_task("trot")
  tasks.name_task("g1-flat")
  assert not tasks._NAMED and str(Path.cwd()) not in sys.path
