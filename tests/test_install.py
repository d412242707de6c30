"""The base package alone: what a robot's computer installs, and what it can do."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import decap

ROOT = Path(__file__).parents[1]
POLICY = ROOT / "policies" / "g1-flat-cat"

DRIVE = f"""
import importlib.util
absent = [m for m in ("torch", "mjlab", "rsl_rl", "onnx", "yaml", "matplotlib")
          if importlib.util.find_spec(m)]
assert not absent, absent
from decap.deploy.bundle import load_bundle
from decap.deploy.controller import Controller
from decap.deploy.operator import Script
from decap.deploy.robots import motors_for
from decap.deploy.simulation import SimulatedRobot
from decap.deploy.states import Mode

bundle = load_bundle({str(POLICY)!r})
robot = SimulatedRobot(motors_for(bundle.joint_names))
script = Script("0 stand\\n1.1 policy\\n2.5 0.5 0 0")
controller = Controller(robot, robot.motors, [bundle], script, stand_s=1.0)
controller.run_for(1.7)
robot.release()
controller.run_for(4.0)
assert controller.machine.mode is Mode.POLICY, controller.machine.stop_reason
assert not robot.fallen()
print(f"walked {{robot.data.qpos[0]:.2f}} m")
"""


def test_deployment_imports_neither_torch_nor_mjlab():
  """Over the whole import graph of deployment and its commands."""
  code = """
import importlib, pkgutil, sys
import decap.deploy, decap.robots.g1_motors
for module in pkgutil.iter_modules(decap.deploy.__path__):
  importlib.import_module(f"decap.deploy.{module.name}")
for name in ("deploy", "flight", "faults", "simulator"):
  importlib.import_module(f"decap.cli.{name}")
training = ("torch", "mjlab", "warp", "rsl_rl", "mjbatch", "onnx", "yaml", "rich",
            "matplotlib", "tensordict")
print([m for m in training if m in sys.modules])
"""
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, check=True
  )
  assert done.stdout.strip() == "[]"


def test_commands_that_need_training_packages_say_so(monkeypatch, capsys):
  from decap import cli

  def missing(name, *_):
    raise ModuleNotFoundError("No module named 'torch'", name="torch")

  monkeypatch.setattr(cli.importlib, "import_module", missing)
  assert cli.main(["train"]) == 2
  assert capsys.readouterr().err == (
    "decap: 'decap train' needs torch, which deployment does without: "
    "pip install 'decap[train]'.\n"
  )


@pytest.mark.slow
def test_the_wheel_alone_drives_the_simulated_robot(tmp_path):
  """Built, installed without extras into an empty environment, and tried there."""
  environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
  environment["DECAP_REPOSITORY"] = "https://example.org/someone/decap"

  def run(*command: str | Path) -> subprocess.CompletedProcess:
    return subprocess.run(
      [str(part) for part in command],
      cwd=tmp_path,
      env=environment,
      capture_output=True,
      text=True,
      check=False,
    )

  source = tmp_path / "source"  # Building leaves files in the tree.
  shutil.copytree(ROOT / "src", source / "src")
  for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
    shutil.copy(ROOT / name, source)
  built = run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", tmp_path, source)
  assert built.returncode == 0, built.stderr
  (wheel,) = tmp_path.glob("decap-*.whl")
  _check_wheel(wheel)
  assert run(sys.executable, "-m", "venv", tmp_path / "venv").returncode == 0
  python = tmp_path / "venv" / "bin" / "python"
  installed = run(python, "-m", "pip", "install", "-q", wheel)
  assert installed.returncode == 0, installed.stderr
  driven = run(python, "-c", DRIVE)
  assert driven.returncode == 0, driven.stderr
  assert float(driven.stdout.split()[1]) > 0.3
  program = tmp_path / "venv" / "bin" / "decap"
  dry = run(program, "deploy", POLICY, "--dry-run")
  assert dry.returncode == 0 and "fits the robot" in dry.stdout, dry.stderr
  # What is not there says how to get it, in one sentence.
  train = run(program, "train", "--task", "g1-flat")
  assert train.returncode == 2 and "pip install 'decap[train]'" in train.stderr
  robot = run(program, "deploy", POLICY, "--interface", "lo", "--no-log")
  assert robot.returncode == 2 and "pip install 'decap[robot]'" in robot.stderr


def _check_wheel(wheel: Path) -> None:
  """Types, version, addresses and a page whose pictures can be seen."""
  assert wheel.name.startswith(f"decap-{decap.__version__}-")
  with zipfile.ZipFile(wheel) as archive:
    shipped = ("py.typed", "robots/models/LICENSE", "evaluation/report.css")
    for name in (*shipped, "evaluation/playback.js"):
      assert f"decap/{name}" in archive.namelist()
    (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    metadata = archive.read(name).decode()
  assert "Project-URL: Source, https://example.org/someone/decap\n" in metadata
  assert "](https://example.org/someone/decap/raw/HEAD/docs/figures/" in metadata
