"""Every algorithm on another device than the host's, without a GPU.

Tensors of torch's device "meta" have shapes and no values: none can be read back, and
none be combined with one of the host.
"""

from unittest import mock

import pytest
import torch

from decap.constraints import BodyGroupCfg, Composition, TerminationCfg
from decap.rl.build import build_algorithm
from decap.rl.config import AgentCfg, FeasibilityCfg, PolicyCfg, PpoCfg
from decap.rl.feasibility import Feasibility
from decap.rl.ppo import PPO
from decap.rl.stock_runner import same_device
from tests.rl.test_ppo import EVERY_ALGORITHM
from tests.rl.test_recipe import MIRRORS

AID = PpoCfg(survival=True, feasibility=FeasibilityCfg(), schedule="fixed")
RAMP = PpoCfg(survival=True, reward_rule="scale-clip", p_max_ramp=(0.2, 0.5))
RECIPE = PpoCfg(mirror_loss_coef=0.2, entropy_final=0.001)
HOST_BOOL = torch.Tensor.__bool__


def build(agent, cfg: PpoCfg, composition_device: str = "meta") -> PPO:
  names = [f"joint_{i}" for i in range(agent.num_actions)]
  groups = {
    "upper": BodyGroupCfg(("joint_[02]",), 0.5),
    "lower": BodyGroupCfg(("joint_1",), 0.25),
  }
  termination = TerminationCfg(rule="cat" if cfg.p_max_ramp else "decap")
  limits = {"rate": {"upper": 1.0, "lower": 2.0}}
  # A new object may read what it is given: all of it is in order here.
  with mock.patch.object(torch.Tensor, "__bool__", lambda x: x.is_meta or HOST_BOOL(x)):
    composition = Composition(
      limits, groups, names, termination, device=composition_device
    )
    alg = build_algorithm(
      AgentCfg(
        num_steps_per_env=agent.num_steps,
        policy=PolicyCfg(
          hidden_dims=(16, 8),
          init_std={"joint_[02]": 0.3, "joint_1": 1.0},
          std_growth=1.0,
        ),
        algorithm=cfg,
      ),
      {name: x.to("meta") for name, x in agent.make_obs(0).items()},
      agent.num_actions,
      names,
      agent.cost_names,
      agent.num_envs,
      "meta",
      action_groups={"upper": [0, 2], "lower": [1]},
      mirrors=MIRRORS if cfg.mirror_loss_coef else None,
      progress_names=("slow", "stepping"),
      feasibility=cfg.feasibility and Feasibility(cfg.feasibility, composition),
      composition=composition,
    )
  # The only thing that torch has for real devices alone.
  for name in ("optimizer", "multiplier_optimizer"):
    if hasattr(alg, name):
      getattr(alg, name).step = lambda: None
  alg.composition = composition  # ty: ignore[unresolved-attribute]
  return alg


def iterate(agent, alg) -> dict[str, torch.Tensor]:
  obs = {name: x.to("meta") for name, x in agent.make_obs(0).items()}
  none = torch.zeros(agent.num_envs, dtype=torch.bool, device="meta")
  for _ in range(agent.num_steps):
    alg.act(obs)
    q = torch.rand(agent.num_envs, agent.num_actions, device="meta")
    composition = alg.composition
    delta, _ = composition.decided(composition.probabilities(q))
    costs, quantities = composition.costs(q), composition.split(q)
    extras = {
      "time_outs": none,
      "fell": none,
      "progress": torch.zeros(2, 2, device="meta"),
      "constraints": {"delta": delta, "costs": costs, "quantities": quantities},
    }
    alg.process_env_step(obs, torch.zeros_like(none, dtype=torch.float), none, extras)
  alg.compute_returns(obs)
  log = alg.update()
  alg.between_iterations(0.3)
  return log


@pytest.mark.parametrize("cfg", [*EVERY_ALGORITHM, AID, RAMP, RECIPE])
def test_an_iteration_stays_on_its_device(agent, cfg):
  alg = build(agent, cfg)
  for _ in range(2):
    log = iterate(agent, alg)
  assert all(value.is_meta for value in log.values())
  state = [x for x in vars(alg).values() if isinstance(x, torch.Tensor)]
  assert all(x.is_meta for x in state)


def test_a_tensor_of_the_host_is_found(agent):
  with pytest.raises(RuntimeError, match="device"):
    iterate(agent, build(agent, AID, composition_device="cpu"))


@pytest.mark.parametrize(
  "a, b, same",
  [
    ("cpu", "cpu:0", True),
    ("cpu", "cuda:0", False),
    ("cuda:0", "cuda:1", False),
    ("cuda:1", "cuda:1", True),
    ("cuda", "cuda:1", True),  # The current one.
    ("cuda:0", "cuda", False),
  ],
)
def test_devices_are_one_by_type_and_number(a, b, same):
  assert same_device(torch.device(a), torch.device(b), current=lambda: 1) is same
