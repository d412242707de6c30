"""The shipped models of the simulated robots against mjlab's."""

import mujoco
import numpy as np
import pytest
from mjlab.entity import Entity

from decap.deploy.simulation import MODELS
from decap.robots.g1 import g1
from decap.robots.g1_motors import g1_motors

from . import export_models


def shipped(dof: int) -> mujoco.MjModel:
  return mujoco.MjModel.from_xml_path(str(MODELS / f"g1_{dof}dof.xml"))


@pytest.mark.parametrize("dof", [29, 23])
def test_shipped_model_is_what_the_export_writes(dof: int):
  text = (MODELS / f"g1_{dof}dof.xml").read_text()
  assert text == export_models.export(dof)


@pytest.mark.parametrize("dof", [29, 23])
def test_mass_and_inertia_are_those_of_training(dof: int):
  model, trained = shipped(dof), Entity(g1(dof).entity).spec.compile()
  assert np.isclose(model.body_subtreemass[0], trained.body_subtreemass[0], atol=1e-4)
  data, reference = mujoco.MjData(model), mujoco.MjData(trained)
  mujoco.mj_forward(model, data)
  mujoco.mj_forward(trained, reference)
  # The neck's three joints come last; without them the two robots are one.
  dense = np.zeros((model.nv, model.nv))
  mujoco.mj_fullM(model, data, dense)
  dense_trained = np.zeros((trained.nv, trained.nv))
  mujoco.mj_fullM(trained, reference, dense_trained)
  np.testing.assert_allclose(dense[:-3, :-3], dense_trained, atol=2e-4)


@pytest.mark.parametrize("dof", [29, 23])
def test_joints_are_the_motors_in_order(dof: int):
  model, motors = shipped(dof), g1_motors(dof)
  names = [model.actuator(i).name for i in range(model.nu)]
  assert tuple(names) == motors.joint_names
  limits = np.array([model.joint(name).range for name in names])
  np.testing.assert_allclose(limits, motors.array("position_limits"), atol=1e-5)


def test_neck_swings_at_its_natural_frequency():
  model = shipped(29)
  joint = model.joint("neck_yaw_joint")
  inertia = 0.4 * export_models.HEAD_MASS_KG * export_models.HEAD_RADIUS_M**2
  # Its centre of mass is 5 mm beside the axis.
  inertia += export_models.HEAD_MASS_KG * (0.0052**2 + 0.0003**2)
  frequency = np.sqrt(model.jnt_stiffness[joint.id] / inertia) / (2 * np.pi)
  assert np.isclose(frequency, export_models.NECK_HZ, rtol=1e-3)
