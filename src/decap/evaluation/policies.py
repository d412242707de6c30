"""Policies to evaluate: a run, a checkpoint, a bundle, or the action zero."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from decap.constraints import TerminationCfg
from decap.deploy.bundle import JSON_FILE, ONNX_FILE, bundle_name, load_bundle
from decap.errors import UserError
from decap.evaluation.layout import limits_by_row
from decap.export import CLOCK_PARAMS, torch_from_onnx

STAND = "stand"
"""Name of the policy that always returns the action zero: the default pose."""

SYMBOLS = {"rho": "ρ", "kappa": "κ"}
"""Settings of the barrier -> what labels call them."""

Act = Callable[[Mapping[str, Tensor]], Tensor]
"""From observation groups to actions [B, J]."""

_PER_JOINT = ("default_joint_pos", "action_scale", "stiffness", "damping")


@dataclass
class Policy:
  """A deterministic policy and where it comes from."""

  act: Act | None
  """None: the action zero."""
  info: dict[str, Any]
  """`source`, `name`, `method`, `seed`, `task`, `iteration`, `options` and `changes`:
  what a metrics file says about it."""
  description: dict[str, Any] | None = None
  """What a bundle says of robot and observations; None for the action zero."""

  @property
  def blind(self) -> bool:
    """Whether it does not observe a gait's clock; the action zero observes nothing."""
    terms = (self.description or {"observations": [{"name": "clock"}]})["observations"]
    return "clock" not in [term["name"] for term in terms]

  def check(self, expected: Mapping[str, Any]) -> None:
    """Refuse an environment, described as in a bundle, that it was not made for."""
    if self.description is None:
      return
    differences = describe_differences(self.description, expected)
    if differences:
      raise UserError(
        f"{self.info['source']} was not made for this task: {'; '.join(differences)}."
      )


def load_policy(source: str, device: str = "cpu") -> Policy:
  """Load `stand`, a run folder, a checkpoint or a bundle folder."""
  from decap.rl import checkpoint_files

  path = Path(source)
  if source == STAND:
    return Policy(None, _info(STAND, {"method": STAND}, {}))
  if path.is_file():
    return _from_checkpoint(path, source, device)
  if not path.is_dir():
    raise UserError(
      f"There is no run folder, checkpoint or bundle {source} (and it is not '{STAND}')."
    )
  if (path / JSON_FILE).is_file():
    return _from_bundle(path, source, device)
  checkpoints = checkpoint_files.list_checkpoints(path)
  if checkpoints:
    return _from_checkpoint(checkpoints[-1][1], source, device)
  if (path / "policy" / JSON_FILE).is_file():
    return _from_bundle(path / "policy", source, device)
  raise UserError(
    f"{source} has no policy: neither checkpoints/model_*.pt nor policy/{JSON_FILE}."
  )


def policy_name(source: str) -> str:
  """What tables and folders of results call a policy; a file after run or bundle."""
  path = Path(source)
  if not path.is_file():
    return bundle_name(path)
  folder = path.resolve().parent
  folder = folder.parent if folder.name == "checkpoints" else folder
  return f"{bundle_name(folder)}-{path.stem}"


def describe_differences(
  found: Mapping[str, Any], expected: Mapping[str, Any]
) -> list[str]:
  """What differs between two descriptions of robot, action and observation."""
  differences = []
  joints, wanted = list(found["joint_names"]), list(expected["joint_names"])
  if joints != wanted:
    odd = sorted(set(joints) ^ set(wanted))
    what = f" ({', '.join(odd)})" if odd else " in another order"
    differences.append(f"its robot has {len(joints)} joints, not {len(wanted)}{what}")
  observed, there = (
    ", ".join(f"{term['name']} {term['dim']}" for term in told["observations"])
    for told in (found, expected)
  )
  if observed != there:
    differences.append(f"it observes [{observed}], not [{there}]")
  if differences:
    return differences
  told: dict[str, str] = {}  # Of each kind the first: it may be every joint.
  numbers = _numbers(expected)
  for name, value in _numbers(found).items():
    if name not in numbers:  # Bundles of the first schema do not tell of the clock.
      continue
    a, b = (np.array(v, float) for v in (value, numbers[name]))  # NaN for none.
    if not np.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True):
      told.setdefault(name.split()[0], f"{name} is {value}, not {numbers[name]}")
  return list(told.values())


def _numbers(told: Mapping[str, Any]) -> dict[str, Any]:
  """All that a policy counts on, by what it is called."""
  joints = {
    f"{key} of {joint}": value
    for key in _PER_JOINT
    for joint, value in zip(told["joint_names"], told[key], strict=True)
  }
  terms = {
    f"{key} of observation {term['name']}": term[key]
    for key in ("scale", "clip", *CLOCK_PARAMS)
    for term in told["observations"]
    if key in term
  }
  return {**joints, "control_dt_s": told["control_dt_s"], **terms}


# Sources.


def _from_checkpoint(path: Path, source: str, device: str) -> Policy:
  from decap.rl import checkpoint
  from decap.rl.modules import policy_from_state

  state = checkpoint.load(path)
  description = {**state["policy"], "iteration": state["iter"]}
  info = _info(source, description, state.get("run", {}))
  return Policy(policy_from_state(state, device), info, description)


def _from_bundle(path: Path, source: str, device: str) -> Policy:
  description = load_bundle(path).info
  network = torch_from_onnx((path / ONNX_FILE).read_bytes(), device)
  info = _info(source, description, description.get("run", {}))
  return Policy(lambda obs: network(obs["actor"]), info, description)


def _info(
  source: str, description: Mapping[str, Any], run: Mapping[str, Any]
) -> dict[str, Any]:
  # Environment steps of the training; nothing where an older one did not say.
  samples = (description.get("samples_per_iteration") or 0) * (
    description.get("iteration") or 0
  )
  return {
    "name": policy_name(source),
    "source": source,
    **{key: description.get(key) for key in ("method", "seed", "task", "iteration")},
    **({"samples": samples} if samples else {}),
    "options": _options(description, run),
    "changes": {**_overrides(run), **limits_by_row(run.get("limits") or {})},
  }


def _overrides(run: Mapping[str, Any]) -> dict[str, str]:
  """Fields of the configs that a run changed, by their whole names."""
  found: dict[str, str] = {}
  name = ""
  for token in run.get("overrides", ()):
    if token.startswith("--"):
      name, _, found[name] = token.removeprefix("--").partition("=")
    else:
      found[name] = f"{found[name]} {token}".strip()
  return found


def _options(description: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, str]:
  """What sets a run apart from its method's defaults, for the label of its row."""
  options = {}
  for key, symbol in SYMBOLS.items():
    default = getattr(TerminationCfg(), key)
    value = description.get("constraints", {}).get(key, default)
    if value != default:
      options[symbol] = f"{value:g}"
  for name, value in _overrides(run).items():
    if name.removeprefix("env.termination.") not in SYMBOLS:
      # Weights of two rewards, for example, are told apart.
      options[".".join(name.split(".")[-2:])] = value
  if run.get("blind"):
    options["blind"] = "yes"
  if run.get("limits"):
    options["limits"] = "own"
  if run.get("init_sha256"):
    options["from"] = "a policy"  # Seeds may each go on from their own.
  return options
