"""A made-up robot and rollouts of it, for tests that need no simulator."""

import numpy as np

from decap.evaluation.layout import Layout
from decap.evaluation.trajectory import Trajectory

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
