"""The HTML report is one file that needs nothing else."""

import base64
import html
import json
import re

import numpy as np
import pytest

from decap.evaluation.report import (
  clip,
  find_trajectories,
  make_report,
  playback_html,
)
from decap.evaluation.results import Result
from decap.evaluation.table_formats import to_html
from decap.evaluation.tables import group_results, make_tables
from tests.evaluation.synthetic import make_trajectory, measured, metrics_of_trajectory


def make_results(folder, record=True):
  results = []
  for i, method in enumerate(("cat", "decap")):
    trajectory = measured(make_trajectory(seed=i))
    result = Result(
      {
        "name": method,
        "method": method,
        "seed": 1,
        "task": "t",
        "source": f"{method}<",
      },
      trajectory.protocol,
      trajectory.layout,
      metrics_of_trajectory(trajectory),
      versions={"torch": "2.x"},
    )
    result.path = folder / method / "metrics.json"
    result.save(result.path)
    if record:
      trajectory.save(folder / method / "trajectory.npz")
    results.append(result)
  return results


def make_page(results, command="decap compare a b --html r.html"):
  methods = group_results(results, [None] * len(results))
  return make_report(methods, make_tables(methods), command)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
  return make_page(make_results(tmp_path_factory.mktemp("report")))


def test_it_tells_of_every_policy_and_what_it_was_measured_by(tmp_path):
  results = make_results(tmp_path)
  results[1].policy |= {"method": "cat", "seed": None}  # Of one row.
  page = make_page(results, "decap compare 'ä b'")
  told = json.loads(html.unescape(re.search("<pre>(.*?)</pre>", page, re.S).group(1)))
  assert told["command"] == "decap compare 'ä b'"
  (policies,) = told["policies"].values()
  assert policies == [result.policy for result in results]
  assert told["protocol"] == results[0].protocol
  assert told["limits"] == results[0].layout.limits
  assert told["versions"] == {"torch": "2.x"} and told["physics"] == ["None on None"]


def test_it_loads_nothing_from_elsewhere(page):
  assert "http:" not in page and "https:" not in page
  sources = re.findall(r'(?:src|href)="([^"]{0,20})', page)
  assert sources and all(source.startswith("data:image/svg") for source in sources)


def test_it_shows_tables_figures_playback_and_how_it_was_made(page):
  assert page.count("<table>") == 11
  # Response, tracking, four traces, distributions, four joint figures, spectra.
  assert page.count("data:image/svg+xml") == 12
  assert page.count("<canvas") == 2
  assert "decap compare a b --html r.html" in page
  assert "2.x" in page and "cat&lt;" in page and "cat<" not in page


def test_playback_data_are_the_trajectory(page):
  text = re.search(r'id="clips">(.*?)</script>', page, re.S).group(1)
  clips = json.loads(text)
  assert [data["label"] for data in clips] == ["CaT", "DeCap"]
  data = clips[0]
  raw = np.frombuffer(base64.b64decode(data["points"]), "<i2").reshape(-1, 4, 3)
  assert data["dt"] == 0.04 and len(raw) == len(data["speeds"]) == 95


def test_a_clip_starts_after_the_warm_up_in_the_calmest_environment():
  trajectory = make_trajectory(rollouts=1, envs=2, steps=100, warmup=10)
  trajectory.arrays["timed_out"][:] = False
  trajectory.arrays["fell"][:] = False
  trajectory.arrays["fell"][50, 0] = True
  trajectory.arrays["points"][:, 1] = 0.25
  trajectory.arrays["points"][10:, 1, 0, 0] = 1.0  # Base x when the clip starts.
  data = clip(trajectory)
  raw = np.frombuffer(base64.b64decode(data["points"]), "<i2").reshape(-1, 4, 3)
  assert raw[0, 0].tolist() == [0, 0, 250]  # Relative to the first base position.
  assert raw[0, 1].tolist() == [-750, 0, 250]


def test_a_clip_has_numbers_only():
  """The page could not read others, and would show no playback at all."""
  trajectory = make_trajectory(rollouts=1, envs=2, steps=100, warmup=10)
  trajectory.arrays["fell"][:] = trajectory.arrays["timed_out"][:] = False
  trajectory.arrays["points"][:, 1] = 0.25
  trajectory.arrays["points"][50:, 0] = np.nan
  trajectory.arrays["base_velocity"][50:] = np.nan
  data = clip(trajectory)
  raw = np.frombuffer(base64.b64decode(data["points"]), "<i2")
  assert raw[2::3].tolist() == [250] * (len(raw) // 3)  # Of the whole environment.
  assert np.isfinite(data["speeds"]).all()
  playback_html({"a": data})


def test_it_tells_of_all_versions_and_that_figures_are_of_one_seed(tmp_path):
  results = make_results(tmp_path, record=False)
  note = "Of each row the first seed"
  assert note not in make_page(results)
  results[1].policy |= {"method": "cat", "seed": 2}
  results[1].versions = {"torch": "3.x"}
  page = make_page(results)
  assert note in page and "2.x and 3.x" in page


def test_without_trajectories_it_says_what_is_missing(tmp_path):
  page = make_page(make_results(tmp_path, record=False))
  assert "--trajectory 1" in page and "<canvas" not in page
  assert page.count("data:image/svg+xml") == 7


def test_the_figure_of_pushes_is_of_the_task_that_the_tables_are_of(tmp_path):
  """A policy's walk on its own task stood beside its numbers on another."""
  trajectory = make_trajectory(steps=30)
  policy = {"name": "run", "method": "decap", "task": "own"}
  result = Result(policy, trajectory.protocol, trajectory.layout, {})
  for label, task in (("", "own"), ("synthetic-", "synthetic")):
    trajectory.protocol["task"] = task
    trajectory.save(tmp_path / f"trajectory-{label}switching-disturbed.npz")
  for task, name in (("own", "metrics.json"), ("synthetic", "metrics-synthetic.json")):
    result.path, result.protocol = (
      tmp_path / name,
      {**trajectory.protocol, "task": task},
    )
    (found,) = find_trajectories({"run": result}, switching=True).values()
    assert found.protocol["task"] == task


def test_text_cannot_become_markup():
  bad = "</script><script>alert(1)</script>"
  trajectory = make_trajectory(steps=30)
  assert bad not in playback_html({bad: clip(trajectory)})
  result = Result(
    {"method": "decap"},
    trajectory.protocol,
    trajectory.layout,
    metrics_of_trajectory(trajectory),
  )
  table = make_tables(group_results([result], [bad]))[0]
  assert bad not in to_html(table) and html.escape(bad) in to_html(table)
