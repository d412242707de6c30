"""The simulated robot in the browser, with sliders for the command.

What steps is the controller that drives the real robot; the sliders are its operator.
"""

from __future__ import annotations

import time

import mujoco
import numpy as np

from decap.deploy.bundle import Bundle
from decap.deploy.controller import Controller, Cycle
from decap.deploy.looks import build_looks
from decap.deploy.operator import Input
from decap.deploy.policy import RunningPolicy
from decap.deploy.robot_io import RobotState
from decap.deploy.robots import motors_for
from decap.deploy.sim2sim import FADE_S, STAND_S
from decap.deploy.simulation import SimCfg, SimulatedRobot
from decap.deploy.states import Mode, Requests

FRAME_S = 0.04


class Panel:
  """Sliders and buttons in the browser, as the controller's operator."""

  def __init__(self, server, bundle: Bundle, ranges: tuple[np.ndarray, np.ndarray]):
    gui = server.gui
    names = ("forward, m/s", "left, m/s", "turn, rad/s")
    self.sliders = [
      gui.add_slider(name, float(low), float(high), 0.05, 0.0)
      for name, low, high in zip(names, *ranges, strict=True)
    ]
    self.text = gui.add_markdown(f"**{bundle.folder.name}**")
    self._pressed: set[str] = set()
    for label in ("stop", "push", "restart"):
      gui.add_button(label).on_click(lambda _, name=label: self._pressed.add(name))
    self.waiting = True

  def take(self, name: str) -> bool:
    """Whether a button was pressed since it was last asked for."""
    pressed = name in self._pressed
    self._pressed.discard(name)
    return pressed

  def poll(self, now_s: float, state: RobotState | None) -> Input:
    """Stands up and starts the policy by itself; then the sliders rule."""
    del state
    requests = Requests(
      stand=now_s == 0.0,
      policy=self.waiting and now_s > STAND_S,
      stop=self.take("stop"),
    )
    command = np.array([slider.value for slider in self.sliders])
    return Input(command, requests, exact=True)


class Viewer:
  """Steps the robot in real time and shows it at 25 Hz."""

  def __init__(self, bundle: Bundle, cfg: SimCfg, port: int = 8080):
    import viser
    from mjviser import ViserMujocoScene

    motors = motors_for(bundle.joint_names)
    self._bundle = bundle
    self._robot = SimulatedRobot(motors, cfg)
    self._looks = build_looks(motors, cfg)
    self._shown = mujoco.MjData(self._looks)
    # On this machine only, as `decap play`.
    self._server = viser.ViserServer(host="localhost", port=port)
    self._scene = ViserMujocoScene(self._server, self._looks, num_envs=1)
    self._scene.create_scene_gui(camera_distance=3.0)
    policy = RunningPolicy(bundle, self._robot.joint_names)
    self.panel = Panel(self._server, bundle, policy.command_range)
    self._start()

  def run(self, seconds: float = float("inf")) -> None:
    """Until Ctrl-C, or for a time."""
    end = time.monotonic() + seconds
    try:
      while time.monotonic() < end:
        self._advance()
    except KeyboardInterrupt:
      pass
    finally:
      self._server.stop()

  def _start(self) -> None:
    self._robot.reset()
    self.panel.waiting = True
    self._controller = Controller(
      self._robot,
      self._robot.motors,
      [self._bundle],
      operator=self.panel,
      stand_s=STAND_S,
      observers=(self._observe,),
    )

  def _observe(self, controller: Controller, cycle: Cycle) -> None:
    if cycle.mode is Mode.POLICY and self.panel.waiting:
      self.panel.waiting = False
      self._robot.release(FADE_S)

  def _advance(self) -> None:
    """One frame: step the frame's time, show it, wait for the rest."""
    started = time.monotonic()
    if self.panel.take("restart"):
      self._start()
    if self.panel.take("push"):
      self._robot.data.qvel[1] += 0.5
    robot = self._robot
    frame_end = robot.now_s() + FRAME_S
    while robot.now_s() < frame_end - 1e-9:
      self._controller.step()
      robot.sleep_until(self._controller.next_s)
    self._show()
    time.sleep(max(0.0, FRAME_S - (time.monotonic() - started)))

  def _show(self) -> None:
    self._shown.qpos[:] = self._robot.data.qpos
    mujoco.mj_kinematics(self._looks, self._shown)
    self._scene.update_from_mjdata(self._shown)
    machine, velocity = self._controller.machine, self._robot.velocity()
    reason = f": {machine.stop_reason}" if machine.mode is Mode.DAMPING else ""
    self.panel.text.content = (
      f"**{self._bundle.folder.name}** on {self._robot.cfg.terrain}, "
      f"{self._robot.now_s():.1f} s\n\n{machine.mode.value}{reason}\n\n"
      f"{velocity[0]:+.2f} m/s, {velocity[1]:+.2f} m/s, {velocity[2]:+.2f} rad/s"
    )
