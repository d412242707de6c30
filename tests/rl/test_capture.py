"""Recorded steps and updates do what eager ones do. All but the first need a GPU."""

import copy

import pytest
import torch

from decap.envs.constrained_env import ConstrainedEnv
from decap.rl import capture
from decap.rl.display import Stopwatch
from decap.rl.runner import Runner
from decap.runs import RunSpec, build_configs

NUM_ENVS = 256


def make_runner(num_envs: int = NUM_ENVS, method: str = "decap") -> Runner:
  env_cfg, agent = build_configs(RunSpec("g1-flat", method, num_envs=num_envs))
  env_cfg.seed = 1
  return Runner(ConstrainedEnv(env_cfg, "cuda:0"), agent)


@pytest.fixture(scope="module")
def runner():
  """A runner whose graphs are recorded, on their stream."""
  runner = make_runner()
  assert runner._graphs is not None
  with runner._graphs.stream():
    for _ in range(3):
      runner.iterate(Stopwatch())
    yield runner


def test_there_is_no_capture_without_a_gpu():
  reason = capture.why_not("cpu", [])
  assert reason is not None and "no GPU" in reason


@pytest.mark.gpu
def test_terms_that_wait_are_named():
  reason = capture.why_not("cuda:0", ["event kick", "command pose"])
  assert reason is not None and "event kick, command pose" in reason


@pytest.mark.gpu
def test_a_captured_step_agrees_with_an_eager_one(runner):
  saved, rng = runner.env.state_dict(), torch.cuda.get_rng_state()
  obs = {name: value.clone() for name, value in runner.obs.items()}
  storage = runner.alg.storage
  results = []
  for step in (runner.rollout_step, runner._graphs._step):
    runner.env.load_state_dict(saved)
    torch.cuda.set_rng_state(rng)
    for name, value in obs.items():
      runner.obs[name].copy_(value)
    storage.clear()
    with torch.no_grad():
      step()
    fields = (storage.actions, storage.rewards, storage.delta, storage.values)
    results.append([f[0].clone() for f in fields] + [runner.obs["critic"].clone()])
  storage.clear()
  for eager, captured in zip(*results, strict=True):
    error = (eager - captured).abs()
    # Atomic additions in the solver come in any order, and contacts amplify it.
    assert error.median() < 1e-5
    assert error.quantile(0.99) < 1e-2


@pytest.mark.gpu
def test_a_captured_update_agrees_with_an_eager_one(runner):
  alg, graphs = runner.alg, runner._graphs
  for _ in range(runner.cfg.num_steps_per_env):
    graphs._step()
  alg.begin_update()
  state = [*_tensors(alg)]
  before = [tensor.clone() for tensor in state]
  results = []
  for learn in (runner.learn_from_rollout, graphs._update):
    for tensor, value in zip(state, before, strict=True):
      tensor.data.copy_(value)
    learn()
    results.append([p.detach().clone() for p in alg.actor.parameters()])
  for start, eager, captured in zip(
    [p for p in before[: len(results[0])]], *results, strict=True
  ):
    change = (eager - start).norm()
    assert change > 0
    assert (eager - captured).norm() < 1e-2 * change


def _tensors(alg):
  yield from alg.actor.parameters()
  yield from alg.critic.parameters()
  yield from alg.actor.buffers()
  yield from alg.critic.buffers()
  for values in alg.optimizer.state.values():
    yield from values.values()
  yield alg.learning_rate


@pytest.mark.gpu
def test_a_limit_changed_between_replays_takes_effect(runner):
  runner.env.flush_log()
  runner.env.constraint_manager.set_limit("joint_vel/upper", 1e-6)
  runner._graphs._step()
  assert runner.env.flush_log()["Constraint/joint_vel/upper/violation"] == 1.0
  runner.env.constraint_manager.set_limit("joint_vel/upper", 1.5)
  runner.alg.storage.clear()


@pytest.mark.gpu
def test_a_command_range_changed_between_replays_takes_effect(runner):
  term = runner.env.command_manager.get_term("twist")
  ranges = copy.deepcopy(term.cfg.ranges)
  term.cfg.ranges.lin_vel_x = (3.0, 3.0)
  term.load_ranges()
  term.time_left.zero_()
  runner._graphs._step()
  moving = ~term.is_standing_env
  assert (term.command[moving, 0] == 3.0).all()
  term.cfg.ranges = ranges
  term.load_ranges()
  runner.alg.storage.clear()


@pytest.mark.gpu
def test_a_diverged_environment_is_named_without_a_wait(runner):
  runner.env.not_finite()
  runner.env.sim.data.qvel[7, 3] = float("nan")
  runner._graphs._step()
  assert runner.env.not_finite()["physics state"] == 7
  assert runner.obs["actor"].isfinite().all()
  runner.alg.storage.clear()


@pytest.mark.gpu
def test_memory_does_not_grow():
  runner = make_runner(16)
  runner.cfg.num_steps_per_env = 24
  with runner._graphs.stream():
    for _ in range(5):
      runner.iterate(Stopwatch())
    torch.cuda.synchronize()
    allocated = torch.cuda.memory_allocated()
    free, _ = torch.cuda.mem_get_info()
    for _ in range(2000):
      runner._graphs._step()
    for _ in range(50):
      runner.iterate(Stopwatch())
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= allocated
    assert free - torch.cuda.mem_get_info()[0] <= 64 * 2**20
