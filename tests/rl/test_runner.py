"""The training loop: exact resume, reproducible seeds, clean interrupts, warnings."""

import contextlib
import dataclasses
import math
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mjlab.managers import RewardTermCfg

from decap.constraints.composition import ConstraintRow
from decap.envs.build import make_env
from decap.errors import UserError
from decap.methods import METHODS
from decap.rl import capture, checkpoint_files, warnings, watching
from decap.rl.build import cost_columns
from decap.rl.config import NIpoCfg, PpoCfg
from decap.rl.display import Stopwatch
from decap.rl.runner import Runner
from decap.runs import RunSpec, build_configs
from decap.testing import waits

SMALL = (
  "--agent.policy.hidden-dims",
  "(32,16)",
  "--agent.num-steps-per-env",
  "6",
  "--agent.save-interval",
  "1000",
)


def _spec(method: str = "decap", task: str = "g1-flat", **changes: int) -> RunSpec:
  spec = RunSpec(task, method, num_envs=6, iterations=6, overrides=SMALL)
  return dataclasses.replace(spec, **changes)


def _runner(
  spec: RunSpec, run_dir: Path | None = None, threads: int = 0, **options
) -> Runner:
  env_cfg, agent_cfg = build_configs(spec)
  env_cfg.num_threads = threads
  env = make_env(env_cfg, "cpu")
  return Runner(env, agent_cfg, run_dir, **options)


def _stop_at(last: int):
  return lambda iteration, log: iteration == last


def _flat(state, path="") -> dict[str, object]:
  """All leaves of a nested state by path."""
  if isinstance(state, dict):
    items = state.items()
  elif isinstance(state, (list, tuple)):
    items = enumerate(state)
  else:
    return {path: state}
  leaves: dict[str, object] = {}
  for key, value in items:
    leaves.update(_flat(value, f"{path}/{key}"))
  return leaves


def _assert_same(a: Runner, b: Runner) -> None:
  first, second = _flat(a.state_dict()), _flat(b.state_dict())
  assert first.keys() == second.keys()
  for path, value in first.items():
    if isinstance(value, torch.Tensor):
      assert torch.equal(value, second[path]), path  # ty: ignore
    else:
      assert value == second[path], path


def _check_exact_resume(spec: RunSpec, tmp_path: Path) -> None:
  whole = _runner(spec)
  assert whole.learn()
  part = _runner(spec, tmp_path, on_iteration=_stop_at(3))
  assert not part.learn()
  assert checkpoint_files.resolve(tmp_path).name == "model_3.pt"
  # Whatever the number of the engine's threads. That of the update matters: a sum in
  # parts is another sum, on some processors even for networks as small as these.
  threads = 1 if whole.env.sim.num_threads > 1 else 2
  rest = _runner(spec, threads=threads)
  assert rest.env.sim.num_threads == threads
  rest._update_threads = whole._update_threads
  torch.rand(7)  # Someone else's random numbers in between.
  rest.resume(checkpoint_files.resolve(tmp_path))
  assert rest.iteration == 3
  assert rest.learn()
  _assert_same(whole, rest)


def test_three_and_three_iterations_are_six_bit_for_bit(tmp_path):
  _check_exact_resume(_spec(), tmp_path)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_and_logs_the_same_constraints(method):
  logs = []
  runner = _runner(
    _spec(method, iterations=2, num_envs=4),
    on_iteration=lambda iteration, log: logs.append(log),
  )
  before = [p.detach().clone() for p in runner.alg.actor.parameters()]
  assert runner.learn()
  changed = [
    not torch.equal(p, q)
    for p, q in zip(before, runner.alg.actor.parameters(), strict=True)
  ]
  assert all(changed)
  assert all(map(math.isfinite, logs[-1].values()))
  expected = {
    f"Constraint/{quantity}/{group}/{statistic}"
    for quantity in ("action_rate", "joint_acc", "joint_torque", "joint_vel")
    for group in ("upper", "lower")
    for statistic in ("mean", "max", "violation")
  }
  assert expected <= logs[-1].keys()


def test_a_finite_horizon_has_no_value_after_it():
  rewards = {}
  for finite in (False, True):
    spec = _spec("whole-body-rl")
    options = ("--env.is-finite-horizon", str(finite), "--env.episode-length-s", "0.04")
    runner = _runner(dataclasses.replace(spec, overrides=SMALL + options))
    with torch.no_grad():
      runner.rollout_step()
      runner.rollout_step()  # Two steps are an episode.
    storage = runner.alg.storage
    assert storage.dones[:2, 0].tolist() == [0.0, 1.0]
    rewards[finite] = storage.rewards[:2, 0]
    # The end of time is no fall, whatever the horizon.
    assert runner.alg.progress.sums[-1].tolist() == [12.0, 12.0]
  value = runner.alg.gamma * storage.values[1, 0]
  assert value.abs() > 1e-3
  torch.testing.assert_close(
    rewards[False] - rewards[True], torch.stack((torch.zeros_like(value), value))
  )


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in METHODS if name != "decap"])
def test_every_method_resumes_bit_for_bit(method, tmp_path):
  _check_exact_resume(_spec(method), tmp_path)


@pytest.mark.slow
def test_rough_ground_resumes_bit_for_bit(tmp_path):
  _check_exact_resume(_spec(task="g1-rough"), tmp_path)


def test_the_first_iteration_is_logged_alone(tmp_path):
  """Steps that fit the normalisers had another p_max: CaT's rises from a fifth."""
  logs = []
  runner = _runner(
    _spec("cat", iterations=1), tmp_path, on_iteration=lambda _, log: logs.append(log)
  )
  assert runner.learn()
  runner.env.close()
  (log,) = logs
  assert log["Constraint/delta"] > 0.0
  assert log["Constraint/delta_applied"] == pytest.approx(log["Constraint/delta"])


def test_interrupts_infeasible_limits_and_foreign_policies(
  tmp_path, monkeypatch, capsys
):
  monkeypatch.setattr(warnings, "INFEASIBLE_AFTER", 2)
  interrupts = []

  def interrupt(iteration, log):
    if iteration == 2:
      os.kill(os.getpid(), signal.SIGINT)
      interrupts.append(iteration)

  # One environment for all: building it takes longest.
  runner = _runner(_spec(iterations=4), tmp_path, on_iteration=interrupt)
  runner.env.constraint_manager.set_limit("joint_torque/lower", 1e-3)
  handler = signal.getsignal(signal.SIGINT)
  assert not runner.learn()
  assert signal.getsignal(signal.SIGINT) is handler
  assert interrupts == [2] and runner.iteration == 2
  assert checkpoint_files.resolve(tmp_path).name == "model_2.pt"
  out = capsys.readouterr().out
  assert "Stopping after this iteration" in out
  (warning,) = [w for w in out.splitlines() if "joint_torque/lower was exceeded" in w]
  assert "at every step of the last 2 iterations" in warning
  composition = runner.env.constraint_manager.composition
  row = composition.rows[composition.row_names.index("joint_torque/lower")]
  first = composition.columns["joint_torque"].start
  joints = [column - first for column in row.columns]
  peak = runner._quantities["joint_torque"][:, joints].amax(1)
  low, middle, high = np.quantile(peak.numpy(), (0.05, 0.5, 0.95))
  assert low < middle < high
  values = f"{low:.3g}, {middle:.3g}, {high:.3g}"
  assert f"{values} at the quantiles 0.05, 0.5, 0.95." in warning

  def twice(iteration, log):
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)

  runner._stop, runner._on_iteration = False, twice
  with pytest.raises(KeyboardInterrupt):
    runner.learn()
  assert signal.getsignal(signal.SIGINT) is handler

  weights = {k: v.clone() for k, v in runner.alg.actor.state_dict().items()}
  normaliser = runner.alg.actor.get_buffer("obs_normalizer._mean")
  with torch.no_grad():
    for tensor in (*runner.alg.actor.parameters(), normaliser):
      tensor.add_(1.0)
  runner.init_from(checkpoint_files.resolve(tmp_path))
  saved = torch.load(tmp_path / "checkpoints" / "model_2.pt", weights_only=True)
  for name, value in runner.alg.actor.state_dict().items():
    assert torch.equal(value, saved["actor_state_dict"][name])
    assert value.shape == weights[name].shape
  saved["actor_state_dict"]["mlp.0.weight"] = torch.zeros(3, 3)
  torch.save(saved, tmp_path / "other.pt")
  sentence = "does not fit this task and agent: mlp.0.weight of its actor is 3 × 3, not"
  for start in (runner.init_from, runner.resume):
    with pytest.raises(UserError, match=sentence):
      start(tmp_path / "other.pt")


def test_a_run_leaves_curves_and_the_newest_checkpoints(tmp_path):
  from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

  spec = _spec(iterations=3, num_envs=2)
  runner = _runner(spec, tmp_path)
  runner.cfg.save_interval, runner.cfg.keep_checkpoints = 1, 2
  assert runner.learn()
  assert [i for i, _ in checkpoint_files.list_checkpoints(tmp_path)] == [2, 3]
  events = EventAccumulator(str(tmp_path))
  events.Reload()
  tags = events.Tags()["scalars"]
  for tag in ("Constraint/delta", "Constraint/joint_acc/upper/violation", "Loss/value"):
    assert [e.step for e in events.Scalars(tag)] == [1, 2, 3]
  assert {"Perf/total_fps", "Policy/learning_rate"} <= set(tags)


def test_saving_by_time_and_the_best_policy(tmp_path, monkeypatch):
  scores = iter((0.1, 0.8, 0.3))
  shown = []

  def evaluate(actor):
    actions = actor({"actor": torch.zeros(1, runner.obs["actor"].shape[1])})
    torch.manual_seed(3)  # Someone else's random numbers.
    return {"score": next(scores), "followed": 0.25, "size": float(actions.shape[1])}

  runner = _runner(
    _spec(iterations=3, num_envs=2),
    tmp_path,
    make_probe=lambda: evaluate,
    on_iteration=lambda iteration, log: shown.append(log.get("Eval/size")),
  )
  runner.cfg.eval_interval = runner.watcher._interval = 1
  monkeypatch.setattr(watching, "SHARE", 1e9)
  runner.cfg.save_every_s = 1e-9
  assert runner.learn()
  assert shown == [29.0, 29.0, 29.0]
  # Every iteration is late.
  assert [i for i, _ in checkpoint_files.list_checkpoints(tmp_path)] == [1, 2, 3]
  best = torch.load(tmp_path / "checkpoints" / "best.pt", weights_only=True)
  assert best["iter"] == 2 and best["watcher"]["best_score"] == 0.8
  # Training is the one without evaluations, bit for bit.
  alone = _runner(_spec(iterations=3, num_envs=2))
  assert alone.learn()
  alone.watcher.load_state_dict(runner.watcher.state_dict())
  _assert_same(runner, alone)


def test_an_existing_policy_keeps_its_normaliser_and_a_new_critic_gets_one(tmp_path):
  teacher = _runner(_spec(iterations=1, num_envs=4), tmp_path)
  assert teacher.learn()
  samples = 4 * 6
  # One rollout for the normalisers, one for the update.
  assert int(teacher.alg.actor.obs_normalizer.count) == 2 * samples
  expected = teacher.alg.actor.obs_normalizer.mean

  student = _runner(_spec("ppo-lagrangian", iterations=1, num_envs=4))
  student.init_from(checkpoint_files.resolve(tmp_path))
  student.fit_normalisers()
  assert torch.equal(student.alg.actor.obs_normalizer.mean, expected)
  counts = [int(net.obs_normalizer.count) for net in student.alg.networks.values()]
  assert counts == [2 * samples, 2 * samples, samples]

  # Nothing is new: not even a step is taken.
  steps = student.env.common_step_counter
  student.fit_normalisers()
  assert student.env.common_step_counter == steps


def test_updates_on_a_cpu_use_its_cores_and_rollouts_do_not(monkeypatch):
  runner = _runner(_spec())
  threads = []
  learn, step = runner.alg.learn, runner.rollout_step
  monkeypatch.setattr(runner, "_update_threads", 2)
  monkeypatch.setattr(
    runner.alg, "learn", lambda: threads.append(torch.get_num_threads()) or learn()
  )
  monkeypatch.setattr(
    runner, "rollout_step", lambda: threads.append(torch.get_num_threads()) or step()
  )
  runner.iterate(Stopwatch("cpu"))
  assert threads == [1] * runner.cfg.num_steps_per_env + [2]
  assert torch.get_num_threads() == 1


def test_a_stop_at_the_last_iteration_is_a_finished_run():
  assert _runner(_spec(iterations=2, num_envs=2), on_iteration=_stop_at(2)).learn()


def test_a_term_that_waits_is_named_and_runs_eagerly(capsys):
  def height(env):
    value = env.sim.data.qpos[:, 2]
    return value * (value.mean().item() > 0)

  env_cfg, agent_cfg = build_configs(_spec(num_envs=2))
  env_cfg.rewards["height"] = RewardTermCfg(func=height, weight=1.0)
  runner = Runner(make_env(env_cfg, "cpu"), agent_cfg)
  runner.graphs = capture.Graphs(runner)
  runner._run_eagerly_if_a_step_waits()
  assert runner.graphs is None
  assert int(runner.alg.storage.step) == 0
  line = height.__code__.co_firstlineno + 2
  assert f"test_runner.py:{line}" in capsys.readouterr().out

  runner = _runner(_spec(num_envs=2))
  runner.graphs = capture.Graphs(runner)
  runner._run_eagerly_if_a_step_waits()
  assert runner.graphs is not None


@pytest.mark.parametrize("method", ["decap", "cat", "lcp", "n-ipo", "ppo-lagrangian"])
def test_nothing_that_is_recorded_waits(method):
  """Step with resets and update, with all that a method has in force."""
  runner = _runner(_spec(method, num_envs=4))
  runner.iterate(Stopwatch("cpu"))
  runner.env.episode_length_buf[:2] = int(runner.env.max_episode_length)
  with torch.no_grad():
    assert waits(runner.rollout_step) == []
  assert waits(runner.learn_from_rollout) == []
  assert waits(lambda: runner.alg.between_iterations(0.5)) == []


def test_a_new_stream_means_new_recordings(monkeypatch):
  """A recording belongs to its stream and to memory that a resume may move."""
  streams = iter(("first", "second"))

  @contextlib.contextmanager
  def own_stream(sim):
    yield next(streams)

  monkeypatch.setattr(capture, "own_stream", own_stream)
  graphs = capture.Graphs(SimpleNamespace(env=SimpleNamespace(sim=None)))  # ty: ignore
  for stream in ("first", "second"):
    with graphs.stream():
      assert graphs._stream == stream
      assert (graphs.step, graphs.update, graphs._warm) == (None, None, False)
      graphs.step = graphs.update = stream  # ty: ignore
      graphs._warm = True


def test_a_quantitys_cost_is_that_of_any_of_its_groups():
  runner = SimpleNamespace(_cost_index=[torch.tensor([0, 1]), torch.tensor([2])])
  costs = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
  merged = Runner._costs(runner, costs)  # ty: ignore[invalid-argument-type]
  assert merged.tolist() == [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]


def test_costs_are_merged_by_quantity():
  names = (("rate", "upper"), ("rate", "lower"), ("tilt", None))
  rows = [ConstraintRow(*name, columns=(0,), limit=1.0) for name in names]
  assert cost_columns(rows, NIpoCfg(costs="terms")) == {"rate": [0, 1], "tilt": [2]}
  single = {"rate/upper": [0], "rate/lower": [1], "tilt": [2]}
  assert cost_columns(rows, NIpoCfg()) == cost_columns(rows, PpoCfg()) == single
