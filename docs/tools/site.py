"""What the site needs beyond the pages: files of the repository, README's table, notebook.

Pages link to files of the repository as they do in a checkout. On the site such a file
is a page of its own, or a copy for pictures, so that links work offline and in forks. A
link to nothing stays as it is, and MkDocs refuses it.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {
  "README.md": "readme.md",
  "CONTRIBUTING.md": "contributing.md",
  "CHANGELOG.md": "changelog.md",
  "examples/walk.ipynb": "walk.md",
}
"""File of the repository → page of the site."""
TABLE = "<!-- table of README.md -->"
PICTURES = (".png", ".gif", ".svg")
LANGUAGES = {".py": "python", ".json": "json", ".toml": "toml", ".yaml": "yaml"}
LINK = re.compile(r"(?<=\]\()(?!https?://|#|mailto:|data:)([^)#\s]+)(#[^)\s]*)?(?=\))")
LIST = re.compile(r"^(?![-|#>\s])(.*\S)\n(?=- )", re.MULTILINE)
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
  """Add the pages above, and every file that a page links to."""
  for path, uri in PAGES.items():
    files.append(File.generated(config, uri, content=_page_text(ROOT / path)))
  for file in list(files.documentation_pages()):
    for target in _targets(file.content_string, _origin(file.src_uri)):
      uri = site_uri(target)
      if uri and uri.startswith("files/") and files.get_file_from_path(uri) is None:
        files.append(_as_file(config, ROOT / target, uri))
  return files


def on_page_markdown(markdown: str, page: Page, **_) -> str:
  """Links to files of the repository as links within the site, and lists as lists."""
  if page.file.src_uri.startswith("files/"):
    return markdown
  here = posixpath.dirname(page.file.src_uri)
  origin = _origin(page.file.src_uri)

  def moved(link: re.Match) -> str:
    uri = site_uri(_target(link[1], origin))
    return posixpath.relpath(uri, here or ".") + (link[2] or "") if uri else link[0]

  if TABLE in markdown:
    markdown = markdown.replace(TABLE, table())
  # MkDocs wants an empty line before a list; others do not.
  return _outside_of_code(
    markdown, lambda text: LIST.sub(r"\1\n\n", LINK.sub(moved, text))
  )


def table() -> str:
  """The README's first table: the released policies and their numbers."""
  text = (ROOT / "README.md").read_text("utf-8")
  match = re.search(r"^\| policy \|.*?(?=\n\n)", text, re.MULTILINE | re.DOTALL)
  assert match, "README.md has no table of policies"
  return match[0]


def site_uri(target: str) -> str | None:
  """Where the site has a file of the repository; None where there is no such file."""
  if target in PAGES:
    return PAGES[target]
  if target.startswith("docs/"):
    return target.removeprefix("docs/")
  path = ROOT / target
  if target.startswith("..") or not path.is_file():
    return None
  return f"files/{target}" + ("" if path.suffix in PICTURES else ".md")


def notebook_markdown(notebook: dict) -> str:
  """Cells in their order; what they print follows them."""
  parts = []
  for cell in notebook["cells"]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
      parts.append(source)
      continue
    parts.append(f"```python\n{source}\n```")
    for output in cell["outputs"]:
      data = output.get("data", {})
      if "image/png" in data:
        png = "".join(data["image/png"]).replace("\n", "")
        parts.append(f"![output](data:image/png;base64,{png})")
      elif text := "".join(output.get("text", data.get("text/plain", ""))).strip():
        parts.append(f"```text\n{text}\n```")
  return "\n\n".join(parts) + "\n"


def _page_text(path: Path) -> str:
  text = path.read_text("utf-8")
  return notebook_markdown(json.loads(text)) if path.suffix == ".ipynb" else text


def _as_file(config: MkDocsConfig, path: Path, uri: str) -> File:
  if path.suffix in PICTURES:
    return File.generated(config, uri, abs_src_path=str(path))
  text = path.read_text("utf-8")
  language = LANGUAGES.get(path.suffix, "text")
  name = path.relative_to(ROOT)
  content = f"# {name}\n\n````{language}\n{text}\n````\n"
  return File.generated(config, uri, content=content)


def _origin(uri: str) -> str:
  """The page's path in the repository."""
  pages = {page: path for path, page in PAGES.items()}
  return pages.get(uri, f"docs/{uri}")


def _target(link: str, origin: str) -> str:
  return posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))


def _targets(markdown: str, origin: str) -> list[str]:
  found: list[str] = []

  def collect(text: str) -> str:
    found.extend(_target(link[1], origin) for link in LINK.finditer(text))
    return text

  _outside_of_code(markdown, collect)
  return found


def _outside_of_code(markdown: str, change) -> str:
  """A change of all that is not in a fenced block."""
  done, at = [], 0
  for fence in FENCE.finditer(markdown):
    done += [change(markdown[at : fence.start()]), fence[0]]
    at = fence.end()
  return "".join([*done, change(markdown[at:])])
