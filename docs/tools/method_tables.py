"""The options table of docs/methods.md, from the configs of the methods.

`python docs/tools/method_tables.py` writes it into the page, rows in the order that they
have there and new ones last; a test compares.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from pathlib import Path
from typing import Any

from decap.errors import UserError
from decap.methods import METHODS
from decap.options.overrides import check_options
from decap.rl.config import PpoCfg
from decap.runs import RunSpec, build_configs

PAGE = Path(__file__).parents[1] / "methods.md"
TASK = "g1-flat"
HEAD = "| option | default | taken by |\n|---|---|---|\n"

Configs = dict[str, tuple[Any, Any]]
"""Method → its configs of environment and agent."""


def page(text: str) -> str:
  """The page with its table written anew."""
  configs = {name: build_configs(RunSpec(TASK, name)) for name in METHODS}
  start = text.index(HEAD) + len(HEAD)
  end = text.index("\n\n", start)
  shown = re.findall(r"^\| `--(\S+)` \|", text[start:end], re.MULTILINE)
  rows = [_row(option, configs) for option in dict.fromkeys((*shown, *_own(configs)))]
  return text[:start] + "\n".join(row for row in rows if row) + text[end:]


def _own(configs: Configs) -> list[str]:
  """Options that no run of another kind has: of the rule, the aid and the algorithms."""
  shared = {field.name for field in dataclasses.fields(PpoCfg)} - {"reward_rule"}
  found = {}
  for env, agent in configs.values():
    aid = agent.algorithm.feasibility
    fields = {
      "env.termination": vars(env.termination),
      "agent.algorithm.feasibility": vars(aid) if aid else (),
      "agent.algorithm": [n for n in vars(agent.algorithm) if n not in shared],
    }
    found |= dict.fromkeys(
      f"{p}.{name}" for p, names in fields.items() for name in names
    )
    found |= dict.fromkeys(f"env.groups.{group}.p-max" for group in env.groups)
  return [option.replace("_", "-") for option in found]


def _row(option: str, configs: Configs) -> str:
  """Its default, with those of single methods behind it; empty if nobody takes it."""
  values = {
    name: str(_value(pair, option))
    for name, pair in configs.items()
    if _takes(name, pair, option)
  }
  if not values:
    return ""
  usual = Counter(values.values()).most_common(1)[0][0]
  others = [f"; `{n}`: {value}" for n, value in values.items() if value != usual]
  taken_by = ", ".join(f"`{name}`" for name in values)
  return f"| `--{option}` | {usual}{''.join(others)} | {taken_by} |"


def _takes(method: str, configs: tuple[Any, Any], option: str) -> bool:
  try:
    check_options(METHODS[method], [f"--{option}", "1"])
    _value(configs, option)
  except (UserError, KeyError, TypeError):
    return False
  return True


def _value(configs: tuple[Any, Any], option: str) -> Any:
  """Value of the field that an option sets; KeyError where there is none."""
  value: Any = dict(zip(("env", "agent"), configs, strict=True))
  for part in option.replace("-", "_").split("."):
    value = value[part] if isinstance(value, dict) else vars(value)[part]
  return value


if __name__ == "__main__":
  PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
