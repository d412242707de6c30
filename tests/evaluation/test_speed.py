"""What measuring costs, against policy and environment alone."""

import time

import pytest
import torch

from decap.envs.build import make_env
from decap.evaluation.environment import evaluation_cfg
from decap.evaluation.metrics import Metrics
from decap.evaluation.policies import Policy, load_policy
from decap.evaluation.protocol import Protocol
from decap.evaluation.rollout import Rollout, evaluate
from decap.testing import waits
from tests.evaluation.synthetic import make_trajectory, samples


class Bare(Rollout):
  """The same loop without a measurement."""

  def take(self, sample):
    pass

  def follow(self, sample):
    pass


def network(device):
  """A policy of the usual size, with small actions: the robot stands for a while."""
  torch.manual_seed(0)
  sizes = (98, 512, 256, 128, 29)
  layers = []
  for rows, columns in zip(sizes, sizes[1:], strict=False):
    layers += [torch.nn.Linear(rows, columns), torch.nn.ELU()]
  mlp = torch.nn.Sequential(*layers[:-1]).to(device)
  return Policy(lambda obs: 0.3 * mlp(obs["actor"]), load_policy("stand").info)


def make_rollout(kind, protocol, device):
  cfg = evaluation_cfg(protocol)
  if kind is Bare:
    cfg.metrics = {}
  return kind(make_env(cfg, device), network(device), protocol)


def test_accumulation_never_waits_for_the_device():
  trajectory = make_trajectory(steps=3)
  metrics = Metrics(trajectory.layout, rollouts=2, envs=3, warmup=0)
  for sample in samples(trajectory):
    assert waits(lambda s=sample: metrics.accumulate(s)) == []


@pytest.mark.slow
def test_rate_on_the_cpu():
  """Processor time, the least of three each: other work on the machine comes and goes."""
  protocol = Protocol(rollouts=1, envs=256, steps=40, warmup=10, per_command=0)
  best = {Bare: float("inf"), Rollout: float("inf")}
  for _ in range(3):
    for kind in best:
      rollout = make_rollout(kind, protocol, "cpu")
      start = time.process_time()
      rollout.run()
      best[kind] = min(best[kind], time.process_time() - start)
      rollout.env.close()
  ratio = best[Bare] / best[Rollout]
  print(f"rate with metrics over rate without: {ratio:.3f}")
  assert ratio > 0.85


@pytest.mark.gpu
def test_rate_on_the_gpu():
  protocol = Protocol(steps=300)
  bare, measured = (
    make_rollout(kind, protocol, "cuda:0").run() for kind in (Bare, Rollout)
  )
  print(
    f"bare {bare:.2f} s, with metrics {measured:.2f} s, ratio {bare / measured:.3f}"
  )
  assert bare / measured > 0.9


@pytest.mark.gpu
def test_the_full_protocol_takes_less_than_thirty_seconds():
  start = time.perf_counter()
  evaluation = evaluate(network("cuda:0"), device="cuda:0", trajectory=1)
  total = time.perf_counter() - start
  print(f"rollout {evaluation.seconds:.1f} s, with start-up {total:.1f} s")
  assert evaluation.seconds < 30.0


@pytest.mark.gpu
def test_both_engines_measure_the_same():
  """One policy, C MuJoCo and MuJoCo Warp: means agree within the noise of rollouts.

  Trajectories diverge after a second, so means over environments are compared, within
  five standard errors of their difference and 2 % of their size.
  """
  protocol = Protocol(rollouts=8, envs=64, steps=200, warmup=20, per_command=0)
  results = [
    evaluate(network(device), protocol, device=device).result.metrics
    for device in ("cpu", "cuda:0")
  ]
  for group in ("upper", "lower"):
    for name in ("action_rate", "joint_acc", "joint_acc_20ms", "joint_vel", "energy"):
      cpu, gpu = (r["smoothness"][group][name] for r in results)
      error = ((cpu["std"] ** 2 + gpu["std"] ** 2) / protocol.rollouts) ** 0.5
      assert abs(cpu["mean"] - gpu["mean"]) < 5 * error + 0.02 * cpu["mean"], name
