"""The paper's page and tables are what the files in results/paper say."""

import copy
import dataclasses
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from decap.evaluation.protocol import Protocol
from decap.evaluation.results import Result, load_result
from decap.rl.config import AgentCfg
from decap.rl.curves import Curves
from decap.runs import write_spec
from tests.evaluation.synthetic import make_trajectory, metrics_of_trajectory

ROOT = Path(__file__).parents[1]
sys.path.append(
  str(ROOT / "docs" / "tools")
)  # No package; last, since it has a site.py.

import paper  # noqa: E402
import paper_collect  # noqa: E402
import paper_rows  # noqa: E402

AGAIN = "run make tables"


def test_the_page_and_the_files_are_todays():
  text = paper.PAGE.read_text("utf-8")
  assert paper.page(text) == text, AGAIN
  assert (paper.RESULTS / "tables.tex").read_text("utf-8") == paper.latex(), AGAIN
  assert (paper.RESULTS / "tables.html").read_text("utf-8") == paper.html(), AGAIN


def test_figures_are_drawn_from_todays_files():
  for name in paper.figure_captions(paper.RESULTS):
    drawn = Image.open(paper.FIGURES / f"{name}.png").info["Description"]
    assert drawn == paper.digest(paper.sources()), AGAIN
  walked = Image.open(paper.FIGURES / "tracking.png").info["Description"]
  assert walked == paper.digest(paper.moving()), "run make motion"


@pytest.fixture(scope="module")
def template():
  trajectory = make_trajectory()
  metrics = metrics_of_trajectory(trajectory)
  metrics["falls_per_minute"]["mean"] = 0.0
  metrics["gait"]["correlation"]["mean"] = -0.5
  metrics["gait"]["flight"]["mean"] = 0.0
  return Result({}, trajectory.protocol, trajectory.layout, metrics)


@pytest.fixture
def root(tmp_path):
  for name in ("values.yaml", "gpu.yaml"):
    shutil.copy(paper.RESULTS / name, tmp_path)
  return tmp_path


def put(root, template, row, seed, rate, *, task="g1-flat", followed=0.9, **more):
  """A result whose upper action rate is `rate`; its curve if there are seconds."""
  result = copy.deepcopy(template)
  method = more.get("method", row)
  result.policy = {"name": row, "method": method, "seed": more.get("policy_seed", seed)}
  result.protocol["task"] = task
  result.protocol["disturbed"] = more.get("disturbed", False)
  result.metrics["tracking"]["followed"]["mean"] = followed
  result.metrics["smoothness"]["upper"]["action_rate"]["mean"] = rate
  if "above" in more:
    rates = result.metrics["violations"]["upper"]["action_rate"]
    rates["any_joint"]["mean"] = more["above"]
  (root / task).mkdir(exist_ok=True)
  suffix = "-disturbed" if more.get("disturbed") else ""
  result.save(root / task / f"{row}-{seed}{suffix}.json")
  if seconds := more.get("seconds"):
    rows = [f"{10 * (i + 1)},{s},{(i + 1) * 2e7},0.5" for i, s in enumerate(seconds)]
    text = "\n".join(["iteration,seconds,samples,followed_fast", *rows]) + "\n"
    (root / task / f"{row}-{seed}.csv").write_text(text)
  if deltas := more.get("deltas"):
    rows = [f"{i},{i},{i * 1e6},{d},{a}" for i, (d, a) in enumerate(deltas, 1)]
    text = "\n".join(["iteration,seconds,samples,delta,delta_applied", *rows]) + "\n"
    (root / task / f"{row}-{seed}.csv").write_text(text)


def lines(root) -> list[str]:
  return paper.page(paper.PAGE.read_text("utf-8"), root).splitlines()


def test_nothing_is_there_yet(root):
  text = "\n".join(lines(root))
  assert text.count(paper.NOTHING) == len(paper.SECTIONS)
  assert "| too few methods yet | – |" in text and "figures/paper/trade-off" not in text
  assert paper.latex(root) == "% No runs yet.\n" and paper.NOTHING in paper.html(root)
  assert paper.draw(root, root / "figures") == []


def test_one_seed_of_one_method(root, template, tmp_path):
  put(root, template, "decap", 1, 0.5)
  text = lines(root)
  (row,) = [
    line for line in text if line.startswith("| upper | DeCap (n = 1) | 0.50 ±")
  ]
  assert "[±" not in row and "×" not in row
  drawn = paper.draw(root, tmp_path / "figures")
  assert [path.stem for path in drawn] == ["trade-off", "distributions"]
  assert Image.open(drawn[0]).info["Description"] == paper.digest(paper.sources(root))


def test_rows_have_seeds_intervals_ratios_and_the_papers_values(root, template):
  put(root, template, "smoothness-rewards", 1, 2.0)
  for seed, rate in ((1, 0.4), (2, 0.6)):
    put(root, template, "decap", seed, rate)
  text = lines(root)
  upper = [line.split(" | ")[1:3] for line in text if line.startswith("| upper | ")]
  # s = 0.2 / √2, and 12.706 · s / √2 = 1.27. The paper: 0.65 / 1.72 = 0.38.
  assert upper[:4] == [
    ["Smoothness rewards (n = 1)", f"2.00 ±{deviation(template):.2f}"],
    ["Smoothness rewards, paper", "1.72 ±0.15"],
    ["DeCap (n = 2)", "**0.50 ±0.14 [±1.27] (0.25×)**"],
    ["DeCap, paper", "0.65 ±0.26 (0.38×)"],
  ]
  lower = [line for line in text if line.startswith("| lower | DeCap, paper | ")]
  assert lower[0].startswith(
    "| lower | DeCap, paper | 5.02 ±0.11 (0.85×) | 14.13 ±0.40"
  )
  task = [line for line in text if line.startswith("| DeCap, paper |")]
  assert "| 0.10 ±0.05 (0.67×) | 0.16 ±0.02 (1.00×) | 0.12 ±0.01" in task[0]
  assert "| 0.30 (1.00×) | 35.00 (0.97×) | – | – |" in task[0]
  assert any(line.startswith("| Standing still |") for line in text)
  assert "DeCap, paper & 0.65" in paper.latex(root)
  assert '<th scope="row" class="lead">DeCap, paper</th>' in paper.html(root)


def deviation(template) -> float:
  return template.metrics["smoothness"]["upper"]["action_rate"]["std"]


def test_what_was_to_be_shown_is_judged(root, template):
  put(root, template, "cat", 1, 0.5, followed=0.79)
  put(root, template, "lcp", 1, 1.0, seconds=[60])
  put(root, template, "decap", 1, 0.9, seconds=[60])
  upper, _, barrier, whole, half, rough, samples = lines_after(root, "| to be shown |")
  # CaT has the lowest, but does not follow enough. All else is equal, and sorted.
  assert "place among 2: action rate: 1, " in upper
  for line in (barrier, whole, half, rough):
    assert line.endswith("| too few methods yet | – |")
  assert samples.endswith("| 20.0 to 20.0 M in 2 runs | yes |")
  put(root, template, "lcp", 1, 0.8, seconds=[60, 120])
  put(root, template, "decap-no-barrier", 1, 1.0, followed=0.84)
  put(root, template, "middle", 1, 1.0, followed=0.86)
  put(root, template, "middle-no-barrier", 1, 1.0, followed=0.95)
  put(root, template, "p-max-half", 1, 1.0, followed=0.91, above=0.0)
  put(root, template, "p-max-half-no-barrier", 1, 1.0, followed=0.94)
  upper, _, barrier, whole, half, rough, samples = lines_after(root, "| to be shown |")
  assert "place among 3: action rate: 2, " in upper and upper.endswith("| no |")
  assert "followed 90 against 84 %" in barrier and barrier.endswith("| no |")
  assert "followed 86 against 95 %" in whole and whole.endswith("| no |")
  assert "followed 91 against 94 %" in half and half.endswith("| yes |")
  assert samples.endswith("| 20.0 to 40.0 M in 2 runs | no |")


def lines_after(root, start: str) -> list[str]:
  text = lines(root)
  first = next(i for i, line in enumerate(text) if line.startswith(start))
  return text[first + 2 : first + 9]


def test_costs_are_of_the_share_of_a_gpu(root, template):
  (root / "gpu.yaml").write_text("side-by-side: {g1-flat/lcp-*: 2, 'g1-*/*': 6}")
  put(root, template, "decap", 1, 0.5, seconds=[60, 30, 360])
  put(root, template, "lcp", 1, 0.5, seconds=[120])
  text = lines(root)
  # Resumed after a minute: 60 s, and from then on 360 s.
  assert "| DeCap (n = 1) | 60.0 | 7.0 | 6 | 1.2 | – | – |" in text
  assert "| LCP (n = 1) | 20.0 | 2.0 | 2 | **1.0** | – | – |" in text
  curve = paper_rows.read_curve(root / "g1-flat" / "decap-1.csv")
  np.testing.assert_allclose(curve["seconds"], [60.0, 90.0, 420.0])


def test_every_table_says_how_much_of_delta_was_applied(root, template):
  # Of 30 rows the last two are of the last 5 %: 0.002 of 0.4, not 1 and 0.33 %.
  before = [(0.2, 0.2)] * 28
  put(root, template, "decap", 1, 0.5, deltas=[*before, (0.1, 0.001), (0.3, 0.001)])
  put(root, template, "decap", 2, 0.5, deltas=[*before, (0.1, 0.001), (0.1, 0.0004)])
  put(root, template, "decap", 1, 0.5, disturbed=True)
  put(root, template, "cat", 1, 0.5, deltas=[(0.2, 0.1), (0.1, 0.1)])
  put(root, template, "decap-exact", 1, 0.5, deltas=[(0.2, 0.1), (0.1, 0.0)])
  put(root, template, "lcp", 1, 0.5, deltas=[(0.2, "nan")])
  text = "\n".join(lines(root))
  named = set(re.findall(r"\| ([^|]+ \(n = .*?\)) \|", text))
  assert named == {
    "LCP (n = 1)",
    "CaT (n = 1, 100 % of δ̄)",
    "DeCap (n = 2, 0.6 % of δ̄)",
    "DeCap (n = 1, 0.5 % of δ̄)",
    "DeCap (exact) (n = 1, 0 % of δ̄)",
  }
  costs = text.partition("| δ̄ applied (%) |")[2].partition("\n\n")[0]
  assert [line.split(" | ")[-2] for line in costs.splitlines()[2:]] == [
    "–",
    "100.00",
    "0.60 ±0.14 [±1.27]",
  ]
  assert r"DeCap (n = 2, 0.6 \% of $\bar\delta$) &" in paper.latex(root)
  assert "DeCap (n = 2, 0.6 % of δ̄)" in paper.html(root)


def test_ablations_and_other_grounds_have_sections_of_their_own(root, template):
  put(root, template, "decap", 1, 0.5)
  put(root, template, "mine", 1, 0.7, method="decap")
  put(root, template, "middle", 1, 0.5, method="decap")
  put(root, template, "kappa-3", 1, 0.4, method="decap")
  put(root, template, "decap", 1, 0.6, disturbed=True)
  put(root, template, "decap", 1, 0.8, task="g1-rough")
  parts = re.split(r"^## ", "\n".join(lines(root)), flags=re.MULTILINE)
  named = {part.splitlines()[0]: part for part in parts}
  flat = named["Methods on flat ground"]
  assert "mine (n = 1)" in flat and "κ 3" not in flat and "Eq. 4 whole" not in flat
  assert "<summary>Smoothness, with noise and pushes</summary>" in flat
  assert "| 0.60 ±" in flat
  assert paper.NOTHING in named["Ablations from scratch"]
  continued = named["Ablations that go on from one policy"]
  assert "| upper | κ 3 (n = 1) | **0.40" in continued and "(0.80×)" in continued
  # The paper's κ 3 is compared with its κ 2: 0.05 / 0.10.
  assert "| κ 3, paper | 0.05 ±0.02 (0.50×) |" in continued
  rough = named["Rough ground"]
  assert (
    "| g1-flat | DeCap (n = 1) |" in rough and "| g1-rough | DeCap (n = 1)" in rough
  )
  assert "mine" not in rough


def test_rough_ground_has_its_claim_and_its_kinds(root, template):
  put(root, template, "decap", 1, 0.5, task="g1-rough", followed=0.8)
  put(root, template, "smoothness-rewards", 1, 0.5, task="g1-rough", followed=0.9)
  put(root, template, "cpu", 1, 0.5, task="g1-rough", method="decap", seconds=[60.0])
  text = "\n".join(lines(root))
  assert "falls 0.00 against 0.00 a minute, followed 80 against 90 % | no |" in text
  assert "| DeCap, 15 M samples (n = 1) | 20.0 | 1.0 | – | – | – | – |" in text
  assert paper.GROUNDS not in text
  path = root / "g1-rough" / "decap-1.json"
  result = load_result(path)
  result.layout = dataclasses.replace(result.layout, grounds=("slope", "levels 0–1"))
  result.metrics["tracking"]["followed"]["mean"] = 0.9
  result.metrics["grounds"] = {
    "slope": {"tracking": {"followed": 0.75}, "falls_per_minute": 1.5},
    "levels 0–1": {"tracking": {"followed": 0.5}, "falls_per_minute": None},
  }
  result.save(path)
  kinds = "\n".join(lines(root)).partition(paper.GROUNDS)[2]
  assert "| slope | DeCap (n = 1) | 75 | 1.50 | – |" in kinds
  assert "| levels 0–1 | DeCap (n = 1) | 50 | – | – |" in kinds


def test_coefficients_are_called_by_method_and_value(root, template):
  for value, rate in (("0.08", 0.5), ("0.25", 0.7)):
    put(root, template, f"coefficient-cat-{value}", 1, rate, method="cat")
  text = "\n".join(lines(root))
  assert "| upper | CaT, 0.08 (n = 1) | **0.50" in text
  assert "| upper | CaT, 0.25 (n = 1) | 0.70" in text
  assert paper.NOTHING in text.partition("## Coefficients")[0]


def test_runs_of_the_grid_are_collected(tmp_path, template):
  """A finished run, one at work, and what the page makes of the first."""
  from decap.sweep.plan import read_plan

  plan = read_plan(ROOT / "results" / "paper.yaml")
  runs = {paper_collect.row_name(run): run for run in plan.runs if run.spec.seed == 1}
  assert {"published", "kappa-3", "rho-0.5", "p-max-half", "blind"} <= runs.keys()
  assert {"coefficient-cat-0.08", "decap-exact-continued"} <= runs.keys()
  assert {"weights-whole-body-rl-0.1", "weights-smoothness-rewards-1.0"} <= runs.keys()
  valued = [row for row in runs if row.startswith(("coefficient-", "weights-"))]
  assert set(runs) <= {*paper_rows.TITLES, *valued}
  for row, done in (("kappa-3", 407), ("kappa-6", 400)):
    folder = tmp_path / "runs" / "g1-flat" / row
    (folder / "params").mkdir(parents=True)
    (folder / "checkpoints").mkdir()
    write_spec(folder, runs[row].spec)
    (folder / "checkpoints" / f"model_{done}.pt").touch()
    told = {"protocol": Protocol(task="g1-flat").to_dict()}
    (folder / "metrics.json").write_text(json.dumps(told))
    (folder / "policy").mkdir()
    (folder / "policy" / "policy.json").write_text(json.dumps({"iteration": done}))
    with Curves(folder, AgentCfg(), 0) as curves:
      for i in range(1, 13):
        times = {"Perf/collection_time": 1.0, "Perf/learning_time": 0.5}
        curves({**times, "Task/slow": i / 100, "Train/reward": 3.0}, i)
  assert paper_collect.collect(tmp_path / "runs", tmp_path) == 1
  assert (tmp_path / "g1-flat" / "kappa-3-1.json").is_file()
  curve = paper_rows.read_curve(tmp_path / "g1-flat" / "kappa-3-1.csv")
  assert curve["iteration"].tolist() == [10, 12]
  assert curve["seconds"].tolist() == [15.0, 18.0]
  assert curve["samples"].tolist() == [10 * 24576, 12 * 24576]
  np.testing.assert_allclose(curve["followed_slow"], [0.10, 0.12])
  assert np.isnan(curve["budget"]).all()


def test_files_under_a_wrong_name_are_refused(root, template):
  put(root, template, "decap", 2, 0.5, policy_seed=1)
  with pytest.raises(AssertionError, match="is of seed 1"):
    lines(root)
  put(root, template, "decap", 2, 0.5, method="cat")
  with pytest.raises(AssertionError, match="decap-2.json"):
    lines(root)


def test_the_papers_values_are_whole():
  """Every table of the paper has all its methods and columns; no number is missing."""
  values = paper.yaml.safe_load((paper.RESULTS / "values.yaml").read_text())
  sizes = [
    {len(cells) for row in table.values() for cells in row.values()}
    for table in values["smoothness"].values()
  ]
  assert sizes == [{2}, {2}]
  counts = {name: len(table) for name, table in values["smoothness"].items()}
  assert counts == {"upper": 7, "lower": 7} and len(values["task"]) == 10
  assert {len(row) for row in values["task"].values()} == {6}
  # Its text: within 1 to 4 % of smoothness rewards without the barrier, lower body.
  lower = values["smoothness"]["lower"]
  for name, (mean, _) in lower["decap-no-barrier"].items():
    assert 1.01 <= round(mean / lower["smoothness-rewards"][name][0], 2) <= 1.04, name
