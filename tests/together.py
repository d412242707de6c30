"""A process of two that learn from halves of one made-up rollout (test_collective.py).

Run as ``together.py FILE`` by torchrun; by itself, it learns from the whole.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any

import torch
from torch import distributed as dist

from decap import collective
from decap.constraints import BodyGroupCfg
from decap.constraints.composition import Composition
from decap.rl.build import build_algorithm
from decap.rl.config import (
  AgentCfg,
  FeasibilityCfg,
  LagrangianCfg,
  PolicyCfg,
  PpoCfg,
)
from decap.rl.feasibility import Feasibility

ENVS, STEPS, JOINTS = 8, 6, 3
torch.set_num_threads(1)


def main(file: str) -> None:
  rank, world = (int(os.environ.get(n, d)) for n, d in (("RANK", 0), ("WORLD_SIZE", 1)))
  if world > 1:
    dist.init_process_group("gloo")
  part = slice(rank * ENVS // world, (rank + 1) * ENVS // world)
  decap = PpoCfg(
    survival=True,
    num_learning_epochs=2,
    num_mini_batches=1,
    feasibility=FeasibilityCfg(quantile=None),
  )
  costs = LagrangianCfg(num_learning_epochs=2, num_mini_batches=1)
  annealed = dataclasses.replace(decap, feasibility=FeasibilityCfg(quantile=0.7))
  methods = {"decap": decap, "annealed": annealed, "lagrangian": costs}
  results: dict[str, Any] = {name: learn(cfg, part) for name, cfg in methods.items()}
  values = {f"{m} {n}": v.tolist() for m, r in results.items() for n, v in r.items()}
  results["differ"] = collective.differences(values)
  if rank == 0:
    torch.save(results, file)
  if world > 1:
    dist.destroy_process_group()


def learn(cfg: PpoCfg, part: slice) -> dict[str, torch.Tensor]:
  """Two updates on this part of the environments; weights and statistics."""
  generator = torch.Generator().manual_seed(0)
  groups = {"all": BodyGroupCfg((".*",), 0.5)}
  names = [f"joint_{i}" for i in range(JOINTS)]
  composition = Composition({"rate": {"all": 1.0}}, groups, names)
  composition.shared = True
  aid = cfg.feasibility and Feasibility(cfg.feasibility, composition)
  torch.manual_seed(0)
  obs = {"actor": torch.randn(ENVS, 5, generator=generator)}
  alg = build_algorithm(
    AgentCfg(
      num_steps_per_env=STEPS, policy=PolicyCfg(hidden_dims=(8,)), algorithm=cfg
    ),
    {"actor": obs["actor"][part]},
    JOINTS,
    names,
    ("rate/all",),
    part.stop - part.start,
    "cpu",
    feasibility=aid,
  )
  for _ in range(2):
    for _ in range(STEPS):
      alg.act({"actor": obs["actor"][part]})
      q = 2.0 * torch.rand(ENVS, JOINTS, generator=generator)[part]
      rewards = torch.randn(ENVS, generator=generator)[part]
      dones = (torch.rand(ENVS, generator=generator) < 0.2)[part]
      noise = torch.randn(ENVS, JOINTS, generator=generator)[part]
      # The same actions, whoever draws them.
      st = alg.storage
      st.write(actions=noise, log_prob=alg.actor.get_output_log_prob(noise))
      extras = {
        "constraints": {
          "delta": composition.probabilities(q).amax(1).detach(),
          "quantities": {"rate": q},
          "costs": composition.costs(q),
        }
      }
      alg.process_env_step(obs, rewards, dones, extras)
      obs = {"actor": torch.randn(ENVS, 5, generator=generator)}
    alg.compute_returns({"actor": obs["actor"][part]})
    alg.update()
    alg.between_iterations(0.5)
  out = {"largest": composition.scale.value, "achieved": alg.progress.achieved}
  out["normaliser"] = alg.actor.obs_normalizer.mean  # ty: ignore
  out["count"] = alg.actor.obs_normalizer.count  # ty: ignore
  for name, net in alg.networks.items():
    out[name] = torch.cat([p.detach().flatten() for p in net.parameters()])
  if "cost_critic" in out:
    # Returns of costs are centred around their critic: rounding is all that the gradient
    # of its last bias has, and Adam makes whole steps of it.
    out["cost_critic"] = out["cost_critic"][:-1]
  if aid:
    out |= aid.state_dict()
  if hasattr(alg, "multipliers"):
    out["multipliers"], out["cost_rates"] = alg.multipliers, alg.cost_rates
  return out


if __name__ == "__main__":
  main(sys.argv[1])
