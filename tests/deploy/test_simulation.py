import subprocess
import sys
from dataclasses import replace

import mujoco
import numpy as np
import pytest

from decap.deploy.robot_io import COMMAND_DT_S, RobotCommand
from decap.deploy.simulation import KNEE_SHARE, SimCfg, SimulatedRobot
from decap.errors import UserError
from decap.robots.g1_motors import G1_23DOF
from tests.deploy.robots import MOTORS

QUIET = SimCfg(noise=0.0, delay_s=0.0)


def standing(robot: SimulatedRobot) -> RobotCommand:
  """Stiff enough to stand without a policy."""
  motors = robot.motors
  kp, kd = 6.0 * motors.array("kp"), 2.0 * motors.array("kd")
  ankles = ["ankle" in name for name in robot.joint_names]
  kp[ankles], kd[ankles] = 400.0, 8.0
  return RobotCommand(motors.array("default_pos"), kp, kd)


def run(robot: SimulatedRobot, seconds: float, command: RobotCommand) -> None:
  end = robot.now_s() + seconds
  while robot.now_s() < end - 1e-9:
    robot.write(command)
    robot.sleep_until(robot.now_s() + COMMAND_DT_S)


def test_torque_is_pd_at_the_motor():
  robot = SimulatedRobot(MOTORS, QUIET)
  target = robot.motors.array("default_pos").copy()
  target[3] += 0.1
  kp, kd = np.full(29, 20.0), np.full(29, 0.5)
  robot.write(RobotCommand(target, kp, kd, tau_ff=np.full(29, 0.25)))
  robot.step()
  expected = np.full(29, 0.25)
  expected[3] += 20.0 * 0.1
  np.testing.assert_allclose(robot.torque, expected, atol=1e-12)


def test_torque_ends_at_the_peak_and_falls_with_speed():
  robot = SimulatedRobot(MOTORS, QUIET)
  effort, top = robot.motors.array("effort_limit"), robot.motors.array("velocity_limit")
  far = RobotCommand(np.full(29, 1e6), np.ones(29), np.zeros(29))
  robot.write(far)
  speeds = {KNEE_SHARE: 1.0, 0.5 * (1 + KNEE_SHARE): 0.5, 1.0: 0.0, 1.5: 0.0, -1.0: 1.0}
  for share, left in speeds.items():
    robot.data.qvel[robot.joint_qvel] = share * top
    robot.step()
    np.testing.assert_allclose(robot.torque, left * effort, atol=1e-6 * effort.max())


def test_motor_strength_scales_torque_and_peak():
  weak = SimulatedRobot(MOTORS, replace(QUIET, motor_strength=0.5))
  weak.write(RobotCommand(np.full(29, 1e6), np.ones(29), np.zeros(29)))
  weak.step()
  np.testing.assert_allclose(weak.torque, 0.5 * weak.motors.array("effort_limit"))


@pytest.mark.parametrize("delay_s", [0.0, 0.0005, 0.02])
def test_commands_reach_the_motors_after_the_delay(delay_s: float):
  robot = SimulatedRobot(MOTORS, replace(QUIET, delay_s=delay_s))
  zeros = np.zeros(29)
  robot.write(RobotCommand(zeros, zeros, zeros, tau_ff=np.ones(29)))
  steps = round(delay_s / 0.0005)
  for _ in range(steps):
    robot.step()
    assert not robot.torque.any()
  robot.step()
  assert robot.torque.all()


def test_mode_zero_switches_motors_off():
  robot = SimulatedRobot(MOTORS, QUIET)
  command = standing(robot)
  command.mode = 0
  command.tau_ff = np.ones(29)
  robot.write(command)
  robot.step()
  assert not robot.torque.any()


def test_states_come_once_per_command_period_in_simulated_time():
  robot = SimulatedRobot(G1_23DOF, SimCfg())
  first = robot.read()
  assert first is not None and first.tick == 0 and len(first.q) == 23
  assert robot.read() is None
  robot.sleep_until(COMMAND_DT_S)
  second = robot.read()
  assert second is not None and second.tick == 2 and second.stamp_s == COMMAND_DT_S
  assert second.mode_machine in robot.motors.mode_machines


@pytest.mark.parametrize(
  ("terrain", "least_mm", "most_mm"),
  [("flat", 0.0, 1.0), ("carpet", 2.0, 6.0), ("grass", 15.0, 25.0)],
)
def test_soft_grounds_give_way_under_a_standing_robot(terrain, least_mm, most_mm):
  robot = SimulatedRobot(MOTORS, replace(QUIET, terrain=terrain))
  run(robot, 0.3, standing(robot))
  robot.release()
  run(robot, 0.7, standing(robot))
  soles = [robot.data.contact[i].dist for i in range(robot.data.ncon)]
  assert least_mm <= -1000.0 * np.mean(soles) <= most_mm
  assert not robot.fallen()


def test_gantry_holds_a_limp_robot_and_release_lets_it_fall():
  robot = SimulatedRobot(MOTORS, QUIET)
  robot.sleep_until(0.5)
  assert robot.held and not robot.fallen()
  robot.release()
  robot.sleep_until(2.0)
  assert robot.fallen()


def test_payload_hangs_in_the_right_hand():
  light, heavy = (
    SimulatedRobot(MOTORS, replace(QUIET, payload_kg=mass)) for mass in (0.0, 1.2)
  )
  assert np.isclose(heavy._mass - light._mass, 1.2)
  body = heavy.model.body("payload")
  assert heavy.model.body(body.parentid[0]).name == "right_wrist_yaw_link"


def test_pushes_change_the_speed_by_what_they_say():
  robot = SimulatedRobot(
    MOTORS, replace(QUIET, push_m_s=0.5, push_every_s=0.2, ground_friction=1e-3)
  )
  robot.release()
  robot.data.qpos[2] = 5.0  # In the air nothing else pushes sideways.
  robot.sleep_until(0.31)
  com = robot.data.subtree_com[1].copy()
  robot.sleep_until(0.36)
  speed = (robot.data.subtree_com[1] - com)[:2] / 0.05
  assert np.isclose(np.linalg.norm(speed), 0.5, rtol=0.02)


def test_joint_friction_is_a_share_of_the_peak():
  robot = SimulatedRobot(MOTORS, replace(QUIET, joint_friction=0.02))
  loss = robot.model.dof_frictionloss
  np.testing.assert_allclose(
    loss[robot.joint_qvel], 0.02 * robot.motors.array("effort_limit")
  )
  assert not loss[:6].any()


def test_head_swings_on_its_neck():
  robot = SimulatedRobot(MOTORS, QUIET)
  run(robot, 0.2, standing(robot))
  robot.data.qvel[4] += 1.0  # A sudden nod of the whole robot.
  run(robot, 0.3, standing(robot))
  head, torso = (robot.gyros[name].samples()[1][:, 1] for name in ("head", "torso"))
  assert np.abs(head).max() > 1.1 * np.abs(torso).max()


def test_what_cannot_be_simulated_is_refused():
  for change, word in (
    ({"delay_s": 0.03}, "delay_s"),
    ({"payload_kg": -1.0}, "payload_kg"),
    ({"ground_friction": 0.0}, "ground_friction"),
    ({"motor_strength": float("nan")}, "motor_strength"),
    ({"terrain": "lava"}, "lava"),
  ):
    with pytest.raises(UserError, match=word):
      SimulatedRobot(MOTORS, replace(QUIET, **change))


def test_simulated_robot_needs_neither_torch_nor_mjlab():
  code = (
    "import sys; from decap.deploy.simulation import SimulatedRobot; "
    "from decap.robots.g1_motors import G1_29DOF; "
    "SimulatedRobot(G1_29DOF).step(); "
    "print([m for m in ('torch', 'mjlab', 'onnx', 'matplotlib') if m in sys.modules])"
  )
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
  assert done.stdout.strip() == "[]", done.stderr


def test_accelerations_are_new_in_every_state():
  robot, unread = SimulatedRobot(MOTORS, QUIET), SimulatedRobot(MOTORS, QUIET)
  first = int(unread.model.sensor("acceleration").adr[0])
  for pause_s in (0.0, 0.002, 0.0025, 0.002, 0.0105, 0.002):
    for one in (robot, unread):  # As long as nobody reads, it is measured all the time.
      one.sleep_until(one.now_s() + pause_s)
    state = robot.read()
    assert state is not None
    np.testing.assert_array_equal(state.acc, unread.data.sensordata[first : first + 3])


@pytest.mark.parametrize("terrain", ["flat", "grass"])
def test_options_that_save_time_leave_physics_as_it_is(terrain: str):
  usual, plain = (SimulatedRobot(MOTORS, SimCfg(terrain=terrain)) for _ in range(2))
  plain.model.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
  plain.model.opt.disableflags = 0
  kicks = np.random.default_rng(0).normal(0.0, 2.0, usual.model.nv)
  kicks[:6] = 0.0
  for robot in (usual, plain):  # Legs and arms swing and touch what they may.
    robot.release()
    robot.data.qvel[:] = kicks
    robot.sleep_until(0.3)
  assert usual.data.ncon > 4
  np.testing.assert_allclose(usual.data.qpos, plain.data.qpos, rtol=0, atol=1e-9)
