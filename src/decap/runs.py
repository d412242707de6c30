"""Runs: what was asked for, the configs that follow from it, and the run folder.

A run is described by plain data (task, method, seed, overrides), which is written
beside its results. Playing, exporting or continuing it rebuilds the same configs from
that description; nothing is unpickled. Importing this file is cheap.
"""

from __future__ import annotations

import dataclasses
import enum
import errno
import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decap.errors import UserError, check_known
from decap.files import read_yaml, write_text
from decap.methods import get_method
from decap.options.configs import check_values
from decap.options.overrides import check_effects, check_options
from decap.options.reading import ask_tyro
from decap.rl import checkpoint_files

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnvCfg
  from decap.rl.config import AgentCfg

RUN_FILE = "params/run.json"
LONGEST_LABEL = 200
"""Names of files have 255 letters; task, method, seed and time are some of them."""


@dataclass(frozen=True)
class RunSpec:
  """All that decides the configs of a run, and the policy that it starts from."""

  task: str
  method: str
  seed: int = 1
  num_envs: int | None = None
  """Number of environments; None is the task's."""
  iterations: int | None = None
  """Number of iterations; None is the task's."""
  limits: dict[str, Any] = dataclasses.field(default_factory=dict)
  """Limits that replace the task's: constraint → number, or group → number."""
  blind: bool = False
  """Whether the gait's clock is hidden from actor and critic, as in the paper."""
  overrides: tuple[str, ...] = ()
  """Command-line tokens such as ``("--env.termination.kappa", "3")``."""
  init_from: str | None = None
  """Checkpoint whose networks it starts from; None draws new ones."""
  init_sha256: str | None = None
  """Checksum of that file, which may move or be deleted later."""

  def to_dict(self) -> dict[str, Any]:
    """Plain data, for JSON files and checkpoints."""
    return {**dataclasses.asdict(self), "overrides": list(self.overrides)}

  @staticmethod
  def from_dict(data: dict[str, Any]) -> RunSpec:
    """Inverse of `to_dict`."""
    if not isinstance(data, dict):
      raise TypeError("it does not map names to values")
    known = {field.name for field in dataclasses.fields(RunSpec)}
    values: dict[str, Any] = {k: v for k, v in data.items() if k in known}
    values["overrides"] = tuple(values["overrides"])
    return RunSpec(**values)


def build_configs(
  spec: RunSpec, *, play: bool = False
) -> tuple[ConstrainedEnvCfg, AgentCfg]:
  """Configs of environment and agent: task, limits, method, then overrides.

  Limits come before the method, since whole-body methods spread the loosest.

  Args:
    play: The task's play variant: endless episodes, no noise, no pushes.
  """
  from decap.tasks import agent_cfg, env_cfg, hide_clock

  method = get_method(spec.method)
  overrides = list(spec.overrides)
  check_options(method, overrides)
  env = env_cfg(spec.task, play=play)
  agent = agent_cfg(spec.task)
  if spec.blind:
    hide_clock(env)
  _add_groups(env, overrides)
  apply_limits(env, spec.limits)
  method.edit(env, agent)
  defaults = plain({"env": env, "agent": agent})
  env.seed = agent.seed = spec.seed
  if spec.num_envs is not None and not play:
    env.scene.num_envs = spec.num_envs
  if spec.iterations is not None:
    agent.iterations = spec.iterations
  env, agent = _apply_overrides(env, agent, spec.overrides)
  check_values(plain({"env": env, "agent": agent}), defaults, env.commands)
  check_effects(env, agent, overrides)
  return env, agent


def start_of(run: str | Path) -> dict[str, str]:
  """Fields of a RunSpec that starts from the policy of a run, checkpoint or release."""
  path = checkpoint_files.resolve(run).resolve()
  checksum = hashlib.sha256(path.read_bytes()).hexdigest()
  return {"init_from": str(path), "init_sha256": checksum}


def read_limits(path: str | Path) -> dict[str, Any]:
  """Read a YAML or JSON file of limits: constraint → number, or group → number."""
  data = read_yaml(path, "limits file")
  data = data.get("limits", data) if isinstance(data, dict) else None
  if not isinstance(data, dict):
    raise UserError(f"{path} must map constraints to limits.")
  for name, limits in data.items():
    for group, limit in (limits if isinstance(limits, dict) else {"": limits}).items():
      where = f"{name}/{group}".rstrip("/")
      number = isinstance(limit, (int, float)) and not isinstance(limit, bool)
      if not number or not 0 < limit < math.inf:
        raise UserError(
          f"{path}: the limit of '{where}' must be finite and above 0, not {limit!r}."
        )
  return data


def apply_limits(env: ConstrainedEnvCfg, limits: Mapping[str, Any]) -> None:
  """Put limits in the place of the task's; groups that are not named keep theirs."""
  for name, values in limits.items():
    check_known("constraint in the limits:", name, env.constraints)
    term, per_group = env.constraints[name], isinstance(values, dict)
    if per_group != isinstance(term.limits, dict):
      kind = "one number" if per_group else "given per group"
      raise UserError(f"The limits of '{name}' must be {kind}.")
    for group in values if per_group else ():
      check_known(f"group in the limits of '{name}':", group, env.groups)
    term.limits = {**term.limits, **values} if per_group else values


def write_spec(folder: Path, spec: RunSpec) -> None:
  """Write the description of a run into its folder, in one move."""
  write_text(folder / RUN_FILE, json.dumps(spec.to_dict(), indent=2) + "\n")


def load_spec(run: str | Path) -> RunSpec:
  """Description of a run, given its folder or one of its checkpoints."""
  path = run_folder(run) / RUN_FILE
  try:
    return RunSpec.from_dict(json.loads(path.read_text()))
  except OSError as error:
    raise UserError(f"{run} is not a run folder: it has no {RUN_FILE}.") from error
  except (ValueError, TypeError, KeyError) as error:
    raise UserError(f"{path} is damaged: {error}.") from error


def exported(folder: Path) -> int | None:
  """Iteration of a run's bundle; none where a kill came before it."""
  try:
    return json.loads((folder / "policy" / "policy.json").read_text())["iteration"]
  except (OSError, ValueError, KeyError, TypeError):
    return None


def run_folder(run: str | Path) -> Path:
  """Folder of a run, given itself or one of its checkpoints."""
  path = Path(run)
  if not path.exists():
    raise UserError(f"There is no run folder or checkpoint {path}.")
  return path.resolve().parent.parent if path.is_file() else path


def default_run_folder(root: str | Path, spec: RunSpec, label: str = "") -> Path:
  """``<root>/<task>/<timestamp>_<method>_s<seed>[_label]``."""
  from decap.tasks import folder_name

  stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
  name = f"{stamp}_{spec.method}_s{spec.seed}" + (f"_{label}" if label else "")
  return Path(root) / folder_name(spec.task) / name


def create_run_folder(
  folder: Path, spec: RunSpec, env: ConstrainedEnvCfg, agent: AgentCfg
) -> Path:
  """Create a run folder with its params, in one move; a number makes its name new."""
  import yaml

  try:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".run-") as work:
      fresh = Path(work) / folder.name
      (fresh / "params").mkdir(parents=True)
      for name, config in (("env", env), ("agent", agent)):
        text = yaml.safe_dump(plain(config), sort_keys=False)
        (fresh / "params" / f"{name}.yaml").write_text(text)
      write_spec(fresh, spec)
      count, stem = 1, folder.name
      while True:
        try:
          os.replace(fresh, folder)
          return folder
        except OSError as error:
          if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
          count += 1
          folder = folder.with_name(f"{stem}_{count}")
  except OSError as error:
    raise UserError(
      f"Cannot create the run folder {folder}: {error.strerror}."
    ) from error


def plain(value: Any) -> Any:
  """Configs as plain data: callables and other objects become names."""
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    fields = dataclasses.fields(value)
    return {field.name: plain(getattr(value, field.name)) for field in fields}
  if isinstance(value, dict):
    return {str(key): plain(item) for key, item in value.items()}
  if isinstance(value, (list, tuple)):
    return [plain(item) for item in value]
  if isinstance(value, enum.Enum):
    return value.name
  if value is None or isinstance(value, bool):
    return value
  for kind in (int, float, str):  # Subclasses, as numpy's float64, become the kind.
    if isinstance(value, kind):
      return kind(value)
  if callable(value) and hasattr(value, "__qualname__"):
    return f"{value.__module__}:{value.__qualname__}"
  return repr(value)


def _add_groups(env: ConstrainedEnvCfg, overrides: list[str]) -> None:
  """A place for each new body group whose joints the overrides name.

  tyro fills existing entries only. Limits, and the joints of the other groups, have
  to be given as well; building the environment asks for what is missing.
  """
  from decap.constraints.groups import BodyGroupCfg

  known = {name.replace("_", "-") for name in env.groups}
  for token in overrides:
    match = re.match(r"--env\.groups\.([^.=]+)\.joint[-_]names", token)
    if match and match[1].replace("_", "-") not in known:
      env.groups[match[1]] = BodyGroupCfg(joint_names=(), p_max=0.25)


def _apply_overrides(
  env: ConstrainedEnvCfg, agent: AgentCfg, overrides: tuple[str, ...]
) -> tuple[ConstrainedEnvCfg, AgentCfg]:
  """Parse ``--env.…`` and ``--agent.…`` with tyro, over the configs built so far.

  It is given those of the two that are named: an environment's takes it half a second.
  """
  if not overrides:
    return env, agent
  import mjlab

  both: dict[str, Any] = {"env": env, "agent": agent}
  named = [n for n in both if any(o.startswith(f"--{n}.") for o in overrides)]
  configs = dataclasses.make_dataclass("Configs", [(n, type(both[n])) for n in named])
  default = configs(*map(both.get, named))
  form = {"prog": "decap train", "default": default, "config": mjlab.TYRO_FLAGS}
  try:
    parsed = ask_tyro(configs, overrides, **form)
  except ValueError as error:
    raise UserError(f"An override is out of range: {error}") from error
  both |= vars(parsed)
  return both["env"], both["agent"]
