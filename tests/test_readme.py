"""The example of the README runs as it is printed."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_example_of_the_readme_trains_a_constrained_go1():
  (example,) = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
  names: dict = {}
  exec(compile(example, str(README), "exec"), names)
  assert names["runner"].iteration == 2
  assert names["env"].constraint_manager.cost_names == (
    "action_rate/front",
    "action_rate/rear",
    "joint_vel/front",
    "joint_vel/rear",
    "tilt",
  )


def test_the_readme_names_every_method_and_command():
  from decap.cli import COMMANDS
  from decap.methods import METHODS

  text = README.read_text("utf-8")
  for name in METHODS:
    assert f"| `{name}` |" in text
  for name in COMMANDS:
    assert f"decap {name}" in text or f"make {name}" in text, name
