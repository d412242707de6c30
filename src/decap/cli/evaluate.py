"""``decap evaluate``: measure smoothness, violations and tracking of a policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from decap import provenance
from decap.cli import checks
from decap.cli.film import out_of_range
from decap.cli.terminal import print_tables, progress_bar
from decap.errors import UserError
from decap.evaluation.protocol import Protocol, fallen_stops
from decap.evaluation.protocol_args import ProtocolArgs
from decap.files import check_writable
from decap.options.types import OutputFolder, Policy

if TYPE_CHECKING:
  from decap.evaluation.results import Result


@dataclass(kw_only=True)
class EvaluateArgs(ProtocolArgs):
  """A policy, the protocol, and where the results go."""

  policy: Policy
  """Run folder, checkpoint, bundle folder, or 'stand' for the action zero."""
  output: OutputFolder = None
  """Folder for the results (default: the run's, 'evaluation/NAME' for others)."""

  def run(self) -> None:
    """Evaluate, print a summary and write the files."""
    checks.check_renderer()
    _evaluate(self)


def _evaluate(args: EvaluateArgs) -> None:
  from decap.evaluation.policies import STAND, load_policy
  from decap.evaluation.results import file_names
  from decap.evaluation.rollout import evaluate
  from decap.runs import read_limits
  from decap.sim.backend import hush_warp
  from decap.tasks import env_cfg

  protocol = args.protocol(args.task or "g1-flat")  # Bad options before slow imports.
  limits = read_limits(args.limits) if args.limits else None
  policy = load_policy(args.policy, args.device)
  protocol = dataclasses.replace(
    protocol, task=args.task or policy.info["task"] or protocol.task
  )
  folder = _output_folder(args, STAND, protocol)
  check_writable(folder)
  changed = provenance.differences(policy.description or {})
  if changed:
    print(f"Made by other code than today's: {', '.join(changed)}. Numbers may differ.")
  if protocol.command is not None:
    told = env_cfg(protocol.task).commands["twist"]
    for sentence in out_of_range([protocol.command], told):
      print(sentence)
  own_task = policy.info["task"] or protocol.task  # Standing still belongs to any.
  away = "" if protocol.task == own_task else protocol.task
  label = "-".join(part for part in (away, protocol.label) if part)
  metrics_name, trajectory_name = file_names(label)
  _keep_larger(folder / metrics_name, policy.info, protocol)
  hush_warp()
  with progress_bar(f"Evaluating {policy.info['name']}", protocol.steps) as on_step:
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


def print_result(result: Result) -> None:
  """What one policy does, command by command, and what it violates most."""
  from decap.evaluation.tables import command_tables, group_results, make_tables
  from decap.evaluation.verdict import verdict, worst_violation

  shown = {t.title: t for t in make_tables(group_results([result], [None]))}
  wanted = ("Smoothness", "Steps with a violation by at least one joint (%)")
  tables = [shown[title] for title in wanted if title in shown]
  print_tables([*tables, *command_tables(result)])
  zero = result.metrics["commands"].get("zero")
  if zero:
    drift, lifted = zero["drift"], zero["gait"]["lift_offs"]
    print(
      f"Told to stand: drifts {drift or 0.0:.3f} m/s, lifts each foot "
      f"{lifted or 0.0:.2f} times per second."
    )
  stop = result.metrics["commands"].get("stop")
  if stop and stop["falls_per_minute"] is not None:
    fallen = fallen_stops(stop["falls_per_minute"])
    print(f"Told to stop from 0.5 m/s: falls in {100 * fallen:.1f} % of the stops.")
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
