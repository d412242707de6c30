"""The documentation as a site: it builds, its links lead somewhere, its code runs."""

import csv
import importlib.util
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
import yaml

import decap
from decap.deploy import description

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def _tool(name: str):
  """A module of docs/tools, which is no package."""
  spec = importlib.util.spec_from_file_location(name, DOCS / "tools" / f"{name}.py")
  assert spec and spec.loader
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def _build(config: Path, site: Path) -> subprocess.CompletedProcess:
  command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
  return subprocess.run(
    [*command, "--config-file", str(config), "--site-dir", str(site)],
    env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    capture_output=True,
    text=True,
  )


class _Links(HTMLParser):
  """Addresses that a page leads to or loads, and the places in it."""

  def __init__(self, page: Path):
    super().__init__()
    self.targets: list[str] = []
    self.places: set[str] = set()
    self.feed(page.read_text("utf-8"))

  def handle_starttag(self, tag, attrs):
    values = dict(attrs)
    self.places |= {values[key] for key in ("id", "name") if values.get(key)}
    if tag in ("a", "img", "script", "link"):
      target = values.get("href") or values.get("src")
      if target and values.get("rel") != "canonical":
        self.targets.append(target)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
  folder = tmp_path_factory.mktemp("site")
  built = _build(ROOT / "mkdocs.yml", folder)
  assert built.returncode == 0, built.stderr[-2000:]
  return folder


def test_every_link_of_the_site_leads_somewhere(site):
  """Once more on what was built: MkDocs does not see links of hooks and templates."""
  pages = {page: _Links(page) for page in site.rglob("*.html")}
  assert len(pages) > 40
  for page, links in pages.items():
    if page.name == "404.html":  # Its addresses are those of a server's root.
      continue
    for target in links.targets:
      address = urlsplit(target)
      if address.scheme or target.startswith("//"):
        continue
      file = (page.parent / unquote(address.path)).resolve() if address.path else page
      file = file / "index.html" if file.is_dir() else file
      assert file.is_file(), f"{page.name} → {target}"
      if address.fragment and file.suffix == ".html" and file in pages:
        place = unquote(address.fragment)
        assert place in pages[file].places | {"__skip"}, f"{page.name} → {target}"


def test_the_site_loads_nothing_from_elsewhere(site):
  for page in site.rglob("*.html"):
    text = page.read_text("utf-8")
    loaded = re.findall(r"<(?:script|img|iframe)[^>]+src=\"(https?:[^\"]+)", text)
    loaded += re.findall(r"<link[^>]+stylesheet[^>]+href=\"(https?:[^\"]+)", text)
    assert not loaded, page.name


def test_the_first_page_has_a_moving_picture_and_the_table(site):
  text = (site / "index.html").read_text("utf-8")
  assert "walk.gif" in text
  assert _tool("site").TABLE not in text
  assert text.count("<td>DeCap") == 3 and "<td>smoothness rewards</td>" in text


@pytest.mark.parametrize(
  "wrong", ["[gone](gone.md)", "[gone](../gone.py)", "[gone](play.md#gone)"]
)
def test_links_to_nothing_are_refused(tmp_path, wrong):
  """One page beside a wrong link, under the site's own rules."""
  config = yaml.unsafe_load((ROOT / "mkdocs.yml").read_text())
  (tmp_path / "docs").mkdir()
  (tmp_path / "docs" / "play.md").write_text("# Play\n")
  (tmp_path / "docs" / "index.md").write_text(f"# Home\n\n{wrong}\n")
  small = {"site_name": "x", "validation": config["validation"]}
  (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(small))
  built = _build(tmp_path / "mkdocs.yml", tmp_path / "site")
  assert built.returncode == 1 and "gone" in built.stderr


def test_the_tables_of_tasks_are_those_of_the_code():
  text = (DOCS / "tasks.md").read_text("utf-8")
  tables = _tool("task_tables")
  assert tables.page(text) == text, "run python docs/tools/task_tables.py"


def test_policy_json_is_explained_field_by_field():
  text = (DOCS / "policy.md").read_text("utf-8")
  first, second = re.findall(r"^\| field \|.*?\n\n", text, re.MULTILINE | re.DOTALL)

  def fields(table: str) -> set[str]:
    cells = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    return set(re.findall(r"`(\w+)`", " ".join(cells)))

  infos = [json.loads(p.read_text()) for p in ROOT.glob("policies/*/policy.json")]
  newer = {"run", "samples_per_iteration"}  # Than the released bundles.
  assert fields(first) == {key for info in infos for key in info} | {"made_by"} | newer
  terms = [term for info in infos for term in info["observations"]]
  assert fields(second) == {key for term in terms for key in term}
  assert set(description._REQUIRED) <= fields(first)


def test_the_control_loop_of_thirty_lines_walks(capsys, monkeypatch):
  monkeypatch.chdir(ROOT)
  text = (DOCS / "policy.md").read_text("utf-8")
  setup, loop = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
  assert "decap" not in loop and len(loop.splitlines()) <= 30
  names: dict = {}
  exec(setup + loop, names)
  assert names["data"].qpos[0] > 2.0  # m, of 4 that were asked for.
  assert 0.7 < names["data"].qpos[2] < 0.85
  assert capsys.readouterr().out.startswith("walked ")


def test_curves_are_explained_by_their_names():
  """Every tag of the page is written somewhere in the code, as it is or as a pattern."""
  text = (DOCS / "tensorboard.md").read_text("utf-8")
  source = "".join(p.read_text("utf-8") for p in (ROOT / "src").rglob("*.py"))
  written = set(re.findall(r"\"((?:[A-Z]\w+)/[^\"\s]*)\"", source))
  patterns = [re.sub(r"\\{.*?\\}", ".+", re.escape(name)) for name in written]
  tags = re.findall(r"`([A-Z]\w+/[^`]+)`", text)
  assert len(tags) > 20
  for tag in tags:
    name = tag.replace("<row>", "joint_acc/upper").replace("…", "x")
    assert any(re.fullmatch(p, name) for p in patterns), tag


def test_what_laptops_expect_is_what_was_logged():
  text = (DOCS / "laptops.md").read_text("utf-8")
  (name,) = re.findall(r"`(results/lab-book/[^`]+\.csv)`", text)
  with open(ROOT / name, encoding="utf-8") as file:
    logged = [_expectation(row) for row in csv.DictReader(file)]
  lines = re.findall(r"^\| [\d.]+ \| \d+ \| \d+ s \|.*$", text, re.MULTILINE)
  assert len(lines) > 5
  for line in lines:
    assert line in logged, line


def _expectation(row: dict[str, str]) -> str:
  number = {key: float(value) for key, value in row.items()}
  bands = ("slow", "fast", "backward", "sideways", "turning")
  followed = " / ".join(f"{100 * number[f'followed_{band}']:.0f}" for band in bands)
  return (
    f"| {number['samples'] / 1e6:.1f} | {number['samples'] / 4500 / 60:.0f} "
    f"| {number['episode_steps'] / 50:.0f} s | {followed} |"
  )


def test_the_citation_names_this_version():
  text = (DOCS / "cite.md").read_text("utf-8")
  assert f"version = {{{decap.__version__}}}" in text
  citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
  paper = citation["preferred-citation"]
  assert f"title = {{{paper['title']}}}" in text
  assert all(author["family-names"] in text for author in paper["authors"])


def test_the_wheel_that_pages_name_is_this_version():
  for page in DOCS.glob("*.md"):
    for found in re.findall(r"decap-([\d.]+)-py3", page.read_text("utf-8")):
      assert found == decap.__version__, page.name


def _notebook() -> dict:
  return json.loads((ROOT / "examples" / "walk.ipynb").read_text("utf-8"))


def test_the_notebook_walks_and_judges():
  """All but the training at its end."""
  notebook = _notebook()
  code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
  kept = {**notebook, "cells": code[:-1]}
  names = _tool("notebook").run(kept, ROOT / "examples")
  assert all(trace.distance() > 0.7 for trace in names["traces"].values())
  printed = "".join(kept["cells"][-1]["outputs"][0]["text"])
  calm, rough = map(float, re.findall(r"mean δ (\S+)", printed))
  assert calm < 0.02 and rough > 0.05
  assert np.isfinite([calm, rough]).all()


@pytest.mark.slow
def test_the_notebook_trains():
  names = _tool("notebook").run(_notebook(), ROOT / "examples")
  assert names["runner"].iteration == 2


def test_the_notebook_shows_what_it_printed():
  page = _tool("site").notebook_markdown(_notebook())
  assert "mean δ" in page and "data:image/png;base64," in page
  assert "Traceback" not in page
