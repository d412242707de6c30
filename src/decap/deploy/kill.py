"""The fault that needs real processes: a controller that is killed while it drives.

Simulator and controller run apart and talk over DDS in lockstep. From the kill on,
physics keeps to the wall clock, as a robot does; the time until the watchdog's damping
arrives is then what it would be there.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from decap.deploy.bundle import Bundle
from decap.deploy.faults import (
  AFTER_S,
  COMMAND,
  STOPPED,
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

KIND = "killed controller"
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


def play_kill(seed: int, bundle: Bundle, domain: int) -> Outcome:
  """Kill a walking controller at a time by seed; the watchdog must damp the robot."""
  plan = make_plan(KIND, seed)
  plan.start_s += STAND_S + _RELEASE_S - WALK_S
  sim = SimulatedRobot(motors_for(bundle.joint_names), SimCfg(seed=seed))
  port = SimulatorPort(sim.motors, "lo", domain)
  seen = Observed(sim)
  with tempfile.TemporaryDirectory(prefix="decap-kill-") as folder:
    log = Path(folder) / "flight"
    process = _start(bundle, Path(folder), log, domain)
    try:
      serve(
        sim,
        port,
        lambda: sim.now_s() >= plan.start_s or process.poll() is not None,
        patience_s=10.0,
        on_command=seen,
      )
      if process.poll() is not None:
        said = (Path(folder) / "stderr").read_text().strip()
        return Outcome(KIND, seed, False, f"the controller ended early: {said}")
      process.kill()
      seen.killed = True
      _go_on(sim, port, seen, plan.start_s + AFTER_S)
    finally:
      process.kill()
      process.wait()
      port.close()
    events = [event["event"] for event in read_events(log)]
  if not seen.driven:
    return Outcome(KIND, seed, False, "was never driven")
  reason = next((e for e in events if STOPPED[KIND][0] in e), "")
  return judge_stop(plan, seen, reason or "no reason in the log", bool(reason))


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
