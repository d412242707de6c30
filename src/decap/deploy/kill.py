"""The faults that need real processes: controller or watchdog are killed in a drive.

Simulator and controller run apart and talk over DDS in lockstep. From the kill of the
controller on, physics keeps to the wall clock, as a robot does; the time until the
watchdog's damping arrives is then what it would be there. A hang cannot be played so: in
lockstep the watchdog waits for a minute.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from decap.deploy.bundle import Bundle
from decap.deploy.faults import (
  AFTER_S,
  COMMAND,
  WALK_S,
  Damping,
  Outcome,
  judge_stop,
  make_plan,
)
from decap.deploy.recorder import read_events
from decap.deploy.robot_io import COMMAND_DT_S, RobotCommand
from decap.deploy.robots import motors_for
from decap.deploy.simulation import SimCfg, SimulatedRobot
from decap.deploy.states import STAND_S
from decap.deploy.unitree import SimulatorPort, serve

KILLS = ("killed controller", "dead watchdog")
_RELEASE_S = STAND_S + 0.6


class Observed(Damping):
  """What the robot's side sees of the commands."""

  def __init__(self, sim: SimulatedRobot):
    self.sim = sim
    self.driven = self.killed = False

  def __call__(self, command: RobotCommand) -> None:
    stiff = bool(command.kp.any())
    self.driven |= stiff
    if self.sim.held and stiff and self.sim.now_s() >= _RELEASE_S:
      self.sim.release()
    if self.killed:
      self.see(command, self.sim.now_s())


def play_kill(kind: str, seed: int, bundle: Bundle, domain: int) -> Outcome:
  """Kill one of two at a time by seed; the other one must damp the robot."""
  plan = make_plan(kind, seed)
  plan.start_s += STAND_S + _RELEASE_S - WALK_S
  sim = SimulatedRobot(motors_for(bundle.joint_names), SimCfg(seed=seed))
  port = SimulatorPort(sim.motors, "lo", domain)
  seen = Observed(sim)
  with tempfile.TemporaryDirectory(prefix="decap-kill-") as folder:
    log = Path(folder) / "flight"
    process = _start(bundle, Path(folder), log, domain)
    try:
      _serve(sim, port, seen, process, plan.start_s)
      if process.poll() is not None:
        said = (Path(folder) / "stderr").read_text().strip()
        return Outcome(kind, seed, False, f"the controller ended early: {said}")
      seen.killed = True
      if kind == "dead watchdog":
        _kill_child(process)
        _serve(sim, port, seen, process, plan.start_s + AFTER_S)
      else:
        process.kill()
        _go_on(sim, port, seen, plan.start_s + AFTER_S)
    finally:
      process.kill()
      process.wait()
      port.close()
    events = [event["event"] for event in read_events(log)]
  if not seen.driven:
    return Outcome(kind, seed, False, "was never driven")
  stops = [e for e in events if e.startswith(("stop: ", "watchdog: "))]
  return judge_stop(plan, seen, stops[0] if stops else "", bool(stops))


def _start(bundle: Bundle, folder: Path, log: Path, domain: int) -> subprocess.Popen:
  script = folder / "walk.txt"
  script.write_text(f"0 stand\n{STAND_S} policy\n{_RELEASE_S} {COMMAND}\n")
  command = [sys.executable, "-m", "decap", "deploy", bundle.folder, "--simulator"]
  command += ["--domain", domain, "--input", script, "--log", log]
  command += ["--log-mb", 20, "--wait", 60]
  with (folder / "stderr").open("w") as errors:
    return subprocess.Popen(
      [str(part) for part in command], stdout=subprocess.DEVNULL, stderr=errors
    )


def _kill_child(process: subprocess.Popen) -> None:
  """Kill the watchdog, the only process that a controller starts."""
  (child,) = (
    Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
  )
  os.kill(int(child), signal.SIGKILL)


def _serve(
  sim: SimulatedRobot,
  port: SimulatorPort,
  seen: Observed,
  process: subprocess.Popen,
  end_s: float,
) -> None:
  """Lockstep until then, or until the controller ends."""
  serve(
    sim,
    port,
    lambda: sim.now_s() >= end_s or process.poll() is not None,
    patience_s=10.0,
    on_command=seen,
  )


def _go_on(
  sim: SimulatedRobot, port: SimulatorPort, seen: Observed, end_s: float
) -> None:
  """Physics at the pace of the wall clock, with whatever commands arrive."""
  offset_s = time.monotonic() - sim.now_s()
  while sim.now_s() < end_s:
    state = sim.read()
    if state is not None:
      port.publish(state)
    received = port.receive(0.0)
    if received is not None:
      seen(received[0])
      sim.write(received[0])
    sim.sleep_until(sim.now_s() + COMMAND_DT_S)
    time.sleep(max(0.0, sim.now_s() + offset_s - time.monotonic()))
