"""The robot of a policy is found by the joints that it names."""

import pytest

from decap.deploy.robots import MOTORS, motors_for
from decap.errors import UserError
from decap.robots.g1_motors import G1_23DOF, G1_29DOF
from decap.robots.go1 import JOINTS as GO1_JOINTS

NAMES = G1_29DOF.joint_names


@pytest.mark.parametrize("motors", [G1_29DOF, G1_23DOF], ids=lambda m: m.name)
def test_joints_in_any_order_are_those_of_their_robot(motors):
  assert MOTORS[motors.name] is motors
  assert motors_for(motors.joint_names) is motors
  assert motors_for(motors.joint_names[::-1]) is motors


@pytest.mark.parametrize(
  ("names", "end"),
  [
    # As many joints as a G1, but not its own.
    ([f"joint_{i}" for i in range(29)], "for g1_23dof, it drives joint_0."),
    (["left_tail_joint", *NAMES[1:]], "for g1_29dof, it drives left_tail_joint."),
    (NAMES[:-1], "for g1_29dof, it does not drive right_wrist_yaw_joint."),
    (GO1_JOINTS, "for g1_23dof, it drives FL_calf_joint."),
    ([], "for g1_23dof, it does not drive left_ankle_pitch_joint."),
  ],
)
def test_other_joints_are_refused_in_a_sentence(names, end):
  with pytest.raises(UserError) as error:
    motors_for(names, "walk")
  assert str(error.value) == (
    "walk is for no robot whose motors are known (g1_29dof, g1_23dof): unlike one "
    + end
  )
