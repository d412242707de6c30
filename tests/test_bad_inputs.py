"""Whatever a user gets wrong: exit code 2, one sentence, nothing written, and at once.

One table for all commands. What needs a file finds it by name in the folder that
`tests.bad_files` fills.
"""

import os
import sys
import time

import pytest

from decap.cli import main
from tests.bad_files import BUNDLES, LIMITS, METRICS, RUNS, SWEEPS, write_files

G1 = ("train", "--task", "g1-flat", "--device", "cpu")
PLAY = ("play", "good", "--device", "cpu")
EVALUATE = ("evaluate", "good", "--device", "cpu")
PROFILE = ("profile", "good", "--device", "cpu")

COUNT = ("0", "-1", "x", "1.5", "nan")
SEED = ("-1", "x", "4294967296", str(2**80))
NUMBER = ("x", "nan", "inf")
POSITIVE = ("0", "-1", *NUMBER)

NUMBERS = {
  (*G1, "--num-envs"): (*COUNT, "1000000000"),
  (*G1, "--iterations"): COUNT,
  (*G1, "--threads"): COUNT,
  (*G1, "--gpus"): ("x", "0", "-1", "99"),
  (*G1, "--seed"): SEED,
  (*EVALUATE, "--rollouts"): COUNT,
  (*EVALUATE, "--envs"): COUNT,
  (*EVALUATE, "--steps"): (*COUNT, "1", "50"),
  (*EVALUATE, "--per-command"): ("-1", "x"),
  (*EVALUATE, "--trajectory"): ("-1", "x"),
  (*EVALUATE, "--seed"): SEED,
  (*EVALUATE, "--command"): ("1", "x 0 0", "nan 0 0", "0 0 inf", "1 2 3 4"),
  (*PROFILE, "--envs"): COUNT,
  (*PROFILE, "--steps"): (*COUNT, "50"),
  (*PROFILE, "--seed"): SEED,
  (*PROFILE, "--quantile"): (
    "1.5",
    "upper",
    "upper=x",
    "upper=0",
    "upper=1.5",
    "tail=0.5",
  ),
  (*PLAY, "--seconds"): (*POSITIVE, "1e9"),
  (*PLAY, "--distance"): ("0", "1000", "x"),
  (*PLAY, "--azimuth"): NUMBER,
  (*PLAY, "--size"): ("0 0", "641 480", "64", "x y", "100000 100000"),
  (*PLAY, "--port"): ("0", "70000", "x"),
  (*PLAY, "--num-envs"): COUNT,
  (*PLAY, "--seed"): SEED,
  (*PLAY, "--command"): ("1 0", "x 0 0", "nan 0 0"),
  ("sim2sim", "good", "--seconds"): POSITIVE,
  ("sim2sim", "good", "--delay-s"): ("-1", "0.1", "x", "nan"),
  ("sim2sim", "good", "--ground-friction"): ("-1", "x", "nan"),
  ("sim2sim", "good", "--joint-friction"): ("-1", "x", "nan"),
  ("sim2sim", "good", "--payload-kg"): ("x", "inf", "-100"),
  ("sim2sim", "good", "--push-m-s"): ("x", "nan", "-1"),
  ("sim2sim", "good", "--noise"): ("-1", "x", "nan"),
  ("sim2sim", "good", "--motor-strength"): ("-1", "x", "nan", "3"),
  ("sim2sim", "good", "--push-every-s"): ("0", "-1", "x", "nan"),
  ("sim2sim", "good", "--speed"): NUMBER,
  ("sim2sim", "good", "--seed"): SEED,
  ("sim2sim", "good", "--terrain"): ("moon",),
  ("sim2sim", "table", "good", "--repeats"): COUNT,
  ("sim2sim", "table", "good", "--jobs"): COUNT,
  ("simulator", "--dof"): ("30", "x"),
  ("simulator", "--delay-s"): ("-1", "x", "nan"),
  ("simulator", "--domain"): ("-1", "300", "x"),
  ("simulator", "--terrain"): ("moon",),
  ("deploy", "good", "--dry-run", "--domain"): ("-1", "300", "x"),
  ("deploy", "good", "--dry-run", "--log-mb"): ("0", "x"),
  ("deploy", "good", "--dry-run", "--seconds"): ("0", "-1", "x"),
  ("deploy", "good", "--dry-run", "--wait"): POSITIVE,
  ("faults", "good", "--seeds"): ("-1", "x"),
  ("faults", "good", "--kind"): ("weather",),
  ("faults", "good", "--domain"): ("-1", "999"),
  ("demo", "--iterations"): ("1", "0", "x"),
  ("demo", "--num-envs"): COUNT,
  ("demo", "--seconds"): POSITIVE,
  ("sweep", "good.yaml", "--jobs"): (*COUNT, "100000"),
  ("sweep", "good.yaml", "--device"): ("gpu", "cuda:99", "cpu,cpu", "cpu,auto"),
}
"""What an option is given → that must be refused."""

WORDS = (
  ("trian", "Unknown command 'trian' (did you mean 'train'?)"),
  ("train", "--task is missing"),
  ("train --task g2", "Unknown task 'g2' (there are g1-flat"),
  ("train --task own_nowhere:hop", "There is no module 'own_nowhere', neither in the"),
  ("train --task own_fine.robots:hop", "There is no module 'own_fine.robots', neither"),
  ("train --task own_fine.py:hop", "There is no module 'own_fine.py', neither"),
  ("train --task ./own_fine:hop", "is PACKAGE.MODULE:NAME, not './own_fine:hop'"),
  ("train --task own_fine:", "is PACKAGE.MODULE:NAME, not 'own_fine:'"),
  ("train --task own_fine:hip", "'own_fine' has no 'hip' (did you mean 'hop'?)"),
  ("train --task own_fine:height_m", "must be a Task, not float (there are hop)"),
  (
    "train --task own_divides:hop",
    "ZeroDivisionError: division by zero (own_divides.py, line 2)",
  ),
  ("train --task own_typo:hop", "SyntaxError: invalid syntax (own_typo.py, line 1)"),
  (
    "train --task own_needs:hop",
    "ModuleNotFoundError: No module named 'no_such_module' (own_needs.py, line 1)",
  ),
  ("train --task stranger:hop", "'stranger' cannot be imported: SystemExit: imported"),
  ("train --task own_fine:hop --device cpu", "has no description of its robot"),
  ("play run --task stranger:hop", "'stranger' cannot be imported"),
  (
    "train --task g1-flat --method decup",
    "Unknown method 'decup' (did you mean 'decap'",
  ),
  ("train --tsk g1-flat", "Unknown option '--tsk' of 'decap train' (did you"),
  ("train g1-flat", "Unknown argument 'g1-flat'"),
  ("train --seed -1", "--seed must be from 0 to below 2^32, as all generators"),
  ("train --task g1-flat --device gpu", "Unknown device 'gpu'"),
  ("train --task g1-flat --device cuda:99", "GPU"),
  (
    "train --task g1-flat --backend isaac",
    "must be one of auto, warp, native, not 'isaac'",
  ),
  ("train --task g1-flat --run-name a/b", "must be a plain name"),
  ("train --task g1-flat --log-root /proc/decap", "Cannot write"),
  (f"train --task g1-flat --log-root {'n' * 300}", "File name too long"),
  (f"train --task g1-flat --run-name {'n' * 300}", "at most 200 letters"),
  ("train --task g1-flat --logger paper", "must be one of tensorboard, wandb"),
  ("train --task g1-flat --init-from nowhere", "There is no run"),
  ("train --task g1-flat --limits nowhere", "No such file"),
  ("train --device cpu --task g1-flat --backend warp --threads 1", "for C MuJoCo"),
  ("train --resume nowhere", "There is no run folder"),
  ("train --resume empty", "is not a run folder"),
  ("train --resume empty --seed 2", "--seed cannot change"),
  ("train --resume empty --seed 0", "--seed cannot change"),
  ("train --resume empty --run-name again", "--run-name cannot change"),
  ("train --resume empty --log-root elsewhere", "--log-root cannot change"),
  ("train --resume run --task g1-rough", "--task cannot change"),
  ("train --resume empty --init-from empty", "exclude each other"),
  ("train --resume empty --agent.policy.init-std 1", "cannot change"),
  ("train --task g1-flat --method lcp --env.termination.kappa 3", "does not use"),
  (
    "train --task g1-flat --method n-ipo --agent.algorithm.feasibility.budget 0.1",
    "Method 'n-ipo' does not use --agent.algorithm.feasibility.budget",
  ),
  ("export", "is missing"),
  ("export nowhere", "There is no run folder"),
  ("export empty", "no checkpoint"),
  ("export good --env.seed 1", "takes no '--env.seed'"),
  ("play", "is missing"),
  ("play nowhere", "There is no run folder"),
  (f"play {'n' * 300}", "File name too long"),
  ("play empty", "no checkpoint"),
  ("play good good", "give --video too"),
  ("play good --video walk.avi", "must end in .mp4 or .gif"),
  ("play good --video nowhere/walk.mp4", "There is no folder"),
  ("play good --schedule x", "is not SECONDS:VX,VY,YAW"),
  ("play good --size 0 480", "--size must be even numbers from 16"),
  ("play good --distance 0", "--distance must be between 0.3 and 100 m, not 0"),
  ("play good --schedule 3:0,0,0%0:0,0,0", "in the order of their times"),
  ("play good --command 1 0 0 --schedule 0:1,0,0", "exclude each other"),
  ("evaluate", "is missing"),
  ("evaluate nowhere", "There is no run folder"),
  ("evaluate empty", "has no policy"),
  ("evaluate stand --task g2", "Unknown task 'g2'"),
  ("evaluate stand --commands slow", "must be one of random, switching"),
  (
    "evaluate stand --commands switching --command 0.5 0 0",
    "--command and --commands switching exclude each other",
  ),
  ("evaluate stand --limits nowhere", "Cannot read the limits file nowhere: No such"),
  ("evaluate stand --envs 100000000 --device cpu", "environments need at least"),
  ("evaluate stand --output /proc/decap", "Cannot write"),
  ("profile nowhere", "There is no run folder"),
  ("profile good --envs 100000000 --device cpu", "environments need at least"),
  ("profile good --quantile lower", "must be GROUP=Q"),
  ("profile good --output /proc/x/limits.yaml", "Cannot write"),
  ("compare", "is missing"),
  ("compare nowhere", "There is no run folder or metrics file"),
  ("compare empty", "has no metrics.json"),
  ("compare good --label standing", "has no metrics-standing.json (it has metrics"),
  ("compare metrics.json metrics.json", "is there twice"),
  ("compare A=metrics.json B=metrics.json", "is there twice"),
  ("compare metrics.json good", "LABEL=RUN gives each its own"),
  ("compare metrics.json --baseline lcp", "no baseline 'lcp'"),
  ("compare metrics.json --label disturbed --format word", "must be one of terminal"),
  ("compare metrics.json --output tables.md", "need --format"),
  ("compare metrics.json --html /proc/x/r.html", "Cannot write"),
  ("compare metrics.json --plot pie", "must be one of response"),
  ("compare metrics.json --quantity joint_acc", "does nothing without --plot traces"),
  ("compare metrics.json --plot-format svg", "does nothing without --plot."),
  ("play good --size 64 64 --device cpu", "--size does nothing without --video."),
  ("compare metrics.json --plot traces", "needs trajectories"),
  ("compare metrics.json --plot training", "needs run folders"),
  ("compare metrics.json --plot joints --quantity warmth", "Unknown quantity 'warmth'"),
  (
    "compare metrics.json --format csv --output new.csv --plot joints --quantity warmth",
    "warmth",
  ),
  ("sim2sim", "The argument BUNDLE is missing"),
  ("sim2sim nowhere", "is not a policy bundle"),
  ("sim2sim table", "The argument BUNDLE is missing"),
  ("sim2sim good good", "give --video too"),
  ("sim2sim good --video walk.avi", "must end in .mp4 or .gif"),
  ("sim2sim good --trace /proc/x/t.npz", "Cannot write"),
  (
    "sim2sim sweep good --terrain gravel",
    "Unknown option '--terrain' of 'decap sim2sim sweep'",
  ),
  ("sim2sim sweep good --speed 2", "Unknown option '--speed' of 'decap sim2sim sweep'"),
  (
    "sim2sim fidelity good --repeats 5",
    "Unknown option '--repeats' of 'decap sim2sim fidelity'",
  ),
  (
    "sim2sim fidelity good --noise 0",
    "Unknown option '--noise' of 'decap sim2sim fidelity'",
  ),
  (
    "sim2sim table good --trace t.npz",
    "Unknown option '--trace' of 'decap sim2sim table'",
  ),
  (
    "sim2sim table good --terrain gravel",
    "Unknown option '--terrain' of 'decap sim2sim table'",
  ),
  ("sim2sim good --repeats 5", "Unknown option '--repeats' of 'decap sim2sim'"),
  ("sim2sim good good --video v.gif --trace t.npz", "--trace is of one bundle"),
  ("sim2sim good --view --video v.gif", "--view and --video exclude each other"),
  ("sim2sim good --view --trace t.npz", "--view and --trace exclude each other"),
  ("sim2sim good --view --speed 1", "--view and --speed exclude each other"),
  ("sim2sim good --ego", "--ego does nothing without --video"),
  ("sim2sim good --port 9000", "--port does nothing without --view"),
  ("deploy", "is missing"),
  ("deploy good", "--interface is missing"),
  ("deploy good --interface lo --simulator", "takes no --interface"),
  ("deploy good --interface nowhere0", "nowhere0"),
  ("deploy nowhere --dry-run", "is not a policy bundle"),
  ("faults nowhere", "is not a policy bundle"),
  ("flight nowhere", "nowhere"),
  ("flight empty", "empty"),
  ("demo --output /proc/decap", "Cannot write"),
  ("list --foo", "Unknown option '--foo' of 'decap list'."),
  ("list everything", "Unknown argument 'everything'"),
  ("sweep", "is missing"),
  ("sweep nowhere", "Cannot read the sweep file"),
)

OVERRIDES = (
  ("--env.rewards.track-xy.wieght", "2"),
  ("--env.termination.rho", "half"),
  ("--env.termination.rho", "1.5"),
  ("--env.termination.kappa", "0"),
  ("--env.rewards.track-xy.weight", "nan"),
  ("--env.rewards.track-xy.params.variance", "0"),
  ("--env.rewards.gait.params.stance-share", "1"),
  ("--env.observations.actor.history-length", "-1"),
  ("--env.events.friction.params.ranges", "(-0.3,1.0)"),
  ("--env.scene.num-envs", "0"),
  ("--env.groups.upper.p-max", "1"),
  ("--env.constraints.joint-vel.limits.upper", "-1"),
  ("--env.decimation", "0"),
  ("--env.commands.twist.rel-standing-envs", "2"),
  ("--env.commands.twist.ranges.lin-vel-x", "(1.0,-1.0)"),
  ("--env.following.command-name", "twits"),
  ("--env.constraints.joint-vel.limits", "{'upper': 1e999, 'lower': 1.0}"),
  ("--agent.policy.hidden-dims", "()"),
  ("--agent.policy.hidden-dims", "(0,)"),
  ("--agent.policy.hidden-dims", "(32,-1)"),
  ("--agent.policy.activation", "magic"),
  ("--agent.policy.init-std", "-1"),
  ("--agent.policy.std-range", "(0.0,1.0)"),
  ("--agent.policy.std-range", "(2.0,1.0)"),
  ("--agent.policy.std-growth", "0"),
  ("--agent.algorithm.learning-rate", "inf"),
  ("--agent.algorithm.learning-rate", "0"),
  ("--agent.algorithm.gamma", "1.5"),
  ("--agent.algorithm.lam", "-0.1"),
  ("--agent.algorithm.clip-param", "0"),
  ("--agent.algorithm.desired-kl", "nan"),
  ("--agent.algorithm.max-grad-norm", "-1"),
  ("--agent.algorithm.entropy-coef", "-1"),
  ("--agent.algorithm.entropy-final", "-1"),
  ("--agent.algorithm.value-loss-coef", "-1"),
  ("--agent.algorithm.mirror-loss-coef", "-1"),
  ("--agent.algorithm.num-learning-epochs", "0"),
  ("--agent.algorithm.feasibility.budget", "0"),
  ("--agent.algorithm.feasibility.target", "nan"),
  ("--agent.algorithm.schedule", "slow"),
  ("--agent.algorithm.num-mini-batches", "0"),
  ("--agent.algorithm.feasibility.quantile", "1.5"),
  ("--agent.num-steps-per-env", "0"),
  ("--agent.save-interval", "0"),
  ("--agent.save-every-s", "0"),
  ("--agent.keep-checkpoints", "0"),
  ("--agent.eval-interval", "-1"),
  ("--agent.seed", "3"),
  ("--agent.logger", "wandb"),
  ("--agent.colour", "red"),
)


def _cases():
  for words, given in NUMBERS.items():
    for value in given:
      # The sentence names the option, or its field, or else what was given.
      field = words[-1].strip("-").replace("-", "_")
      yield (*words, *value.split(" ")), (words[-1], field, value.split("=")[0])
  for line, message in WORDS:
    yield tuple(word.replace("%", " ") for word in line.split()), message
  for override in OVERRIDES:
    field = override[0].split(".")[-1].replace("-", "_")
    yield (*G1, *override), (field, override[0], "Unrecognized")
  for name, message in BUNDLES.items():
    yield ("play", name, "--video", "x.mp4", "--device", "cpu"), message
    yield ("evaluate", name, "--device", "cpu"), message
    yield ("sim2sim", name), message
    yield ("deploy", name, "--dry-run"), message
  for name, message in METRICS.items():
    yield ("compare", name), message
  for name, message in SWEEPS.items():
    yield ("sweep", name, "--dry-run", "--device", "cpu"), message
  for name, message in LIMITS.items():
    yield (*G1, "--limits", name), message
  for name, message in RUNS.items():
    yield ("train", "--resume", name, "--iterations", "9", "--device", "cpu"), message
    yield ("play", name, "--device", "cpu"), message


CASES = list(_cases())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """A folder with all bad files, and the time that all cases take together."""
  path = tmp_path_factory.mktemp("bad")
  write_files(path)
  started = time.process_time()
  yield path
  assert time.process_time() - started < 60.0


def test_there_are_enough():
  assert len(CASES) >= 200 and len({argv for argv, _ in CASES}) == len(CASES)


@pytest.mark.parametrize(
  ("argv", "message"), CASES, ids=[" ".join(c) for c, _ in CASES]
)
def test_a_bad_input_gets_one_sentence(folder, argv, message, monkeypatch, capsys):
  monkeypatch.chdir(folder)
  monkeypatch.setattr(sys, "path", list(sys.path))  # Tasks of one's own add to it.
  monkeypatch.setattr(sys, "dont_write_bytecode", True)
  before = sorted(os.listdir(folder))
  assert main(list(argv)) == 2
  captured = capsys.readouterr()
  lines = captured.err.splitlines()
  assert len(lines) == 1, captured.err
  assert lines[0].startswith("decap: ") and lines[0].endswith(".")
  assert any(
    m in lines[0] for m in ([message] if isinstance(message, str) else message)
  )
  assert "Traceback" not in lines[0] and "Building" not in captured.out
  # A row of the table whose option is gone tests nothing.
  assert "Unknown option" not in lines[0] or "Unknown option" in message
  assert sorted(os.listdir(folder)) == before
