"""Tables of docs/tasks.md, from the configs of the tasks.

`python docs/tools/task_tables.py` writes them into the page; a test compares.
"""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path
from typing import Any

from decap.export import MEANINGS
from decap.tasks import TASKS, env_cfg

PAGE = Path(__file__).parents[1] / "tasks.md"
TASK = "g1-flat"
UNITS = {"lin_vel_x": "m/s", "lin_vel_y": "m/s", "ang_vel_z": "rad/s"}
EVENTS = {
  "reset_base": "place and heading at the start: x, y in m, yaw in rad",
  "reset_joints": "joints at the start: position in rad, velocity in rad/s",
  "push": "change of the base's velocity, x and y, m/s",
  "friction": "friction of the feet",
  "torso_mass": "mass added to the torso, kg",
}


def tables() -> dict[str, str]:
  """Name of a table → its Markdown."""
  cfg = env_cfg(TASK)
  joints = len(TASKS[TASK].describe().joint_names)
  return {
    "tasks": _table(
      "task", "robot, command, ground", [(f"`{n}`", t) for n, t in TASKS.items()]
    ),
    "observations": _observations(cfg, joints),
    "rewards": _table(
      *("reward", "weight", "what"),
      [(f"`{n}`", f"{r.weight:g}", _with_numbers(r)) for n, r in cfg.rewards.items()],
    ),
    "times": _times(cfg),
    "commands": _commands(cfg),
    "randomisation": _table(
      *("event", "when", "what", "range"),
      [
        (f"`{n}`", _when(e), EVENTS.get(n) or _first(e.func), _ranges(e.params))
        for n, e in cfg.events.items()
      ],
    ),
    "terminations": _table(
      *("end", "what"),
      [
        (f"`{n}`", _with_numbers(t))
        for n, t in env_cfg("g1-rough").terminations.items()
      ],
    ),
    "terrain": _terrain(),
  }


def page(text: str) -> str:
  """The page with today's tables between their marks."""
  for name, table in tables().items():
    mark = re.compile(rf"(<!-- {name} -->\n).*?(<!-- / -->)", re.DOTALL)
    assert mark.search(text), f"tasks.md has no place for '{name}'"
    text = mark.sub(lambda m, t=table: f"{m[1]}{t}\n{m[2]}", text)
  return text


def _table(*parts: Any) -> str:
  *header, rows = parts
  lines = [header, ["---"] * len(header), *rows]
  return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _observations(cfg: Any, joints: int) -> str:
  sizes = {"base_lin_vel": 3, "base_ang_vel": 3, "projected_gravity": 3}
  sizes |= {"command": 3, "clock": 2}
  actor, rows = cfg.observations["actor"].terms, []
  for name, term in {**actor, **cfg.observations["critic"].terms}.items():
    meaning = (
      MEANINGS.get(name) or MEANINGS.get(term.func.__name__) or _first(term.func)
    )
    noise = (
      f"± {actor[name].noise.n_max:g}" if name in actor and actor[name].noise else ""
    )
    seen = "both" if name in actor else "critic"
    rows.append(
      (f"`{name}`", sizes.get(name, joints), seen, noise, meaning.split(";")[0])
    )
  return _table("observation", "entries", "seen by", "noise", "what", rows)


def _commands(cfg: Any) -> str:
  trained, judged = cfg.commands["twist"].ranges, cfg.following.judged
  rows = [
    (
      f"`{name}`",
      f"{_range(getattr(trained, name))} {unit}",
      f"{_range(judged[name])} {unit}",
    )
    for name, unit in UNITS.items()
  ]
  return _table("command", "in training", "in evaluation", rows)


def _times(cfg: Any) -> str:
  command, physics_s = cfg.commands["twist"], cfg.sim.mujoco.timestep
  rows = [
    ("physics", f"{1e3 * physics_s:g} ms"),
    ("policy", f"{1e3 * physics_s * cfg.decimation:g} ms"),
    ("episode", f"{cfg.episode_length_s:g} s"),
    ("a new command", f"every {command.resampling_time_range[0]:g} s"),
    ("share of robots told to stand", f"{100 * command.rel_standing_envs:g} %"),
  ]
  return _table("step or event", "how long", rows)


def _with_numbers(term: Any) -> str:
  numbers = [
    f"{name} {value:g}"
    for name, value in term.params.items()
    if isinstance(value, float)
  ]
  return _first(term.func) + (f" ({', '.join(numbers)})" if numbers else "")


def _when(event: Any) -> str:
  if event.mode == "interval":
    return f"every {event.interval_range_s[0]:g} s"
  return {"startup": "once per environment", "reset": "each episode"}[event.mode]


def _ranges(params: dict[str, Any]) -> str:
  found = []
  for name, value in params.items():
    if isinstance(value, dict):
      found += [f"{axis} {_range(limits)}" for axis, limits in value.items()]
    elif isinstance(value, tuple) and isinstance(value[0], float):
      prefix = name.removesuffix("_range") + " " if name.endswith("_range") else ""
      found.append(prefix + _range(value))
  return ", ".join(found)


def _range(limits: tuple[float, float]) -> str:
  low, high = (
    "π" if v == math.pi else "−π" if v == -math.pi else f"{v:g}" for v in limits
  )
  return low if low == high else f"{low} to {high}"


def _terrain() -> str:
  generator = env_cfg("g1-rough").scene.terrain.terrain_generator
  rows = []
  for name, ground in generator.sub_terrains.items():
    kind = next(
      k
      for k in ("slope_range", "noise_range", "step_height_range")
      if hasattr(ground, k)
    )
    unit = "rise per metre" if kind == "slope_range" else "m"
    rows.append((f"`{name}`", f"{_range(getattr(ground, kind))} {unit}"))
  return _table("ground", "flat to hard", rows)


def _first(function: Any) -> str:
  text = inspect.cleandoc(function.__doc__ or function.__name__).splitlines()[0]
  return text.split(" # ")[0].rstrip(".").replace("|", "\\|")


if __name__ == "__main__":
  PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
