"""Links of the package's page: the README's, made absolute; the rest is pyproject.toml.

In the repository links are relative, so that they work offline and in forks. An index
shows the same text alone. `DECAP_REPOSITORY`, an address such as
https://github.com/OWNER/decap, says where the files are; `make wheel` sets it.
"""

import os
import re
from pathlib import Path

from setuptools import setup

PAPER = "https://panchalutsav.github.io/decap/"
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")


def absolute_links(text: str, repository: str) -> str:
  """Markdown whose links to files lead to a repository's newest commit."""

  def absolute(link: re.Match) -> str:
    kind = "raw" if link[1] else "blob"
    return f"{link[1]}[{link[2]}]({repository}/{kind}/HEAD/{link[3]})"

  return LINK.sub(absolute, text)


def package_page(repository: str) -> dict:
  """The README and the addresses; only the paper's where there is no repository."""
  text = (Path(__file__).parent / "README.md").read_text("utf-8")
  urls = {"Paper": PAPER}
  repository = repository.strip().removesuffix("/").removesuffix(".git")
  if repository.startswith("https://"):
    text = absolute_links(text, repository)
    urls["Source"] = repository
    urls["Documentation"] = f"{repository}/blob/HEAD/docs/index.md"
    urls["Changelog"] = f"{repository}/blob/HEAD/CHANGELOG.md"
    urls["Issues"] = f"{repository}/issues"
  return {
    "long_description": text,
    "long_description_content_type": "text/markdown",
    "project_urls": urls,
  }


if __name__ == "__main__":
  setup(**package_page(os.environ.get("DECAP_REPOSITORY", "")))
