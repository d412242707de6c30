"""What `decap evaluate`, `decap compare` and `decap profile` do."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from decap.errors import UserError
from decap.evaluation.protocol import QUICK, CommandMode, Protocol
from decap.files import check_writable, replacing, write_text

if TYPE_CHECKING:
  from decap.evaluation.results import Result
  from decap.evaluation.tables import Method, Table

TableFormat = Literal["terminal", "markdown", "latex", "csv"]
PlotName = Literal[
  "tracking", "traces", "distributions", "joints", "spectra", "training"
]

MIN_FOLLOWED = 0.5
"""Share of the commanded velocity below which a profile is one of standing."""


@dataclass
class EvaluateArgs:
  """Evaluate a policy and write `metrics.json`."""

  policy: str
  """Run folder, checkpoint, bundle folder, or `stand` for the action zero."""
  task: str | None = None
  """Task to evaluate on; the policy's own by default."""
  quick: bool = False
  """A quick look: 4 rollouts of 16 environments, 300 steps."""
  rollouts: int | None = None
  """Rollouts, over which standard deviations are taken; 5 by default."""
  envs: int | None = None
  """Environments per rollout; 256 by default."""
  steps: int | None = None
  """Control steps per environment; 1000 by default."""
  per_command: int | None = None
  """Further robots for each fixed command; 32 by default."""
  disturbed: bool = False
  """Observation noise, and a push every 4 s."""
  commands: CommandMode = "random"
  """random, or switching every 5 s; `command` fixes one."""
  command: tuple[float, float, float] | None = None
  """Fixed command: vx, vy (m/s) and yaw rate (rad/s)."""
  limits: str | None = None
  """Limits file to count violations against; the task's limits by default."""
  trajectory: int = 1
  """Environments per rollout whose trajectory is written; 0 for none."""
  seed: int = 0
  """Seed of the environments."""
  device: str = "cpu"
  """cpu or cuda."""
  backend: str = "auto"
  """Physics: auto, warp or native."""
  output: str | None = None
  """Folder for the results; the run folder by default, `evaluation/NAME` for others."""

  def protocol(self, task: str) -> Protocol:
    """The protocol that these options describe."""
    base = QUICK if self.quick else Protocol()
    sizes = {
      name: getattr(base if getattr(self, name) is None else self, name)
      for name in ("rollouts", "envs", "steps", "per_command")
    }
    return Protocol(
      task=task,
      **sizes,
      warmup=max(0, min(base.warmup, sizes["steps"] - 1)),
      commands="fixed" if self.command is not None else self.commands,
      command=self.command,
      disturbed=self.disturbed,
      seed=self.seed,
    )


@dataclass
class CompareArgs:
  """Compare evaluated policies: tables, figures, an HTML report."""

  sources: list[str]
  """Run folders or metrics files; `LABEL=PATH` names the row."""
  label: str = ""
  """Which evaluation of a folder: `disturbed`, `vx0.5`, …; empty for metrics.json."""
  baseline: str | None = None
  """Method, or label, that ratios are taken against."""
  format: TableFormat = "terminal"
  """How the tables are printed."""
  output: str | None = None
  """File for the tables instead of the terminal."""
  html: str | None = None
  """Report file that opens offline."""
  plots: tuple[PlotName, ...] = ()
  """Figures to write."""
  quantity: str = "joint_vel"
  """Quantity of the figures `traces` and `joints`."""
  plot_folder: str = "."
  """Folder for the figures."""
  plot_format: Literal["pdf", "png", "svg"] = "pdf"
  """Format of the figures."""


@dataclass
class ProfileArgs:
  """Measure a nominal policy and write limits for `decap train --limits`."""

  policy: str
  """Run folder, checkpoint or bundle folder."""
  output: str = "limits.yaml"
  """Limits file to write."""
  quantile: dict[str, float] = field(default_factory=dict)
  """Group, or scalar quantity -> quantile that becomes the limit; by default
  what the robot's description says (a G1's upper body 0.5), and 0.99."""
  joints: bool = False
  """Print the quantiles of every joint too."""
  task: str | None = None
  """Task to measure on; the policy's own by default."""
  envs: int = 64
  """Environments."""
  steps: int = 1000
  """Control steps per environment."""
  seed: int = 0
  """Seed of the environments."""
  device: str = "cpu"
  """cpu or cuda."""
  backend: str = "auto"
  """Physics: auto, warp or native."""


def evaluate_main(args: EvaluateArgs) -> Path:
  """Evaluate, print a summary and write the files; returns the metrics file."""
  from decap.evaluation.policies import STAND, load_policy
  from decap.evaluation.results import file_names
  from decap.evaluation.rollout import evaluate
  from decap.runs import read_limits

  protocol = args.protocol(args.task or "g1-flat")  # Bad options before slow imports.
  limits = read_limits(args.limits) if args.limits else None
  policy = load_policy(args.policy, args.device)
  protocol = dataclasses.replace(
    protocol, task=args.task or policy.info["task"] or protocol.task
  )
  folder = _output_folder(args, STAND, protocol)
  check_writable(folder)
  own_task = policy.info["task"] or protocol.task  # Standing still belongs to any.
  away = "" if protocol.task == own_task else protocol.task
  label = "-".join(part for part in (away, protocol.label) if part)
  metrics_name, trajectory_name = file_names(label)
  _keep_larger(folder / metrics_name, policy.info, protocol)
  with _progress(f"Evaluating {policy.info['name']}", protocol.steps) as on_step:
    evaluation = evaluate(
      policy,
      protocol,
      device=args.device,
      backend=args.backend,
      trajectory=min(args.trajectory, protocol.envs),
      limits=limits,
      on_step=on_step,
    )
  evaluation.result.save(folder / metrics_name)
  if evaluation.trajectory is not None:
    evaluation.trajectory.save(folder / trajectory_name)
  else:
    (folder / trajectory_name).unlink(missing_ok=True)  # It would not fit the metrics.
  print_result(evaluation.result)
  print(
    f"{protocol.num_envs} environments × {protocol.steps} steps in "
    f"{evaluation.seconds:.1f} s ({evaluation.env_steps_per_s:,.0f} steps/s): "
    f"{folder / metrics_name}"
  )
  return folder / metrics_name


def print_result(result: Result) -> None:
  """What one policy does, command by command, and what it violates most."""
  from decap.evaluation.tables import command_tables, group_results, make_tables
  from decap.evaluation.verdict import verdict, worst_violation

  shown = {t.title: t for t in make_tables(group_results([result], [None]))}
  wanted = ("Smoothness", "Steps with a violation by at least one joint (%)")
  tables = [shown[title] for title in wanted if title in shown]
  _print_tables([*tables, *command_tables(result)])
  zero = result.metrics["commands"].get("zero")
  if zero:
    drift, lifted = zero["drift"], zero["gait"]["lift_offs"]
    print(
      f"Told to stand: drifts {drift or 0.0:.3f} m/s, lifts each foot "
      f"{lifted or 0.0:.2f} times per second."
    )
  worst = worst_violation(result.metrics)
  if worst:
    print(f"Worst: {worst[0]}, above its limit in {100 * worst[1]:.2g} % of the steps.")
  marks = verdict(result.metrics)
  if marks:
    print(f"This policy {' and '.join(marks)} (see docs/evaluation.md).")


def _keep_larger(path: Path, policy: Mapping[str, object], protocol: Protocol) -> None:
  """Refuse to replace a larger evaluation of the same policy."""
  from decap.evaluation.results import load_result

  try:
    found = load_result(path)
  except UserError:
    return  # What cannot be read is replaced.
  size, steps = (
    found.protocol["rollouts"] * found.protocol["envs"],
    found.protocol["steps"],
  )
  now = protocol.rollouts * protocol.envs * protocol.steps
  if found.policy == policy and size * steps > now:
    raise UserError(
      f"{path} holds a larger evaluation of this policy ({size} environments × {steps} "
      "steps): delete it, or give --output DIR."
    )


def compare_main(args: CompareArgs) -> None:
  """Print or write the tables, the figures and the report that were asked for."""
  from decap.evaluation.tables import group_results, make_tables

  if not args.sources:
    raise UserError("There is nothing to compare: give run folders or metrics files.")
  for path in (args.output, args.html):
    if path:
      check_writable(Path(path).parent)
  if args.plots:
    check_writable(args.plot_folder)
  labels, results = _read_results(args)
  methods = group_results(results, labels)
  tables = make_tables(methods, args.baseline)
  _write_tables(args, tables)
  training = _training_folders(methods)
  first = {method.label: method.results[0] for method in methods}
  if args.plots:
    _write_plots(args, first, training)
  if args.html:
    from decap.evaluation.report import ReportInput, write_report

    command = shlex.join(["decap", *sys.argv[1:]])
    write_report(ReportInput(methods, tables, command, training), Path(args.html))
    print(f"Wrote {args.html}")


def profile_main(args: ProfileArgs) -> Path:
  """Measure, print quantiles, write the limits file and return its path."""
  from rich.console import Console

  from decap.evaluation import profile as profiles
  from decap.evaluation.policies import load_policy
  from decap.evaluation.rollout import evaluate
  from decap.tasks import TASKS

  check_writable(Path(args.output).parent)
  policy = load_policy(args.policy, args.device)
  protocol = Protocol(
    task=args.task or policy.info["task"] or "g1-flat",
    rollouts=1,
    envs=args.envs,
    steps=args.steps,
    warmup=min(50, args.steps - 1),
    per_command=0,
    seed=args.seed,
  )
  with _progress(f"Measuring {policy.info['name']}", protocol.steps) as on_step:
    evaluation = evaluate(
      policy,
      protocol,
      device=args.device,
      backend=args.backend,
      trajectory=protocol.envs,
      on_step=on_step,
    )
  trajectory = evaluation.trajectory
  assert trajectory is not None
  chosen = {**TASKS[protocol.task].describe().profile_quantiles, **args.quantile}
  rule = profiles.complete_rule(trajectory.layout, chosen)
  limits = profiles.propose_limits(trajectory, rule)
  profile = profiles.profile_trajectory(trajectory)
  tables = profiles.joint_tables(profile) if args.joints else []
  for table in (profiles.group_table(profile), *tables):
    Console().print(table)
  profiles.write_limits(Path(args.output), limits, rule, policy.info, trajectory.layout)
  share = evaluation.result.metrics["tracking"]["followed"]["mean"] or 0.0
  if share < MIN_FOLLOWED:
    print(
      f"Note: this policy carries out {100 * share:.0f} % of the velocity that it is "
      "told, so these limits are those of a robot that mostly stands.",
      file=sys.stderr,
    )
  for name, values in limits.items():
    groups = values.items() if isinstance(values, dict) else [("", values)]
    print(f"{name}: " + ", ".join(f"{group} {v:g}".strip() for group, v in groups))
  print(f"Wrote {args.output}; use it with 'decap train --limits {args.output}'.")
  return Path(args.output)


def _read_results(args: CompareArgs) -> tuple[list[str | None], list[Result]]:
  """Labels and results of all sources; runs that wait for theirs are left out."""
  from decap.evaluation.results import find_result
  from decap.runs import RUN_FILE

  sources = [_split_label(source) for source in args.sources]
  runs = [path for _, path in sources if (Path(path) / RUN_FILE).is_file()]
  waiting = [path for path in runs if not list(Path(path).glob("metrics*.json"))]
  if waiting and len(waiting) < len(sources):
    print(
      f"Left out, not evaluated yet: {', '.join(waiting)} (see 'decap evaluate').",
      file=sys.stderr,
    )
    sources = [(label, path) for label, path in sources if path not in waiting]
  labels = [label for label, _ in sources]
  return labels, [find_result(path, args.label) for _, path in sources]


def _split_label(source: str) -> tuple[str | None, str]:
  """`LABEL=PATH` as its parts; a path may itself hold an equals sign."""
  label, equals, path = source.partition("=")
  if not equals or Path(source).exists():
    return None, source
  return label, path


def _output_folder(args: EvaluateArgs, stand: str, protocol: Protocol) -> Path:
  if args.output:
    return Path(args.output)
  path = Path(args.policy)
  if args.policy == stand:
    return Path("evaluation") / f"{stand}-{protocol.task}"
  if (path / "params").is_dir():
    return path
  path = path.resolve()
  if path.is_file():
    return Path("evaluation") / f"{path.parent.parent.name}-{path.stem}"
  if (path.parent / "params").is_dir():  # The bundle in a run folder.
    return Path("evaluation") / f"{path.parent.name}-{path.name}"
  return Path("evaluation") / path.name


@contextmanager
def _progress(title: str, steps: int) -> Iterator[Callable[[int], None]]:
  from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
  )

  columns = (
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TimeElapsedColumn(),
    TimeRemainingColumn(),
  )
  with Progress(*columns) as progress:
    task = progress.add_task(title, total=steps)
    yield lambda done: progress.update(task, completed=done)


def _print_tables(tables: Sequence[Table]) -> None:
  from rich.console import Console

  from decap.evaluation.table_formats import to_rich

  console = Console()
  for table in tables:
    # Where a table is wider than the terminal, its lines go on in the next one.
    console.print(to_rich(table), crop=False)
  console.print(tables[0].note)


def _write_tables(args: CompareArgs, tables: Sequence[Table]) -> None:
  from decap.evaluation import table_formats as formats

  if args.format == "terminal" and args.output is None:
    _print_tables(tables)
    return
  writers: dict[str, Callable[[], str]] = {
    "markdown": lambda: "\n".join(map(formats.to_markdown, tables)),
    "latex": lambda: "\n".join(map(formats.to_latex, tables)),
    "csv": lambda: formats.to_csv(tables),
  }
  if args.format == "terminal":
    raise UserError("Tables for a file need --format markdown, latex or csv.")
  text = writers[args.format]()
  if args.output is None:
    print(text)
    return
  write_text(args.output, text)
  print(f"Wrote {args.output}")


def _training_folders(methods: Sequence[Method]) -> dict[str, Path]:
  """Run folders with TensorBoard events, by the label of their method and seed."""
  folders = {}
  for method in methods:
    for result in method.results:
      assert result.path is not None
      folder = result.path.parent
      if any(folder.glob("events.out.tfevents.*")):
        seed = f" s{result.policy.get('seed')}" if len(method.results) > 1 else ""
        folders[f"{method.label}{seed}"] = folder
  return folders


def _write_plots(
  args: CompareArgs, results: dict[str, Result], training: dict[str, Path]
) -> None:
  from decap.evaluation import plots
  from decap.evaluation.report import find_trajectories

  recorded = find_trajectories(results)
  draw: dict[str, Callable] = {
    "tracking": lambda: plots.velocity_tracking(recorded),
    "traces": lambda: plots.traces(recorded, args.quantity),
    "distributions": lambda: plots.distributions(results),
    "joints": lambda: plots.joint_violations(results, args.quantity),
    "spectra": lambda: plots.spectra(results),
    "training": lambda: plots.training_curves(training),
  }
  folder = Path(args.plot_folder)
  for name in args.plots:
    if name in ("tracking", "traces") and not recorded:
      raise UserError(
        f"The figure '{name}' needs trajectories: evaluate with --trajectory."
      )
    if name == "training" and not training:
      raise UserError("The figure 'training' needs run folders with event files.")
    path = folder / f"{name}.{args.plot_format}"
    with replacing(path) as partial:
      draw[name]().savefig(partial, dpi=200)
    print(f"Wrote {path}")
