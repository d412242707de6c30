import re
from pathlib import Path

import torch

PAGE = Path(__file__).parents[2] / "docs" / "constraints.md"


def test_the_example_of_the_page_gives_the_values_it_names():
  (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
  names: dict = {}
  exec(compile(example, str(PAGE), "exec"), names)
  torch.testing.assert_close(names["alive"], torch.tensor([1.0, 0.8125, 0.0]))
