"""How long this machine takes for a policy step, without a robot."""

from __future__ import annotations

import numpy as np

from decap.deploy.bundle import Bundle
from decap.deploy.controller import Controller, Cycle
from decap.deploy.latency import STAGES
from decap.deploy.messages import Codec
from decap.deploy.operator import Script
from decap.deploy.robot_io import COMMANDS_PER_STEP, Robot, RobotCommand, RobotState
from decap.deploy.states import Mode
from decap.errors import UserError
from decap.robots.motors import RobotMotors

BUDGET_MS = 1.0
"""Median of observation, network and command together, on one core."""


class _Echo(Robot):
  """A robot that stands still; states and commands pass through real messages."""

  def __init__(self, motors: RobotMotors):
    self.joint_names = motors.joint_names
    self._codec = Codec(motors)
    self._time_s = 0.0
    self._random = np.random.default_rng(0)
    self._pose = motors.array("default_pos")

  def read(self) -> RobotState:
    joints = len(self.joint_names)
    noise = 1e-3 * self._random.normal(size=(3, joints))
    message = self._codec.encode_state(
      RobotState(
        q=self._pose + noise[0],
        dq=noise[1],
        tau_est=noise[2],
        quat=np.array([1.0, 0.0, 0.0, 0.0]),
        gyro=noise[0, :3],
        acc=np.array([0.0, 0.0, 9.81]),
        temperature=np.full(joints, 40.0),
        mode_machine=0,
        tick=round(1e3 * self._time_s),
        stamp_s=self._time_s,
      )
    )
    return self._codec.decode_state(message, self._time_s)

  def write(self, command: RobotCommand) -> None:
    self._codec.encode_command(command, 0)

  def now_s(self) -> float:
    return self._time_s

  def sleep_until(self, time_s: float) -> None:
    self._time_s = time_s


def measure(bundle: Bundle, motors: RobotMotors, steps: int = 500) -> dict[str, float]:
  """Median time of each stage over policy steps, ms, and of all but `read` as `step`."""
  times: dict[str, list[float]] = {stage: [] for stage in STAGES}

  def note(controller: Controller, cycle: Cycle) -> None:
    if cycle.mode is Mode.POLICY and controller.policy_stepped:
      for stage in STAGES:
        times[stage].append(controller.latency.last_s[stage])

  controller = Controller(
    _Echo(motors), motors, [bundle], Script("0 stand\n0.1 policy"), stand_s=0.1
  )
  controller.observers.append(note)
  for _ in range(60 + steps * COMMANDS_PER_STEP):
    controller.step()
    controller.robot.sleep_until(controller.next_s)
  if not times["infer"]:
    reason = controller.machine.stop_reason
    raise UserError(f"{bundle.folder} cannot be measured: {reason}.")
  found = {s: 1e3 * float(np.median(times[s])) for s in STAGES}
  total = np.sum([times[s] for s in STAGES if s != "read"], axis=0)
  return {**found, "step": 1e3 * float(np.median(total))}


def report(bundle: Bundle, found: dict[str, float]) -> str:
  """The measurement in words."""
  stages = ", ".join(f"{stage} {found[stage]:.3f}" for stage in STAGES)
  verdict = "within" if found["step"] <= BUDGET_MS else "above"
  return (
    f"{bundle.folder}: {len(bundle.joint_names)} joints, "
    f"{1 / bundle.control_dt_s:.0f} Hz, fits the robot.\n"
    f"Median per stage, ms: {stages}.\n"
    f"Observation, network and command: {found['step']:.3f} ms, {verdict} "
    f"{BUDGET_MS:g} ms."
  )
