"""The plain motor tables say what mjlab's model says."""

import numpy as np
import pytest
from mjlab.asset_zoo.robots.unitree_g1 import g1_constants
from mjlab.entity import Entity

from decap.robots.g1 import g1
from decap.robots.g1_motors import g1_motors


@pytest.mark.parametrize("dof", [29, 23])
def test_motors_equal_mjlab_s_model(dof):
  motors = g1_motors(dof)
  entity = Entity(g1(dof).entity)
  assert motors.joint_names == tuple(entity.joint_names)
  model = entity.spec.compile()
  home = model.key("init_state").qpos
  actuators = {model.joint(model.actuator_trnid[i, 0]).name: i for i in range(model.nu)}
  for motor in motors.motors:
    i, joint = actuators[motor.joint], model.joint(motor.joint)
    np.testing.assert_allclose(motor.kp, model.actuator_gainprm[i, 0], rtol=1e-9)
    np.testing.assert_allclose(motor.kd, -model.actuator_biasprm[i, 2], rtol=1e-9)
    assert motor.effort_limit == model.actuator_forcerange[i, 1]
    np.testing.assert_allclose(motor.position_limits, joint.range, rtol=1e-12)
    assert motor.default_pos == home[joint.qposadr[0]]


def test_speed_limits_are_those_of_mjlab_s_actuators():
  limits = {m.joint: m.velocity_limit for m in g1_motors(29).motors}
  for joint, kind in {
    "left_elbow_joint": "5020",
    "right_hip_pitch_joint": "7520_14",
    "left_knee_joint": "7520_22",
    "right_wrist_yaw_joint": "4010",
    "waist_pitch_joint": "5020",
    "left_ankle_roll_joint": "5020",
  }.items():
    actuator = getattr(g1_constants, f"ACTUATOR_{kind}")
    assert limits[joint] == actuator.velocity_limit


def test_slots_are_the_vendor_s():
  assert g1_motors(29).slots == tuple(range(29))
  small = g1_motors(23)
  assert set(range(29)) - set(small.slots) == {13, 14, 20, 21, 27, 28}
  assert small.slots[small.joint_names.index("right_elbow_joint")] == 25
  assert not set(small.mode_machines) & set(g1_motors(29).mode_machines)


def test_other_robots_are_refused():
  with pytest.raises(ValueError, match="29 or 23"):
    g1_motors(12)
