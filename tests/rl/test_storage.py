"""Storage: writing through the device's step index, and mini-batches."""

import torch

from decap.rl.storage import RolloutStorage


def make_storage(num_steps=3, num_envs=2) -> RolloutStorage:
  obs = {"actor": torch.zeros(num_envs, 4), "critic": torch.zeros(num_envs, 5)}
  return RolloutStorage(num_steps, num_envs, obs, 1, 2, "cpu")


def fill(storage: RolloutStorage) -> None:
  """Reward of step t and environment b is 10 t + b."""
  for step in range(storage.num_steps):
    value = 10.0 * step + torch.arange(storage.num_envs)
    storage.write_observations(
      {"actor": value[:, None].expand(-1, 4), "critic": -value[:, None].expand(-1, 5)}
    )
    storage.write(rewards=value, returns=value)
    storage.advance()


def test_steps_are_written_in_order():
  storage = make_storage()
  fill(storage)
  assert storage.rewards.tolist() == [[0.0, 1.0], [10.0, 11.0], [20.0, 21.0]]
  assert storage.observations["critic"][2, 1].tolist() == [-21.0] * 5


def test_a_full_storage_starts_over_and_a_part_of_one_can_be_cleared():
  storage = make_storage()
  fill(storage)
  assert storage.step.tolist() == [0]
  storage.advance()
  storage.clear()
  assert storage.step.tolist() == [0]


def test_writing_keeps_the_step_until_told():
  storage = make_storage()
  storage.write(rewards=torch.ones(2))
  storage.write(rewards=torch.full((2,), 5.0))
  assert storage.rewards.tolist() == [[5.0, 5.0], [0.0, 0.0], [0.0, 0.0]]


def test_booleans_are_stored_as_numbers():
  storage = make_storage()
  storage.write(dones=torch.tensor([True, False]))
  assert storage.dones[0].tolist() == [1.0, 0.0]


def test_gather_counts_environments_fastest():
  storage = make_storage()
  fill(storage)
  networks = {
    "policy": lambda obs: obs["actor"],
    "double": lambda obs: 2 * obs["actor"],
  }
  # (1, 1), (0, 0), (2, 0)
  batch = storage.gather(torch.tensor([3, 0, 4]), networks)
  assert batch.returns.tolist() == [11.0, 0.0, 20.0]
  assert batch.inputs["policy"][:, 0].tolist() == [11.0, 0.0, 20.0]
  assert batch.inputs["double"][:, 0].tolist() == [22.0, 0.0, 40.0]
  assert batch.cost_returns.shape == (3, 2)


def test_mini_batches_of_an_epoch_share_no_sample():
  storage = make_storage(num_steps=4, num_envs=6)
  fill(storage)
  torch.manual_seed(0)
  storage.shuffle()
  samples = storage.gather(storage.indices, {"critic": lambda obs: obs["critic"]})
  batches = [samples.part(i, 4) for i in range(4)]
  returns = [batch.returns.tolist() for batch in batches]
  assert [len(batch) for batch in returns] == [6] * 4
  together = sum(returns, [])
  expected = storage.returns.flatten().tolist()
  assert sorted(together) == sorted(expected) and together != expected
  for batch in batches:
    assert torch.equal(batch.inputs["critic"][:, 0], -batch.returns)
  # 24 = 5 · 4 + 4: the last four are in none.
  assert [len(samples.part(i, 5).actions) for i in range(5)] == [4] * 5


def test_the_permutation_is_the_one_of_rsl_rl():
  storage = make_storage(num_steps=4, num_envs=6)
  torch.manual_seed(5)
  storage.shuffle()
  torch.manual_seed(5)
  assert torch.equal(storage.indices, torch.randperm(24))
