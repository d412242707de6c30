"""``decap evaluate``: measure smoothness, violations and tracking of a policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from decap import provenance
from decap.cli import checks
from decap.cli.play import out_of_range
from decap.cli.terminal import evaluate_with_bar, print_tables
from decap.errors import UserError
from decap.evaluation.protocol import Protocol, ProtocolArgs, fallen_stops
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
    from decap.evaluation.policies import load_policy
    from decap.runs import read_limits
    from decap.tasks import env_cfg

    limits = read_limits(self.limits) if self.limits else None
    policy = load_policy(self.policy, self.device)
    own_task = policy.info["task"]  # None of standing still, which belongs to any.
    protocol = self.protocol(self.task or own_task or "g1-flat")
    folder = _output_folder(self, protocol.task)
    check_writable(folder)
    changed = provenance.differences(policy.description or {})
    if changed:
      print(
        f"Made by other code than today's: {', '.join(changed)}. Numbers may differ."
      )
    if protocol.command is not None:
      told = env_cfg(protocol.task).commands["twist"]
      for sentence in out_of_range([protocol.command], told):
        print(sentence)
    label = protocol.label_for(own_task)
    _keep_larger(folder, label, policy.info, protocol)
    evaluation = evaluate_with_bar(
      f"Evaluating {policy.info['name']}",
      policy,
      protocol,
      device=self.device,
      backend=self.backend,
      trajectory=self.trajectory,
      limits=limits,
    )
    written = evaluation.save(folder, label)
    print_result(evaluation.result)
    speed = protocol.num_envs * protocol.steps / evaluation.seconds
    print(
      f"{protocol.num_envs} environments × {protocol.steps} steps in "
      f"{evaluation.seconds:.1f} s ({speed:,.0f} steps/s): {written}"
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


def _keep_larger(
  folder: Path, label: str, policy: Mapping[str, object], protocol: Protocol
) -> None:
  """Refuse to replace a larger evaluation of the same policy."""
  from decap.evaluation.results import file_names, load_result

  path = folder / file_names(label)[0]
  try:
    found = load_result(path)
  except UserError:
    return  # What cannot be read is replaced.
  rollouts, envs, steps = (found.protocol[n] for n in ("rollouts", "envs", "steps"))
  size = rollouts * envs
  now = protocol.rollouts * protocol.envs * protocol.steps
  if found.policy == policy and size * steps > now:
    raise UserError(
      f"{path} holds a larger evaluation of this policy ({size} environments × {steps} "
      "steps): delete it, or give --output DIR."
    )


def _output_folder(args: EvaluateArgs, task: str) -> Path:
  from decap.evaluation.policies import STAND

  if args.output:
    return Path(args.output)
  path = Path(args.policy)
  if args.policy == STAND:
    return Path("evaluation") / f"{STAND}-{task}"
  if (path / "params").is_dir():
    return path
  path = path.resolve()
  if path.is_file():
    return Path("evaluation") / f"{path.parent.parent.name}-{path.stem}"
  if (path.parent / "params").is_dir():  # The bundle in a run folder.
    return Path("evaluation") / f"{path.parent.name}-{path.name}"
  return Path("evaluation") / path.name
