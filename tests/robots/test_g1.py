"""The two G1 models against the numbers of the real robots."""

import re

import numpy as np
import pytest
from mjlab.entity import Entity

from decap.constraints.groups import resolve_groups
from decap.robots.g1 import (
  G1_23DOF_JOINTS,
  G1_29DOF_JOINTS,
  GROUPS,
  g1,
  spec_23dof,
  spec_29dof,
)


@pytest.fixture(scope="module", params=[29, 23])
def robot(request):
  description = g1(request.param)
  entity = Entity(description.entity)
  return request.param, description, entity, entity.spec.compile()


def test_total_mass(robot):
  dof, _, _, model = robot
  expected = {29: 33.34, 23: 32.11}[dof]
  assert model.body_mass.sum() == pytest.approx(expected, abs=0.005)


def test_masses_that_differ():
  """Distal arm 0.824 -> 0.357 kg a side, waist links 0.30 -> 0 kg, nothing else."""
  m29, m23 = spec_29dof().compile(), spec_23dof().compile()
  wrist = ["roll", "pitch", "yaw"]
  for side in ("left", "right"):
    links = [f"{side}_wrist_{w}_link" for w in wrist]
    assert sum(m29.body(n).mass[0] for n in links) == pytest.approx(0.824, abs=5e-4)
    assert sum(m23.body(n).mass[0] for n in links) == pytest.approx(0.357, abs=5e-4)
  waist = ["waist_yaw_link", "waist_roll_link"]
  assert sum(m29.body(n).mass[0] for n in waist) == pytest.approx(0.30)
  assert sum(m23.body(n).mass[0] for n in waist) == 0.0
  for i in range(m29.nbody):
    name = m29.body(i).name
    if "wrist" not in name and name not in waist:
      assert m29.body(i).mass == m23.body(i).mass, name


def test_arms_of_23dof_are_mirror_images():
  model = spec_23dof().compile()
  left, right = model.body("left_wrist_roll_link"), model.body("right_wrist_roll_link")
  np.testing.assert_allclose(left.ipos * (1, -1, 1), right.ipos)
  np.testing.assert_allclose(left.inertia, right.inertia)


def test_a_unit_of_action_asks_for_a_quarter_of_the_torque(robot):
  _, description, _, model = robot
  for i in range(model.nu):
    joint = model.joint(model.actuator_trnid[i, 0]).name
    kp, effort = model.actuator_gainprm[i, 0], model.actuator_forcerange[i, 1]
    scales = description.action_scale.items()
    (scale,) = [s for pattern, s in scales if re.fullmatch(pattern, joint)]
    assert scale == pytest.approx(0.25 * effort / kp), joint


@pytest.mark.parametrize(
  ("names", "upper", "lower"), [(G1_29DOF_JOINTS, 14, 15), (G1_23DOF_JOINTS, 10, 13)]
)
def test_every_joint_is_in_one_group(names, upper, lower):
  groups = resolve_groups(GROUPS, names)
  assert len(groups["upper"]) == upper
  assert len(groups["lower"]) == lower
  assert sorted(groups["upper"] + groups["lower"]) == list(range(len(names)))


def test_other_dof_is_refused():
  with pytest.raises(ValueError, match="29 or 23"):
    g1(27)
