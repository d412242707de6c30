"""A made-up robot, rollouts of it and their results: no simulator is needed."""

import copy
from dataclasses import replace

import numpy as np
import torch

from decap.evaluation.layout import Layout
from decap.evaluation.metrics import Metrics, measure
from decap.evaluation.tables import group_results, make_tables
from decap.evaluation.trajectory import QUANTITY, SAMPLE_FIELDS, Sample, Trajectory

LAYOUT = Layout(
  joint_names=("hip", "knee", "elbow"),
  groups={"upper": (2,), "lower": (0, 1)},
  p_max={"upper": 0.5, "lower": 0.25},
  limits={
    "action_rate": {"upper": 5.0, "lower": 20.0},
    "joint_acc": {"upper": 20.0, "lower": 600.0},
    "joint_torque": {"upper": 4.0, "lower": 20.0},
    "joint_vel": {"upper": 1.5, "lower": 10.0},
  },
  action_scale=(0.5, 0.25, 0.4),
  control_dt=0.02,
  physics_dt=0.005,
  tracking_reward=(1.5, 0.25),
  segments=("torso", "head"),
)


def make_trajectory(
  rollouts=2, envs=3, steps=200, warmup=10, seed=0, size=1.0, layout=LAYOUT
):
  """Noisy sinusoids with some falls and a time-out in between."""
  rng = np.random.default_rng(seed)
  batch, joints = rollouts * envs, layout.num_joints
  shape = (steps, batch, joints)
  t = np.arange(steps)[:, None, None] * layout.control_dt
  phase = rng.uniform(0, 6, size=(1, batch, joints))
  wave = np.sin(2 * np.pi * 1.25 * t + phase)

  def noisy(amplitude, noise):
    return (size * (amplitude * wave + noise * rng.normal(size=shape))).astype(
      np.float32
    )

  fell = rng.random((steps, batch)) < 0.01
  timed_out = (rng.random((steps, batch)) < 0.005) & ~fell
  age = np.zeros((steps, batch), dtype=np.int64)
  for k in range(1, steps):
    done = fell[k - 1] | timed_out[k - 1]
    age[k] = np.where(done, 0, age[k - 1] + 1)
  velocity = noisy(2.0, 0.5)
  arrays = {
    "action": noisy(1.0, 0.1),
    "joint_pos": noisy(0.5, 0.0),
    "joint_vel": velocity,
    "joint_vel_before": velocity - noisy(0.2, 1.0) * np.float32(0.3),
    "joint_torque": noisy(8.0, 4.0),
    "base_velocity": rng.normal(0.3, 0.2, (steps, batch, 3)).astype(np.float32),
    "command": rng.uniform(-0.5, 1.0, (steps, batch, 3)).astype(np.float32),
    "contact": rng.random((steps, batch, 2)) < 0.6,
    "angular_velocity": rng.normal(0, 1, (steps, batch, 2, 3)).astype(np.float32),
    "base_position": rng.normal(0, 1, (steps, batch, 3)).astype(np.float32),
    "head_position": rng.normal(0, 0.01, (steps, batch, 3)).astype(np.float32),
    "fell": fell,
    "timed_out": timed_out,
    "age": age,
    "delta": rng.random((steps, batch)).astype(np.float32),
    "points": rng.normal(0, 0.3, (steps, batch, 4, 3)).astype(np.float32),
  }
  protocol = {
    "task": "synthetic",
    "rollouts": rollouts,
    "envs": envs,
    "steps": steps,
    "warmup": warmup,
    "commands": "random",
    "command": None,
    "disturbed": False,
    "push_interval_s": 4.0,
    "seed": seed,
  }
  rollout = tuple(i // envs for i in range(batch))
  skeleton = {"names": ["base", "hip", "knee", "elbow"], "parents": [-1, 0, 1, 0]}
  return Trajectory(layout, arrays, protocol, rollout, skeleton, {"name": "made up"})


def samples(trajectory):
  """The steps of a trajectory, one by one."""
  for t in range(trajectory.num_steps):
    step = {n: torch.from_numpy(array[t]) for n, array in trajectory.arrays.items()}
    names = [name for name in step if name.startswith(QUANTITY)]
    quantities = {name.removeprefix(QUANTITY): step[name] for name in names}
    yield Sample(**{name: step[name] for name in SAMPLE_FIELDS}, quantities=quantities)


def measured(trajectory):
  """With what an environment reports of every constrained quantity."""
  layout = trajectory.layout
  scale = torch.tensor(layout.action_scale)
  reported = {QUANTITY + name: [] for name in layout.limits}
  before = None
  for step, age in zip(samples(trajectory), trajectory.age, strict=True):
    first = torch.from_numpy(age == 0).unsqueeze(1)
    action = torch.where(first, step.action, before.action) if before else step.action
    values = measure(step, action, step.joint_vel, scale, layout)
    for name, steps in reported.items():
      steps.append(values[name.removeprefix(QUANTITY)].numpy())
    before = step
  arrays = {name: np.stack(steps) for name, steps in reported.items()}
  return replace(trajectory, arrays={**trajectory.arrays, **arrays})


def metrics_of_trajectory(trajectory):
  """What an evaluation of these environments tells."""
  rollouts = len(set(trajectory.rollout))
  envs = trajectory.num_envs // rollouts
  metrics = Metrics(trajectory.layout, rollouts, envs, trajectory.protocol["warmup"])
  for sample in samples(trajectory):
    metrics.add(sample)
  return metrics.result()


def result(template, method, rate, seed=1, **policy):
  """A result whose upper action rate is `rate` ± 0.25 over rollouts."""
  out = copy.deepcopy(template)
  out.policy = {"name": "run", "method": method, "seed": seed} | policy
  out.metrics["smoothness"]["upper"]["action_rate"] = {
    "mean": rate,
    "std": 0.25,
    "rollouts": [rate - 0.25, rate + 0.25],
  }
  return out


def tables_of(*results, labels=None, baseline=None):
  methods = group_results(results, labels or [None] * len(results))
  return make_tables(methods, baseline)
