"""The package itself: its version, its page, and importing it without EGL."""

import ctypes
import os
import re
import runpy
from pathlib import Path

import pytest

import decap

ROOT = Path(__file__).parents[1]


def test_there_is_one_version():
  citation = (ROOT / "CITATION.cff").read_text("utf-8")
  assert f"\nversion: {decap.__version__}\n" in citation
  changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
  released = re.findall(r"^## \[([\d.]+)\]", changelog, re.MULTILINE)
  assert released[0] == decap.__version__


def test_links_of_the_packages_page_are_absolute_and_lead_to_files():
  make = runpy.run_path(str(ROOT / "setup.py"))["package_page"]
  page = make("https://example.org/someone/decap.git")
  text, base = page["long_description"], "https://example.org/someone/decap"
  targets = re.findall(r"\]\(([^)\s]+)\)", text)
  assert f"{base}/raw/HEAD/docs/figures/walk.gif" in targets
  for target in [*targets, *page["project_urls"].values()]:
    assert target.startswith(("https://", "#")), target
    if "/HEAD/" in target and target.startswith(base):
      path = target.split("/HEAD/")[1].split("#")[0]
      assert (ROOT / path).exists(), target
  assert set(page["project_urls"]) == {
    *("Paper", "Source", "Documentation", "Changelog", "Issues"),
  }


def test_without_a_repository_the_page_is_the_readme():
  make = runpy.run_path(str(ROOT / "setup.py"))["package_page"]
  page = make("/somewhere/on/this/machine")
  assert page["long_description"] == (ROOT / "README.md").read_text("utf-8")
  assert list(page["project_urls"]) == ["Paper"]


@pytest.fixture
def no_egl(monkeypatch):
  def missing(name):
    raise OSError(f"{name}: cannot open shared object file")

  monkeypatch.setattr(ctypes, "CDLL", missing)
  monkeypatch.setattr("sys.platform", "linux")
  # Set first, so that what the test sets itself is undone too.
  monkeypatch.setenv("MUJOCO_GL", "egl")
  monkeypatch.delenv("MUJOCO_GL")


def test_without_egl_mujoco_loads_without_rendering(no_egl):
  decap._make_rendering_optional()
  assert os.environ["MUJOCO_GL"] == "disable"


def test_a_choice_of_the_user_stays(no_egl, monkeypatch):
  monkeypatch.setenv("MUJOCO_GL", "osmesa")
  decap._make_rendering_optional()
  assert os.environ["MUJOCO_GL"] == "osmesa"
