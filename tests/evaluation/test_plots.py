"""Figures show the data and the limits that they were given."""

import copy

import numpy as np
import pytest

from decap.errors import UserError
from decap.evaluation import plots
from decap.evaluation.results import Result
from tests.evaluation.synthetic import make_trajectory, measured, metrics_of_trajectory


@pytest.fixture(scope="module")
def trajectories():
  return {
    "a": measured(make_trajectory(steps=400, seed=0)),
    "b": measured(make_trajectory(steps=400, seed=1, size=0.3)),
  }


@pytest.fixture(scope="module")
def results(trajectories):
  return {
    label: Result(t.policy, t.protocol, t.layout, metrics_of_trajectory(t))
    for label, t in trajectories.items()
  }


def lines(ax, label):
  return [line for line in ax.lines if line.get_label() == label]


def test_traces_show_the_largest_joint_and_the_limit(trajectories):
  fig = plots.traces(trajectories, "joint_vel", seconds=2.0)
  upper, lower = fig.axes
  assert lines(upper, "limit")[0].get_ydata()[0] == 1.5
  assert lines(lower, "limit")[0].get_ydata()[0] == 10.0
  assert lines(upper, "limit")[0].get_linestyle() == "--"
  speed = np.abs(trajectories["a"].joint_vel[:, 0])
  shown = lines(lower, "a")[0].get_ydata()
  # 2 s from the end of the warm-up of 10 steps; the lower body are joints 0 and 1.
  np.testing.assert_allclose(shown, speed[10:110, :2].max(1))


def test_the_response_shows_random_and_fixed_commands(results):
  result = copy.deepcopy(results["a"])
  told = {"command": [0.5, 0.0, 0.0], "velocity": [0.4, 0.1, 0.0]}
  mixed = {"command": [0.5, 0.2, 0.0], "velocity": [0.3, 0.1, 0.0]}
  result.metrics["commands"] = {"forward 0.5": told, "mixed": mixed}
  forward, sideways, _ = plots.response({"a": result}).axes
  curve = result.metrics["response"]["vx"]
  np.testing.assert_array_equal(lines(forward, "a")[0].get_xdata(), curve["command"])
  np.testing.assert_array_equal(lines(forward, "a")[0].get_ydata(), curve["mean"])
  # A dot for the command along this axis only, and none for the mixed one.
  dots = [
    line.get_xydata().tolist() for line in forward.lines if line.get_marker() == "o"
  ]
  assert dots == [[[0.5, 0.4]]]
  assert not [line for line in sideways.lines if line.get_marker() == "o"]


def test_who_is_told_to_stop_has_no_dot_in_the_response(results):
  """Its velocity is a mean over walking and standing."""
  result = copy.deepcopy(results["a"])
  stop = {"command": [0.5, 0.0, 0.0], "velocity": [0.2, 0.0, 0.0]}
  result.metrics["commands"] = {"stop": stop}
  forward = plots.response({"a": result}).axes[0]
  assert not [line for line in forward.lines if line.get_marker() == "o"]


def test_numbers_that_do_not_exist_are_left_out_of_figures():
  """All robots of one rollout fall before the warm-up is over: nothing counts there."""
  trajectory = make_trajectory(rollouts=2, envs=3, steps=60, warmup=10)
  trajectory.arrays["timed_out"][:] = trajectory.arrays["fell"][:] = False
  trajectory.arrays["fell"][5::8, :3] = True
  metrics = metrics_of_trajectory(trajectory)
  assert metrics["joints"]["hip"]["violations"]["joint_vel"] is None
  told = {"command": [0.5, 0.0, 0.0], "velocity": [None, None, None]}
  metrics["commands"] = {"forward 0.5": told}
  found = {"a": Result({}, trajectory.protocol, trajectory.layout, metrics)}
  (ax,) = plots.joint_violations(found).axes
  assert all(np.isnan(bar.get_width()) for bar in ax.patches)
  forward = plots.response(found).axes[0]
  dots = [line for line in forward.lines if line.get_marker() == "o"]
  assert all(np.isnan(dot.get_ydata()).all() for dot in dots)


def test_tracking_shows_command_pushes_and_the_middle_environment(trajectories):
  trajectory = make_trajectory(steps=500)
  trajectory.protocol = {
    **trajectory.protocol,
    "commands": "switching",
    "disturbed": True,
  }
  forward = plots.velocity_tracking({"a": trajectory}).axes[0]
  np.testing.assert_allclose(
    lines(forward, "a")[0].get_ydata(),
    np.median(trajectory.base_velocity[:, :, 0], axis=1),
    rtol=1e-5,
  )
  # Pushes at 4 s and 8 s of 10 s.
  pushes = [
    line.get_xdata()[0] for line in forward.lines if line.get_linestyle() == ":"
  ]
  assert pushes == [4.0, 8.0]


def test_tracking_shows_every_command_where_they_differ():
  one, other = make_trajectory(), make_trajectory()
  assert [line.get_label() for line in _forward(one, other)] == ["command", "a", "b"]
  other.command = other.command + 0.5
  shown = {line.get_label(): line.get_ydata() for line in _forward(one, other)}
  np.testing.assert_array_equal(shown["a: command"], one.command[:, 0, 0])
  np.testing.assert_array_equal(shown["b: command"], other.command[:, 0, 0])
  assert "command" not in shown


def _forward(one, other):
  return plots.velocity_tracking({"a": one, "b": other}).axes[0].lines


def test_distributions_have_the_limit_at_one(results):
  fig = plots.distributions(results)
  assert len(fig.axes) == 8
  for ax in fig.axes:
    assert lines(ax, "limit")[0].get_xdata()[0] == 1.0
    assert len(ax.patches) == 2


def test_joint_violations_are_percentages_by_joint(results):
  ax = plots.joint_violations({"a": results["a"]}, "joint_vel").axes[0]
  names = [text.get_text() for text in ax.get_yticklabels()]
  assert names == ["elbow", "hip", "knee"]  # By group: upper, then lower.
  share = results["a"].metrics["joints"]["elbow"]["violations"]["joint_vel"]
  assert ax.patches[0].get_width() == pytest.approx(100 * share)


def test_spectra_peak_at_the_motion(results):
  ax = plots.spectra(results).axes[0]
  line = lines(ax, "a")[0]
  peak = line.get_xdata()[line.get_ydata().argmax()]
  assert peak == pytest.approx(1.25, abs=0.4)  # The synthetic motion's frequency.


def test_training_curves_read_event_files(tmp_path):
  from torch.utils.tensorboard import SummaryWriter

  writer = SummaryWriter(str(tmp_path))
  for step, value in enumerate((1.0, 4.0, 9.0)):
    writer.add_scalar("Train/episode_length", value, step)
  for row in ("joint_jerk/legs", "tilt"):  # Whatever a task constrains.
    writer.add_scalar(f"Constraint/{row}/violation", 0.5, 0)
  writer.close()
  fig = plots.training_curves({"run": tmp_path})
  titles = [ax.get_title(loc="left") for ax in fig.axes[:3]]
  assert titles[1:] == [
    "Constraint/joint_jerk/legs/violation",
    "Constraint/tilt/violation",
  ]
  assert lines(fig.axes[2], "run")[0].get_marker() == "o"
  line = lines(fig.axes[0], "run")[0]
  assert list(line.get_xdata()) == [0, 1, 2] and list(line.get_ydata()) == [1, 4, 9]
  (tmp_path / "empty").mkdir()
  with pytest.raises(UserError, match="There are no training curves in .*empty"):
    plots.training_curves({"run": tmp_path / "empty"})


def test_an_unknown_quantity_is_refused(results, trajectories):
  with pytest.raises(UserError, match="Unknown quantity 'speed'"):
    plots.traces(trajectories, "speed")
  with pytest.raises(UserError, match="Unknown quantity 'speed'"):
    plots.joint_violations(results, "speed")


def test_a_trajectory_without_quantities_is_told_to_be_an_older_one():
  trajectory = make_trajectory(steps=20)
  with pytest.raises(
    UserError, match="of made up is an older one, without 'joint_vel'"
  ):
    plots.traces({"a": trajectory}, "joint_vel")
  with pytest.raises(UserError, match="Unknown quantity 'energy'"):
    trajectory.quantity("energy")
