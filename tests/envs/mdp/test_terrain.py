"""Height of the ground, starts on it, and the curriculum of its levels."""

import mujoco
import numpy as np
import pytest
import torch

from decap.envs import mdp
from decap.envs.constrained_env import ConstrainedEnv
from decap.envs.mdp.terrain import height_grid
from tests.envs.robots import make_env

NUM_ENVS = 64


@pytest.fixture(scope="module")
def env() -> ConstrainedEnv:
  return make_env("g1-rough", NUM_ENVS)


def ray_height(env, x: float, y: float) -> float:
  """Ground height by C MuJoCo's ray, from 10 m above; the robot is not in group 0."""
  model, data = env.sim.mj_model, env.sim.mj_data
  geom = np.zeros(1, dtype=np.int32)
  groups = np.array([1, 0, 0, 0, 0, 0], dtype=np.uint8)
  distance = mujoco.mj_ray(
    model, data, np.array([x, y, 10.0]), np.array([0.0, 0, -1]), groups, 1, -1, geom
  )
  assert distance > 0
  return 10.0 - distance


def test_heights_agree_with_rays(env):
  rng = np.random.default_rng(0)
  # 10 rows of 8 m along x, 5 columns along y, and some border.
  points = rng.uniform((-42, -22), (42, 22), size=(2000, 2))
  rays = np.array([ray_height(env, x, y) for x, y in points])
  heights = mdp.terrain_height(env, torch.tensor(points, dtype=torch.float32)).numpy()
  error = np.abs(heights - rays)
  assert rays.min() < -0.5 and rays.max() > 0.5  # It is rough ground.
  # Only within a cell of a stair's edge do the two differ.
  assert np.median(error) < 1e-3
  assert np.mean(error > 0.01) < 0.1
  assert error.max() < 0.11  # The highest step.


def test_height_keeps_the_shape_of_its_points(env):
  points = torch.zeros(3, 2, 2)
  assert mdp.terrain_height(env, points).shape == (3, 2)


def test_height_beyond_the_terrain_and_of_broken_states(env):
  points = torch.tensor([[100.0, 0.0], [-100.0, 5.0], [0.0, 100.0]])
  assert mdp.terrain_height(env, points).abs().max() < 1e-3
  broken = torch.tensor([[float("nan"), 0.0], [float("inf"), -float("inf")]])
  assert mdp.terrain_height(env, broken).isfinite().all()


def test_flat_ground_has_no_grid():
  flat = make_env(num_envs=1)
  assert height_grid(flat) is None
  assert mdp.terrain_height(flat, torch.ones(4, 2)).tolist() == [0.0] * 4


def test_robots_start_on_the_ground(env):
  """No foot below the surface, none high above it."""
  for seed in range(3):
    env.reset(seed=seed)
    robot = env.scene["robot"]
    site = robot.data.site_pos_w[:, robot.find_sites(("left_foot", "right_foot"))[0]]
    clearance = site[..., 2] - mdp.terrain_height(env, site[..., :2])
    # The sites are 2 mm below the soles in the home pose.
    assert clearance.min() > -0.01
    assert clearance.max() < 0.15


def test_base_height_is_relative_to_the_terrain(env):
  env.reset(seed=0)
  origin = env.scene.env_origins
  assert origin[:, 2].abs().max() > 0.1
  env.sim.data.qpos[:, :2] = origin[:, :2]
  env.sim.data.qpos[:, 2] = origin[:, 2] + 0.68
  env.sim.forward()
  ground = mdp.terrain_height(env, origin[:, :2])
  error = (origin[:, 2] + 0.68 - ground - 0.78).square()
  torch.testing.assert_close(mdp.base_height(env, 0.78), error, atol=1e-4, rtol=1e-3)
  assert not mdp.base_below(env, 0.2).any()


##
# Curriculum.
##


def walk(env, levels: int, distance: float, speed: float = 0.5) -> torch.Tensor:
  """Robots on one level that got so far with a command; returns the mask of half."""
  terrain = env.scene.terrain
  env.reset(seed=0)
  terrain.terrain_levels.fill_(levels)
  terrain.env_origins.copy_(terrain.terrain_origins[levels, terrain.terrain_types])
  env.sim.data.qpos[:, :3] = terrain.env_origins
  env.sim.data.qpos[:, 0] += distance
  env.sim.forward()
  env.episode_length_buf.fill_(900)
  env.command_manager.get_command("twist")[:] = torch.tensor([speed, 0.0, 0.0])
  return torch.arange(NUM_ENVS) % 2 == 0


@pytest.mark.parametrize(
  ("distance", "change"),
  [
    (4.5, 1),  # Beyond half of the 8 m patch.
    (3.0, -1),  # Less than half of 0.5 m/s · 20 s.
  ],
)
def test_levels_change_by_mask(env, distance, change):
  mask = walk(env, 4, distance)
  mdp.terrain_levels(env, mask, "twist")
  terrain = env.scene.terrain
  assert (terrain.terrain_levels[mask] == 4 + change).all()
  assert (terrain.terrain_levels[~mask] == 4).all()
  expected = terrain.terrain_origins[terrain.terrain_levels, terrain.terrain_types]
  assert torch.equal(terrain.env_origins, expected)


def test_level_stays_in_between(env):
  mask = walk(env, 4, 3.0, speed=0.2)  # Above half of 0.2 m/s · 20 s, below 4 m.
  mdp.terrain_levels(env, mask, "twist")
  assert (env.scene.terrain.terrain_levels == 4).all()


def test_first_level_is_the_lowest(env):
  mask = walk(env, 0, 0.0)
  statistics = mdp.terrain_levels(env, mask, "twist")
  assert (env.scene.terrain.terrain_levels == 0).all()
  assert statistics["mean"] == 0.0


def test_top_level_leads_to_a_random_one(env):
  mask = walk(env, 9, 4.5)
  mdp.terrain_levels(env, mask, "twist")
  levels = env.scene.terrain.terrain_levels
  assert len(levels[mask].unique()) > 4
  assert (levels[mask] <= 9).all()
  assert (levels[~mask] == 9).all()


def test_robots_that_did_not_start_keep_their_level(env):
  mask = walk(env, 4, 4.5)
  env.episode_length_buf.zero_()
  mdp.terrain_levels(env, mask, "twist")
  assert (env.scene.terrain.terrain_levels == 4).all()


def test_statistics_per_kind_of_ground(env):
  walk(env, 2, 0.0)
  terrain = env.scene.terrain
  terrain.terrain_levels[terrain.terrain_types == 3] = 6
  statistics = mdp.terrain_levels(env, torch.zeros(NUM_ENVS, dtype=torch.bool), "twist")
  assert statistics["stairs"] == 6.0
  assert statistics["slope"] == 2.0
  assert statistics["max"] == 6.0


def test_random_patches(env):
  walk(env, 0, 0.0)
  mask = torch.arange(NUM_ENVS) % 2 == 0
  mdp.randomize_terrain(env, mask)
  terrain = env.scene.terrain
  assert len(terrain.terrain_levels[mask].unique()) > 4
  assert (terrain.terrain_levels[~mask] == 0).all()
  expected = terrain.terrain_origins[terrain.terrain_levels, terrain.terrain_types]
  assert torch.equal(terrain.env_origins, expected)
