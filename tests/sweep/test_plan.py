"""Sweep files: expansion, names, and what is refused."""

import hashlib
from pathlib import Path

import pytest

from decap.errors import UserError
from decap.options import machine
from decap.runs import RunSpec
from decap.sweep import sections
from decap.sweep.plan import make_plan, option_tokens, read_plan
from decap.sweep.sections import seconds, tokens
from decap.tasks import ITERATIONS

ROOT = Path(__file__).parents[2]
BASE = {"task": "g1-flat", "method": "decap", "iterations": 10, "num-envs": 64}


def test_every_combination_is_a_run():
  plan = make_plan({**BASE, "method": ["decap", "cat"], "seed": [1, 2, 3]})
  assert [run.name for run in plan.runs] == [
    "g1-flat_decap_s1",
    "g1-flat_decap_s2",
    "g1-flat_decap_s3",
    "g1-flat_cat_s1",
    "g1-flat_cat_s2",
    "g1-flat_cat_s3",
  ]
  assert plan.runs[4].spec == RunSpec(
    task="g1-flat", method="cat", seed=2, num_envs=64, iterations=10
  )


def test_grid_multiplies_and_overrides_stay():
  plan = make_plan(
    {
      **BASE,
      "overrides": {"agent.save-interval": 5},
      "grid": {"env.termination.kappa": [2, 3], "env.termination.rho": [0.5, 0.7]},
    }
  )
  assert len(plan.runs) == 4
  run = plan.runs[1]
  assert run.label == "kappa=2_rho=0.7"
  assert run.name == "g1-flat_decap_kappa=2_rho=0.7_s1"
  assert run.spec.overrides == (
    *("--agent.save-interval", "5"),
    *("--env.termination.kappa", "2"),
    *("--env.termination.rho", "0.7"),
  )


def test_blocks_change_the_common_keys():
  plan = make_plan(
    {
      **BASE,
      "seed": [1, 2],
      "overrides": {"agent.save-interval": 5},
      "runs": [
        {"method": "cat"},
        {"name": "short", "iterations": 3, "overrides": {"env.termination.rho": 0.5}},
      ],
    }
  )
  assert [run.name for run in plan.runs] == [
    "g1-flat_cat_s1",
    "g1-flat_cat_s2",
    "g1-flat_decap_short_s1",
    "g1-flat_decap_short_s2",
  ]
  assert plan.runs[0].iterations == 10
  assert plan.runs[2].iterations == 3
  assert plan.runs[2].spec.overrides == (
    *("--agent.save-interval", "5"),
    *("--env.termination.rho", "0.5"),
  )


def test_steps_of_an_iteration():
  run = make_plan(BASE).runs[0]
  assert run.steps_per_iteration == 64 * 24
  run = make_plan({**BASE, "overrides": {"agent.num-steps-per-env": 8}}).runs[0]
  assert run.steps_per_iteration == 64 * 8
  run = make_plan({**BASE, "overrides": {"agent.num-steps-per-env": "many"}}).runs[0]
  assert run.steps_per_iteration == 64 * 24


def test_options_are_written_as_the_command_line_reads_them():
  tokens = option_tokens(
    {"agent.policy.hidden_dims": [64, 32], "agent.algorithm.gamma": 0.9}
  )
  assert tokens == (
    *("--agent.policy.hidden-dims", "(64, 32)"),
    *("--agent.algorithm.gamma", "0.9"),
  )


@pytest.mark.parametrize(
  ("text", "expected"),
  [("90", 90.0), ("90s", 90.0), ("40m", 2400.0), ("2 min", 120.0), ("1.5h", 5400.0)],
)
def test_durations(text, expected):
  assert seconds(text) == expected


def test_what_a_file_does_not_say_is_as_in_train():
  plan = make_plan({"task": "g1-flat", "num-envs": None})
  plan.settle(("cpu",), 1)
  spec = plan.runs[0].spec
  assert (spec.method, spec.seed, spec.iterations, spec.num_envs) == (
    *("decap", 1, ITERATIONS, 256),
  )
  plan = make_plan({"task": "g1-flat", "num-envs": 8})
  plan.settle(("cpu",), 1)
  assert plan.runs[0].spec.num_envs == 8


def test_evaluation_options():
  assert (
    make_plan(BASE).evaluate == {} == make_plan({**BASE, "evaluate": True}).evaluate
  )
  assert make_plan({**BASE, "evaluate": False}).evaluate is False
  plan = make_plan({**BASE, "evaluate": {"quick": True, "seed": 3, "disturbed": False}})
  assert list(tokens(plan.evaluate)) == ["--quick", "--seed", "3"]
  assert plan.evaluation_label("g1-flat") == ""
  options = {"disturbed": True, "command": [0.5, 0, -0.2], "task": "g1-rough"}
  plan = make_plan({**BASE, "evaluate": options})
  assert plan.evaluation_label("g1-rough") == "vx0.5-yaw-0.2-disturbed"
  assert plan.evaluation_label("g1-flat") == "g1-rough-vx0.5-yaw-0.2-disturbed"


def test_an_evaluation_is_read_once_and_asks_nothing_of_a_login_node(monkeypatch):
  monkeypatch.setattr(machine, "_available_memory", lambda: 10**6)
  monkeypatch.setattr(machine, "num_gpus", lambda: 0)
  plan = make_plan({**BASE, "evaluate": {"envs": 512, "disturbed": True}})
  monkeypatch.setattr(sections, "read", None)
  assert plan.evaluation_label("g1-flat") == "disturbed"
  assert plan.evaluation_label("g1-rough") == "disturbed"
  with pytest.raises(UserError, match="^'evaluate': 3008 environments need at least"):
    plan.evaluation.settle("cpu")  # 5 · 512 + 14 · 32.
  plan.evaluation.settle("cuda:0")


def test_limits_of_the_evaluation_are_found_beside_the_file(tmp_path):
  limits = tmp_path / "limits.yaml"
  limits.write_text("joint_vel: {upper: 2.0, lower: 12.0}")
  plan = make_plan({**BASE, "evaluate": {"limits": "limits.yaml"}}, tmp_path)
  assert list(tokens(plan.evaluate)) == ["--limits", str(limits)]
  with pytest.raises(UserError, match="Cannot read the limits file"):
    make_plan({**BASE, "evaluate": {"limits": "none.yaml"}}, tmp_path)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"methods": ["decap"]}, "unknown key 'methods'"),
    ({"method": "decup"}, "Unknown method 'decup'"),
    ({"task": "g2"}, "Unknown task 'g2'"),
    ({"seed": [1, 1]}, "two runs are called 'g1-flat_decap_s1'"),
    ({"seed": -1}, "'seed' must be from 0 to below 2.32, .*, not -1"),
    ({"iterations": "many"}, "'iterations' must be a whole number, not 'many'"),
    ({"task": None}, "'task' is missing"),
    ({"seed": 2**32}, "'seed' must be from 0 to .*, not 4294967296"),
    ({"num-envs": 0}, "'num-envs' must be at least 1, not 0"),
    ({"overrides": {"kappa": 3}}, "'kappa' must begin with 'env.' or 'agent.'"),
    ({"runs": {"method": "cat"}}, "'runs' must be a list"),
    ({"runs": [{"jobs": 3}]}, "unknown key 'jobs'"),
    ({"cluster": {"time": "soon"}}, "'soon' is no duration"),
    ({"cluster": {"time": "0s"}}, "'0s' is no duration"),
    ({"cluster": {"time": "-1m"}}, "'-1m' is no duration"),
    ({"steps-per-s": -1}, "'steps-per-s' must be above 0"),
    ({"evaluate": "yes"}, "'evaluate' must be true, false"),
    (
      {"method": ["cat"], "grid": {"env.termination.kappa": [2]}},
      "Method 'cat' does not use --env.termination.kappa",
    ),
    (
      {"grid": {"agent.policy.init-std": ["9" * 300]}},
      "999' is too long for a folder's name: give its values as 'overrides' of a block",
    ),
    ({"feasibility": "cap"}, "unknown key 'feasibility'"),
    ({"blind": "yes"}, "'blind' must be true or false, not 'yes'"),
    ({"seed": True}, "'seed' must be whole numbers, not 'True'"),
    ({"backend": "isaac"}, "'backend' must be one of auto, warp, native, not 'isaac'"),
    ({"evaluate": {"rolouts": 3}}, "'evaluate': unknown key 'rolouts' .there are"),
    ({"evaluate": {"rollouts": 0}}, "'rollouts' must be at least 1"),
    ({"evaluate": {"envs": "many"}}, "must be a whole number, not 'many'"),
    ({"evaluate": {"limits": "no.yaml"}}, "Cannot read the limits file no.yaml"),
    ({"evaluate": {"device": "cpu"}}, "'evaluate' takes no 'device'"),
    (
      {"runs": [{"name": "short", "iterations": 3}, {"name": "long"}]},
      "'g1-flat_decap_short_s1' and 'g1-flat_decap_long_s1' are one run",
    ),
  ],
)
def test_what_is_wrong_is_said(change, message):
  with pytest.raises(UserError, match=message):
    make_plan({**BASE, **change})


def test_files_that_cannot_be_read(tmp_path):
  with pytest.raises(UserError, match="Cannot read the sweep file"):
    read_plan(tmp_path / "missing.yaml")
  broken = tmp_path / "broken.yaml"
  broken.write_text("task: [")
  with pytest.raises(UserError, match="broken.yaml is not YAML"):
    read_plan(broken)
  broken.write_text("- task")
  with pytest.raises(UserError, match="a sweep file maps keys"):
    read_plan(broken)


def test_limits_are_found_beside_the_file(tmp_path):
  (tmp_path / "limits.yaml").write_text("joint_vel: {upper: 2.0, lower: 12.0}")
  file = tmp_path / "sweep.yaml"
  file.write_text(
    "{task: g1-flat, method: decap, iterations: 1, num-envs: 8, limits: limits.yaml}"
  )
  run = read_plan(file).runs[0]
  assert run.limits_file == tmp_path / "limits.yaml"
  assert run.spec.limits == {"joint_vel": {"upper": 2.0, "lower": 12.0}}


def test_a_start_is_found_beside_the_file_and_known_by_its_contents(tmp_path):
  (tmp_path / "walker").mkdir()
  weights = tmp_path / "walker" / "weights.pt"
  weights.write_bytes(b"weights")
  data = {**BASE, "seed": [1, 2], "init-from": "walker"}
  for run in make_plan(data, tmp_path).runs:
    assert run.spec.init_from == str(weights)
    assert run.spec.init_sha256 == hashlib.sha256(b"weights").hexdigest()
  with pytest.raises(UserError, match="There is no run folder or checkpoint"):
    make_plan({**data, "init-from": "runner"}, tmp_path)


def test_the_papers_grid_gives_all_methods_the_same_samples():
  runs = read_plan(ROOT / "results" / "paper.yaml").runs
  samples = {run.name: run.iterations * run.steps_per_iteration for run in runs}
  methods = [
    r for r in runs if r.spec.task == "g1-flat" and r.label in ("", "published")
  ]
  assert {samples[r.name] for r in methods} == {1650 * 1024 * 24}
  for method in {r.spec.method for r in methods} - {"decap-exact"}:
    seeds = {1, 2, 3, 4, 5} if method == "decap" else {1, 2, 3}
    assert {r.spec.seed for r in methods if r.spec.method == method} == seeds
  continued = [run for run in runs if run.spec.init_from]
  weights = [run for run in continued if run.label.startswith("weights")]
  ablations = [r for r in continued if r.spec.task == "g1-flat" and r not in weights]
  assert len({run.label for run in ablations}) == 13 and len(weights) == 4
  for run in continued:
    millions = 7.5 if run.spec.task == "g1-rough" else 3 if run in weights else 10
    assert samples[run.name] == pytest.approx(millions * 1e6, rel=0.01)
    if run not in ablations:  # From its own method's policy.
      assert f"g1-flat-{run.spec.method}/" in str(run.spec.init_from)
