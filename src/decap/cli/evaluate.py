"""``decap evaluate``: measure smoothness, violations and tracking of a policy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from decap import provenance
from decap.cli import checks
from decap.cli.terminal import evaluate_with_bar, print_tables
from decap.evaluation.protocol import ProtocolArgs
from decap.files import check_writable
from decap.options import machine
from decap.options.types import OutputFolder, Policy
from decap.options.velocity import out_of_range
from decap.runs import read_limits

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
    machine.check_renderer()
    from decap.evaluation.environment import measured_cfg
    from decap.evaluation.policies import load_policy
    from decap.evaluation.results import keep_larger

    limits = read_limits(self.limits) if self.limits else None
    checks.check_torch_device(self.device)
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
      told = measured_cfg(protocol.task).commands["twist"]
      for sentence in out_of_range([protocol.command], told):
        print(sentence)
    label = protocol.label_for(own_task)
    keep_larger(folder, label, policy.info, protocol)
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
  from decap.evaluation.verdict import remarks

  shown = {t.title: t for t in make_tables(group_results([result], [None]))}
  wanted = ("Smoothness", "Steps with a violation by at least one joint (%)")
  wanted += ("Quantities of the whole robot",)
  tables = [shown[title] for title in wanted if title in shown]
  print_tables([*tables, *command_tables(result)])
  for sentence in remarks(result.metrics):
    print(sentence)


def _output_folder(args: EvaluateArgs, task: str) -> Path:
  from decap.evaluation.policies import STAND, policy_name

  if args.output:
    return Path(args.output)
  path = Path(args.policy)
  if args.policy == STAND:
    return Path("evaluation") / f"{STAND}-{task}"
  if (path / "params").is_dir():
    return path
  return Path("evaluation") / policy_name(args.policy)
