"""Files with something wrong in them, for tests/test_bad_inputs.py.

Each table says by name what the sentence about a file must hold.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

RELEASED = Path(__file__).parents[1] / "policies" / "g1-flat-decap"


def _without(*place: Any) -> Callable[[Any], None]:
  def edit(data: Any) -> None:
    for key in place[:-1]:
      data = data[key]
    del data[place[-1]]

  return edit


def _with(value: Any, *place: Any) -> Callable[[Any], None]:
  def edit(data: Any) -> None:
    for key in place[:-1]:
      data = data[key]
    data[place[-1]] = value

  return edit


def _reversed_joints(info: Any) -> None:
  for key in ("joint_names", "default_joint_pos", "stiffness", "damping"):
    info[key].reverse()
  info["action_scale"].reverse()


_BUNDLE_EDITS: dict[str, tuple[Callable[[Any], None], str]] = {
  "no-mark": (_without("format"), "is not a decap policy"),
  "old-schema": (_with(0, "schema"), "has schema 0"),
  "new-schema": (_with(99, "schema"), "has schema 99"),
  "no-joints": (_without("joint_names"), "lacks joint_names"),
  "no-gains": (_without("stiffness"), "lacks stiffness"),
  "no-task": (_without("task"), "lacks task"),
  "fewer-gains": (_with([1.0], "stiffness"), "'stiffness' has 1 values for 29"),
  "infinite-gain": (_with(math.inf, "stiffness", 0), "not finite"),
  "word-gain": (_with("stiff", "stiffness", 0), "is damaged"),
  "gains-as-text": (_with("stiff", "stiffness"), "has 5 values for 29"),
  "gains-as-number": (_with(3, "stiffness"), "is damaged"),
  "softer": (_with(1.0, "stiffness", 0), "was changed after the export"),
  "reversed-joints": (_reversed_joints, "was changed after the export"),
  "no-observations": (_with([], "observations"), "describes 0"),
  "observations-as-text": (_with("all", "observations"), "is damaged"),
  "short-scale": (_with([1.0], "observations", 0, "scale"), "1 scales"),
  "other-checksum": (_with("0" * 64, "onnx_sha256"), "does not match the checksum"),
  "checksum-as-number": (_with(1, "onnx_sha256"), "checksum"),
  "null-commands": (_with(None, "command_ranges"), "is no table of ranges"),
  "text-step": (_with("fast", "control_dt_s"), "is damaged: 'control_dt_s' holds str"),
  "no-clip": (_without("observations", 0, "clip"), "lacks clip"),
  "turned-clip": (_with([1, -1], "observations", 0, "clip"), "two rising numbers"),
  "huge-gain": (_with(10**400, "stiffness", 0), "not finite"),
  "listed-joint": (_with([], "joint_names", 0), "is no list of names"),
  "slower": (_with(0.1, "control_dt_s"), "was changed after the export"),
}
_BUNDLE_TEXTS = {
  "empty-json": ("", "is not valid JSON"),
  "half-json": ('{"format": "decap-po', "is not valid JSON"),
  "list-json": ("[]", "is not a decap policy"),
}
BUNDLES = {
  **{name: message for name, (_, message) in _BUNDLE_EDITS.items()},
  **{name: message for name, (_, message) in _BUNDLE_TEXTS.items()},
  "no-network": "Cannot read",
  "junk-network": "is not a network in ONNX format",
  "empty-network": "is not a network in ONNX format",
}

_METRICS_EDITS: dict[str, tuple[Callable[[Any], None], str]] = {
  "m-no-mark.json": (_without("format"), "is not a metrics file"),
  "m-no-schema.json": (_without("schema"), "lacks schema"),
  "m-new-schema.json": (_with(99, "schema"), "has schema 99"),
  "m-no-policy.json": (_without("policy"), "lacks policy"),
  "m-no-protocol.json": (_without("protocol"), "lacks protocol"),
  "m-no-steps.json": (_without("protocol", "steps"), "lacks protocol.steps"),
  "m-no-layout.json": (_without("layout"), "lacks layout"),
  "m-no-groups.json": (_without("layout", "groups"), "lacks 'groups'"),
  "m-no-limits.json": (_without("layout", "limits"), "lacks 'limits'"),
  "m-no-metrics.json": (_without("metrics"), "lacks metrics"),
  "m-no-tracking.json": (_without("metrics", "tracking"), "lacks metrics.tracking"),
  "m-list.json": (_with([], "metrics"), "lacks metrics"),
  "m-word.json": (
    _with("much", "metrics", "tracking", "error_x", "mean"),
    "lacks a number at metrics.tracking.error_x.mean",
  ),
}
METRICS = {
  **{name: message for name, (_, message) in _METRICS_EDITS.items()},
  "m-empty.json": "is not a metrics file",
  "m-binary.json": "is not a metrics file",
}

_SWEEP = {"task": "g1-flat", "iterations": 10, "num-envs": 8}
_SWEEP_EDITS: dict[str, tuple[dict[str, Any], str]] = {
  "s-key.yaml": ({"methods": ["decap"]}, "unknown key 'methods'"),
  "s-task.yaml": ({"task": "g2"}, "Unknown task 'g2'"),
  "s-own-task.yaml": ({"task": "own_fine:walk"}, "'own_fine' has no 'walk'"),
  "s-no-task.yaml": ({"task": None}, "'task' is missing"),
  "s-method.yaml": ({"method": "decup"}, "Unknown method 'decup'"),
  "s-twice.yaml": ({"seed": [1, 1]}, "two runs are called"),
  "s-seed.yaml": ({"seed": -1}, "'seed' must be"),
  "s-huge-seed.yaml": ({"seed": 2**40}, "below 2^32"),
  "s-word-seed.yaml": ({"seed": "one"}, "'seed' must be"),
  "s-length.yaml": ({"iterations": 0}, "'iterations' must be"),
  "s-envs.yaml": ({"num-envs": "many"}, "'num-envs' must be"),
  "s-huge.yaml": ({"num-envs": 10**9}, "1000000000 environments need"),
  "s-jobs.yaml": ({"jobs": 0}, "'jobs' must be"),
  "s-many-jobs.yaml": ({"jobs": 10**6}, "too many for this machine"),
  "s-device.yaml": ({"backend": "isaac"}, "'backend' must be"),
  "s-runs.yaml": ({"runs": {"method": "cat"}}, "'runs' must be a list"),
  "s-block.yaml": ({"runs": [{"jobs": 3}]}, "unknown key 'jobs'"),
  "s-no-runs.yaml": ({"runs": []}, "there are no runs"),
  "s-no-seeds.yaml": ({"seed": []}, "there are no runs"),
  "s-no-values.yaml": ({"grid": {"env.termination.kappa": []}}, "there are no runs"),
  "s-word-steps.yaml": (
    {"overrides": {"agent.num-steps-per-env": "many"}},
    "num-steps-per-env",
  ),
  "s-time.yaml": ({"cluster": {"time": "soon"}}, "is no duration"),
  "s-override.yaml": ({"overrides": {"kappa": 3}}, "must begin with"),
  "s-overrides.yaml": ({"overrides": [1]}, "must map options"),
  "s-field.yaml": ({"overrides": {"agent.colour": "red"}}, "colour"),
  "s-value.yaml": ({"overrides": {"env.termination.rho": 2}}, "rho must be in"),
  "s-nan.yaml": (
    {"overrides": {"env.rewards.track-xy.weight": math.nan}},
    "--env.rewards.track-xy.weight must be finite",
  ),
  "s-variance.yaml": (
    {"overrides": {"env.rewards.track-xy.params.variance": 0}},
    "variance must be above 0, not 0",
  ),
  "s-evaluate.yaml": ({"evaluate": "yes"}, "'evaluate' must be"),
  "s-steps.yaml": ({"evaluate": {"steps": 10}}, "'steps' must be above 50"),
  "s-huge-evaluate.yaml": ({"evaluate": {"envs": 10**9}}, "'evaluate': 5000000448"),
  "s-evaluate-backend.yaml": ({"evaluate": {"backend": "isaac"}}, "'backend' must be"),
  "s-evaluate-limits.yaml": ({"evaluate": {"limits": "l-one.json"}}, "No such file"),
  "s-commands.yaml": (
    {"evaluate": {"commands": "switching", "command": [0.5, 0, 0]}},
    "'command' and 'commands' switching exclude each other",
  ),
  "s-blind.yaml": ({"blind": "very"}, "'blind' must be true or false"),
  "s-limits.yaml": ({"limits": "nowhere.yaml"}, "No such file"),
}
SWEEPS = {
  **{name: message for name, (_, message) in _SWEEP_EDITS.items()},
  "s-list.yaml": "maps keys to values",
  "s-broken.yaml": "is not YAML",
}

_LIMITS_TEXTS = {
  "l-list.yaml": ("- 1", "must map constraints"),
  "l-broken.yaml": ("a: [1", "is not YAML"),
  "l-zero.yaml": ("joint_vel: {upper: 0}", "'joint_vel/upper' must be finite"),
  "l-nan.yaml": ("joint_vel: {upper: .nan}", "'joint_vel/upper' must be finite"),
  "l-yes.yaml": ("joint_vel: {upper: yes}", "'joint_vel/upper' must be finite"),
  "l-word.yaml": ("joint_vel: {upper: fast}", "'joint_vel/upper' must be finite"),
  "l-name.yaml": (
    "joint_speed: {upper: 1}",
    "Unknown constraint in the limits: 'joint_speed'",
  ),
  "l-group.yaml": ("joint_vel: {tail: 1}", "limits of 'joint_vel': 'tail'"),
  "l-one.yaml": ("joint_vel: 1", "given per group"),
  "l-inner.yaml": ("limits: [1]", "must map constraints"),
}
LIMITS = {name: message for name, (_, message) in _LIMITS_TEXTS.items()}

_RUN_TEXTS = {
  "r-half": ('{"task": "g1-fl', "run.json is damaged"),
  "r-list": ("[]", "run.json is damaged"),
  "r-empty": ("{}", "run.json is damaged"),
  "r-text": ('"g1-flat"', "run.json is damaged"),
  "r-number": (
    '{"task": 5, "method": "decap", "overrides": []}',
    "Unknown task '5'",
  ),
  "r-stranger": (
    '{"task": "stranger:task", "method": "decap", "overrides": []}',
    "'stranger:task' is not one of decap's, and is not imported because a file says so",
  ),
}
RUNS = {
  **{name: message for name, (_, message) in _RUN_TEXTS.items()},
  "r-nothing": "is not a run folder",
}


MODULES = {
  "stranger.py": "raise SystemExit('imported')",
  "own_fine.py": "from decap.tasks import Task\nhop = Task()\nheight_m = 0.3",
  "own_divides.py": "\n1 / 0",
  "own_typo.py": "def",
  "own_needs.py": "import no_such_module",
}
"""Of tasks of one's own."""


def write_files(folder: Path) -> None:
  """Put all of them into a folder, and what is good beside them."""
  (folder / "empty").mkdir()
  (folder / "good").symlink_to(RELEASED)
  metrics = (RELEASED / "metrics.json").read_text()
  (folder / "metrics.json").write_text(metrics)
  for name, (edit, _) in _METRICS_EDITS.items():
    data = json.loads(metrics)
    edit(data)
    (folder / name).write_text(json.dumps(data))
  (folder / "m-empty.json").touch()
  (folder / "m-binary.json").write_bytes(b"\xff\xfe\x00")
  _write_bundles(folder)
  (folder / "good.yaml").write_text(json.dumps(_SWEEP))
  for name, (change, _) in _SWEEP_EDITS.items():
    (folder / name).write_text(json.dumps({**_SWEEP, **change}))
  (folder / "s-list.yaml").write_text("- 1")
  (folder / "s-broken.yaml").write_text("a: [1")
  for name, (text, _) in _LIMITS_TEXTS.items():
    (folder / name).write_text(text)
  for name, (text, _) in _RUN_TEXTS.items():
    _write_run(folder / name, text)
  _write_run(folder / "r-nothing", None)
  spec = {"task": "g1-flat", "method": "decap", "overrides": []}
  _write_run(folder / "run", json.dumps(spec))
  for name, text in MODULES.items():
    (folder / name).write_text(text)


def _write_bundles(folder: Path) -> None:
  onnx = RELEASED / "policy.onnx"
  good = json.loads((RELEASED / "policy.json").read_text())
  infos = {}
  for name, (edit, _) in _BUNDLE_EDITS.items():
    info = copy.deepcopy(good)
    edit(info)
    infos[name] = json.dumps(info)
  infos |= {name: text for name, (text, _) in _BUNDLE_TEXTS.items()}
  for name, text in infos.items():
    (folder / name).mkdir()
    (folder / name / "policy.json").write_text(text)
    (folder / name / "policy.onnx").symlink_to(onnx)
  for name, network in (("no", None), ("junk", b"not a network"), ("empty", b"")):
    path = folder / f"{name}-network"
    path.mkdir()
    # A checksum that fits says nothing about what is in the file.
    digest = hashlib.sha256(network or b"").hexdigest()
    (path / "policy.json").write_text(json.dumps({**good, "onnx_sha256": digest}))
    if network is not None:
      (path / "policy.onnx").write_bytes(network)


def _write_run(folder: Path, spec: str | None) -> None:
  """A run folder with a checkpoint that would be found."""
  (folder / "checkpoints").mkdir(parents=True)
  (folder / "checkpoints" / "model_3.pt").write_text("not a checkpoint")
  if spec is not None:
    (folder / "params").mkdir()
    (folder / "params" / "run.json").write_text(spec)
