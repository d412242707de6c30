"""Following, gait and posture of made-up robots whose answers are known."""

import math

import numpy as np
import pytest
import torch

from decap.evaluation.bins import Bins
from decap.evaluation.metrics import Metrics
from decap.evaluation.motion import Motion
from decap.evaluation.protocol import COMMANDS
from decap.evaluation.trajectory import SAMPLE_FIELDS, Sample
from tests.evaluation import reference
from tests.evaluation.synthetic import LAYOUT, make_trajectory, samples
from tests.evaluation.test_metrics import flatten

DT = 0.02


def sample(**changes):
  """One robot that stands with both feet on the ground."""
  zeros = torch.zeros(1, 3)
  values = dict.fromkeys(
    ("action", "joint_pos", "joint_vel", "joint_vel_before", "joint_torque"), zeros
  )
  values |= dict.fromkeys(
    ("base_velocity", "command", "base_position", "head_position"), zeros
  )
  values |= {"contact": (True, True), "angular_velocity": np.zeros((1, 3))}
  values |= {"fell": False, "timed_out": False} | changes
  rows = {}
  for name, value in values.items():
    tensor = torch.as_tensor(value)
    tensor = tensor.float() if tensor.is_floating_point() else tensor
    rows[name] = value if name not in changes and tensor.dim() == 2 else tensor[None]
  rows["angular_velocity"] = torch.as_tensor(values["angular_velocity"]).float()[None]
  return Sample(**rows)


def measure(samples, warmup=0, fixed=False):
  """Result of one robot as numbers; `fixed` for one of the robots with a command."""
  bins = Bins(0, 0, 1, 1) if fixed else Bins(1, 1)
  motion = Motion(bins, warmup, DT, 1, "cpu")
  age = 0
  for step in samples:
    motion.add(step, torch.tensor([age]), torch.tensor([True]))
    age = 0 if step.fell or step.timed_out else age + 1
  return {name: value.squeeze().tolist() for name, value in motion.result().items()}


def feet(step, offset, period=40, stance=22):
  """Contact of both feet by a clock of 0.8 s; the right one is `offset` steps ahead."""
  return [(step + ahead) % period < stance for ahead in (0, offset)]


def test_a_walker_follows_with_alternate_feet():
  command = (0.5, 0.0, 0.2)
  steps = [
    sample(command=command, base_velocity=command, contact=feet(t, 20))
    for t in range(400)
  ]
  result = measure(steps)
  assert result["followed"] == pytest.approx(1.0)
  assert result["followed_yaw"] == pytest.approx(1.0)
  # Each foot stands for 22 of 40 steps, both for 2 · 2 of them.
  assert result["double_support"] == pytest.approx(0.1)
  assert result["flight"] == 0.0
  assert result["correlation"] == pytest.approx((0.1 - 0.55**2) / (0.55 * 0.45))
  # One lift-off per foot in 0.8 s.
  assert result["lift_offs"] == pytest.approx(1.25)
  assert result["falls_per_minute"] == 0.0


def test_a_stander_follows_nothing_and_has_no_gait():
  result = measure([sample(command=(0.3, 0.0, 0.0)) for _ in range(100)])
  assert result["followed"] == 0.0
  assert result["double_support"] == 1.0
  assert math.isnan(result["correlation"])
  assert result["lift_offs"] == 0.0


def test_a_hopper_moves_both_feet_at_once():
  command = (1.0, 0.0, 0.0)
  steps = [
    sample(command=command, base_velocity=command, contact=feet(t, 0))
    for t in range(400)
  ]
  result = measure(steps)
  assert result["followed"] == pytest.approx(1.0)
  assert result["correlation"] == pytest.approx(1.0)
  assert result["flight"] == pytest.approx(0.45)


def test_a_faller_does_not_follow_around_its_fall():
  """It falls at step 149 of 300, with the right velocity throughout.

  Of the steps from 50 on, the second before the fall, 100 to 149, and the one after,
  150 to 199, count as told and not as followed: 150 of 250 steps follow.
  """
  command = (0.5, 0.0, 0.0)
  steps = [
    sample(command=command, base_velocity=command, fell=t == 149) for t in range(300)
  ]
  result = measure(steps, warmup=50)
  assert result["followed"] == pytest.approx(150 / 250)
  assert result["velocity"] == pytest.approx([0.5 * 150 / 250, 0.0, 0.0])
  assert result["falls_per_minute"] == pytest.approx(60 / (300 * DT))


def test_a_time_out_is_no_fall():
  command = (0.5, 0.0, 0.0)
  steps = [
    sample(command=command, base_velocity=command, timed_out=t == 149)
    for t in range(300)
  ]
  assert measure(steps, warmup=50)["followed"] == pytest.approx(1.0)


@pytest.mark.parametrize(
  ("velocity", "followed"),
  [((0.4, 0.3), 1.0), ((0.2, 0.15), 0.5), ((0.3, -0.4), 0.0), ((-0.4, -0.3), -1.0)],
)
def test_followed_is_the_share_of_the_commanded_velocity(velocity, followed):
  told = sample(command=(0.4, 0.3, 0.2), base_velocity=(*velocity, 0.1))
  # The second step is not told to move, and does not count.
  untold = sample(command=(0.05, 0.0, 0.0), base_velocity=(1.0, 1.0, 1.0))
  result = measure([told, untold])
  assert result["followed"] == pytest.approx(followed, abs=1e-6)
  assert result["followed_yaw"] == pytest.approx(0.5)


def test_nobody_follows_where_nobody_is_told_to_move():
  result = measure([sample()])
  assert math.isnan(result["followed"]) and math.isnan(result["followed_yaw"])


def test_standing_drifts_and_lifts_feet_only_after_the_first_second():
  """It moves 1 m in the first second, and then 3 cm to the left in another two."""
  steps = []
  for t in range(151):
    y = 0.0 if t < 50 else 1.0 + 0.03 * (t - 50) / 100
    lifts = t in (10, 20, 30, 120)
    steps.append(sample(base_position=(0.0, y, 0.7), contact=(not lifts, True)))
  result = measure(steps, warmup=50, fixed=True)
  assert result["drift"] == pytest.approx(0.015, rel=1e-4)
  # One lift-off of one foot in 101 steps.
  assert result["lift_offs"] == pytest.approx(1 / (2 * 101 * DT))


def test_gait_counts_a_robot_with_random_commands_only_when_told_to_move():
  steps = [sample(contact=(False, False))] * 5
  steps += [sample(command=(0.0, 0.0, 0.2), contact=(True, True))] * 5
  assert measure(steps)["double_support"] == 1.0
  assert measure(steps, fixed=True)["flight"] == 0.5


def test_angular_velocity_is_a_root_mean_square():
  steps = [sample(angular_velocity=[[3.0, 0.0, 4.0]]), sample()]
  x, y, z = measure(steps)["angular_velocity"]
  assert (x, y, z) == pytest.approx((3 / 2**0.5, 0.0, 4 / 2**0.5))


def test_jerk_is_the_third_derivative_of_the_head():
  """x = t³ has a third derivative of 6, which third differences give exactly."""
  steps = [sample(head_position=((t * DT) ** 3, 0.0, 1.2)) for t in range(50)]
  assert measure(steps)["head_jerk"] == pytest.approx(6.0, rel=0.02)
  # A reset moves the head, which is no jerk.
  steps = [sample(head_position=(t // 25, 0.0, 1.2), fell=t == 24) for t in range(50)]
  assert measure(steps)["head_jerk"] == 0.0


def test_the_response_shows_what_random_commands_achieve():
  motion = Motion(Bins(1, 2), 0, DT, 1, "cpu")
  for speed in (0.2, 0.4):
    one = sample(command=(0.52, 0.0, 0.0), base_velocity=(speed, 0.0, 0.0))
    two = sample(command=(-0.3, 0.0, 0.0), base_velocity=(-0.3, 0.0, 0.0))
    both = {
      name: torch.cat((getattr(one, name), getattr(two, name)))
      for name in SAMPLE_FIELDS
    }
    ones = torch.ones(2, dtype=torch.bool)
    motion.add(Sample(**both), torch.zeros(2, dtype=torch.long), ones)
  response = motion.response()["vx"]
  assert response["command"] == [-0.3, 0.5]
  assert response["mean"] == pytest.approx([-0.3, 0.3])
  assert response["std"] == pytest.approx([0.0, 0.1], abs=1e-6)


def test_the_response_leaves_out_falls():
  """A robot that falls over has speed, and follows nothing."""
  motion = Motion(Bins(1, 1), 0, DT, 1, "cpu")
  for t in range(100):
    speed = 0.2 if t < 50 else 2.0
    step = sample(command=(0.5, 0, 0), base_velocity=(speed, 0, 0), fell=t == 99)
    motion.add(step, torch.tensor([t]), torch.tensor([True]))
  response = motion.response()["vx"]
  assert response["mean"] == pytest.approx([0.2])


def test_commands_have_numbers_of_their_own():
  """Robots of each command, after those with random ones, against the reference."""
  robots, steps, warmup = 2, 250, 10
  batch = 4 + robots * len(COMMANDS)
  trajectory = make_trajectory(rollouts=1, envs=batch, steps=steps, warmup=warmup)
  a = trajectory.arrays
  told = np.repeat(np.array(list(COMMANDS.values()), np.float32), robots, 0)
  a["command"][:, 4:] = told
  metrics = Metrics(LAYOUT, 2, 2, warmup, per_command=robots)
  for step in samples(trajectory):
    metrics.add(step)
  result = metrics.result()
  assert list(result["commands"]) == list(COMMANDS)
  values = reference.quantities(a, LAYOUT, trajectory.age)
  for k, (name, ours) in enumerate(result["commands"].items()):
    envs = slice(4 + robots * k, 4 + robots * (k + 1))
    mine = {key: array[:, envs] for key, array in a.items()}
    theirs = reference.walking(
      mine, LAYOUT, mine["age"], warmup, (0,) * robots, fixed=True
    )
    flat = {f"gait/{key}": value for key, value in ours["gait"].items()}
    flat |= {key: ours["tracking"][key] for key in ("followed", "followed_yaw")}
    flat |= {key: ours[key] for key in ("head_jerk", "drift")}
    for axis in ("x", "norm"):
      flat[f"angular_velocity/{axis}"] = ours["angular_velocity"]["torso"][axis]
    for key, value in flat.items():
      value = math.nan if value is None else value
      assert value == pytest.approx(theirs[key], rel=2e-5, nan_ok=True), (name, key)
    fell = mine["fell"][:200] if name == "stop" else mine["fell"]
    assert fell.any()
    assert ours["falls_per_minute"] == pytest.approx(fell.sum() / (fell.size * DT / 60))
    valid = mine["age"] >= warmup
    rate = values["action_rate"][:, envs, 2]
    assert ours["smoothness"]["upper"]["action_rate"] == pytest.approx(
      rate[valid].mean(), rel=1e-5
    )
    above = (rate > LAYOUT.limits["action_rate"]["upper"])[valid]
    violation = ours["violations"]["upper"]["action_rate"]["any_joint"]
    assert violation == pytest.approx(above.mean())


def test_robots_with_commands_leave_the_others_alone():
  """Numbers over random commands are those of a batch without the further robots."""
  whole = make_trajectory(rollouts=1, envs=4 + len(COMMANDS), steps=300)
  alone = Metrics(LAYOUT, 2, 2, 10)
  joined = Metrics(LAYOUT, 2, 2, 10, per_command=1)
  for step in samples(whole):
    first = {name: getattr(step, name)[:4] for name in SAMPLE_FIELDS}
    alone.add(Sample(**first))
    joined.add(step)
  one, two = alone.result(), joined.result()
  assert one["histograms"] == two["histograms"]
  assert one["counted_share"] == two["counted_share"]
  assert one["response"] == two["response"]
  for name, value in flatten(one).items():
    if not name.startswith(("delta", "share")):  # Their running scale hears all.
      same = value if value is None else pytest.approx(value, rel=1e-6)
      assert flatten(two)[name] == same, name


@pytest.mark.parametrize(
  ("steps", "falls_at", "fallen"),
  [(199, [150], math.nan), (200, [150], 1.0), (300, [150], 1.0), (300, [150, 250], 1.0)]
  + [(400, [150], 0.5), (499, [150, 350, 450], 1.0), (1000, [150, 950], 0.4)],
)
def test_stops_count_when_they_are_seen_whole(steps, falls_at, fallen):
  """A robot walks for 2 s and stands for 2 s in turns; it falls in some of the turns."""
  motion = Motion(Bins(0, 0, len(COMMANDS), 1), 0, DT, 1, "cpu")
  robots = len(COMMANDS)
  one = {
    name: value.expand(robots, *value.shape[1:])
    for name, value in vars(sample()).items()
    if isinstance(value, torch.Tensor)
  }
  for t in range(steps):
    fell = torch.full((robots,), t in falls_at)
    step = Sample(**{**one, "fell": fell})
    motion.add(step, torch.full((robots,), t), torch.full((robots,), True))
  *others, stop = motion.result()["falls_per_minute"].tolist()
  assert others == pytest.approx([len(falls_at) / (steps * DT / 60)] * (robots - 1))
  assert stop * 4.0 / 60.0 == pytest.approx(fallen, nan_ok=True)
