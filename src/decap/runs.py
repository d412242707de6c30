"""Runs: what was asked for, the configs that follow from it, and the run folder.

A run is described by plain data (task, method, seed, overrides), which is written
beside its results. Playing, exporting or continuing it rebuilds the same configs from
that description; nothing is unpickled. Importing this file is cheap.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import io
import json
import math
import os
import re
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decap.errors import UserError, box_sentence, unknown
from decap.methods import (
  check_effects,
  check_options,
  get_method,
)
from decap.rl import checkpoint_files

if TYPE_CHECKING:
  from decap.envs.constrained_env import ConstrainedEnvCfg
  from decap.rl.config import AgentCfg

RUN_FILE = "params/run.json"


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
  env.seed = agent.seed = spec.seed
  if spec.num_envs is not None and not play:
    env.scene.num_envs = spec.num_envs
  if spec.iterations is not None:
    agent.iterations = spec.iterations
  defaults = plain({"env": env, "agent": agent})
  env, agent = _apply_overrides(env, agent, spec.overrides)
  _check_values(plain({"env": env, "agent": agent}), defaults, env.commands)
  check_effects(env, agent, overrides)
  _check_sizes(env)
  return env, agent


def start_of(run: str | Path) -> dict[str, str]:
  """Fields of a RunSpec that starts from the policy of a run, checkpoint or release."""
  path = checkpoint_files.resolve(run).resolve()
  checksum = hashlib.sha256(path.read_bytes()).hexdigest()
  return {"init_from": str(path), "init_sha256": checksum}


def read_limits(path: str | Path) -> dict[str, Any]:
  """Read a YAML or JSON file of limits: constraint → number, or group → number."""
  import yaml

  try:
    data = yaml.safe_load(Path(path).read_text())
  except OSError as error:
    raise UserError(f"Cannot read the limits file {path}: {error.strerror}.") from error
  except (yaml.YAMLError, UnicodeDecodeError) as error:
    raise UserError(f"{path} is neither YAML nor JSON.") from error
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
    if name not in env.constraints:
      raise UserError(
        f"The limits name an unknown constraint '{name}' "
        f"(there are {', '.join(env.constraints)})."
      )
    term = env.constraints[name]
    if isinstance(values, dict) != isinstance(term.limits, dict):
      raise UserError(
        f"The limits of '{name}' must be "
        + ("given per group." if isinstance(term.limits, dict) else "one number.")
      )
    if isinstance(values, dict) and isinstance(term.limits, dict):
      others = values.keys() - env.groups.keys()
      if others:
        raise UserError(
          f"The limits of '{name}' name an unknown group '{min(others)}' "
          f"(there are {', '.join(env.groups)})."
        )
      term.limits = {**term.limits, **values}
    else:
      term.limits = values


def write_spec(folder: Path, spec: RunSpec) -> None:
  """Write the description of a run into its folder, in one move."""
  work = folder / f"{RUN_FILE}.new"
  work.write_text(json.dumps(spec.to_dict(), indent=2) + "\n")
  os.replace(work, folder / RUN_FILE)


def load_spec(run: str | Path) -> RunSpec:
  """Description of a run, given its folder or one of its checkpoints."""
  path = run_folder(run) / RUN_FILE
  try:
    return RunSpec.from_dict(json.loads(path.read_text()))
  except OSError as error:
    raise UserError(f"{run} is not a run folder: it has no {RUN_FILE}.") from error
  except (ValueError, TypeError, KeyError) as error:
    raise UserError(f"{path} is damaged: {error}.") from error


def run_folder(run: str | Path) -> Path:
  """Folder of a run, given itself or one of its checkpoints."""
  path = Path(run)
  if not path.exists():
    raise UserError(f"There is no run folder or checkpoint {path}.")
  return path.resolve().parent.parent if path.is_file() else path


def default_run_folder(root: str | Path, spec: RunSpec, label: str = "") -> Path:
  """``<root>/<task>/<timestamp>_<method>_s<seed>[_label]``, not yet existing."""
  stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
  name = f"{stamp}_{spec.method}_s{spec.seed}" + (f"_{label}" if label else "")
  folder = Path(root) / spec.task / name
  count = 2
  while folder.exists():
    folder = folder.with_name(f"{name}_{count}")
    count += 1
  return folder


def create_run_folder(
  folder: Path, spec: RunSpec, env: ConstrainedEnvCfg, agent: AgentCfg
) -> None:
  """Create a run folder with its params, in one move."""
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
      os.replace(fresh, folder)
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
  """Parse ``--env.…`` and ``--agent.…`` with tyro, over the configs built so far."""
  if not overrides:
    return env, agent
  import mjlab
  import tyro

  configs = dataclasses.make_dataclass(
    "Configs", [("env", type(env)), ("agent", type(agent))]
  )
  default = configs(env=env, agent=agent)
  messages = io.StringIO()
  try:
    with contextlib.redirect_stderr(messages), contextlib.redirect_stdout(messages):
      parsed = tyro.cli(
        configs, args=overrides, default=default, config=mjlab.TYRO_FLAGS
      )
  except SystemExit as error:
    if not error.code:  # --help among the overrides.
      print(messages.getvalue())
      raise
    raise UserError(box_sentence(messages.getvalue())) from None
  except ValueError as error:
    raise UserError(f"An override is out of range: {error}") from error
  return parsed.env, parsed.agent


def _check_sizes(env: ConstrainedEnvCfg) -> None:
  """mjlab would fail on these much later, and less clearly."""
  for option, value in (
    ("scene.num-envs", env.scene.num_envs),
    ("decimation", env.decimation),
    ("episode-length-s", env.episode_length_s),
    ("sim.mujoco.timestep", env.sim.mujoco.timestep),
  ):
    if not value > 0:
      raise UserError(f"--env.{option} must be above 0, not {value}.")


def _check_values(
  value: Any, default: Any, commands: Collection[str], path: tuple[str, ...] = ()
) -> None:
  """Refuse what only a later step, or nobody, would notice; both are plain data.

  Numbers that are not finite where the defaults are, ranges from high to low, shares
  beyond 0 and 1, and commands that do not exist.
  """
  if isinstance(value, dict):
    before = default if isinstance(default, dict) else {}
    for key, item in value.items():
      _check_values(item, before.get(key), commands, (*path, key))
    return
  option = "--" + ".".join(path).replace("_", "-")
  if isinstance(value, list):
    before = default if isinstance(default, list) else []
    for index, item in enumerate(value):
      known = before[index] if index < len(before) else None
      _check_values(item, known, commands, path)
    _check_range(value, option)
  elif isinstance(value, float) and not math.isfinite(value) and value != default:
    raise UserError(f"{option} must be finite, not {value}.")
  elif isinstance(value, (int, float)) and re.search(r"rel-.*-envs|-standing$", option):
    if not 0 <= value <= 1:
      raise UserError(f"{option} must be between 0 and 1, not {value}.")
  elif option.endswith(".command-name") and value not in (None, *commands):
    raise unknown(f"command of {option}", value, commands)


def _check_range(value: list[Any], option: str) -> None:
  if len(value) != 2 or not all(isinstance(item, (int, float)) for item in value):
    return
  # The entry of a range, or of a table of ranges.
  if not any(re.search(r"range|judged", p) for p in option.split(".")[-2:]):
    return
  low, high = value
  if low > high:
    raise UserError(f"{option} must go from low to high, not from {low} to {high}.")
  if re.search(r"time-range$|range-s$", option) and low <= 0:
    raise UserError(f"{option} must be above 0, not {low}.")
